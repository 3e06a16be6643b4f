#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Unpacks the files of a Debian package that match: unpack-files.sh PACKAGE FOLDER PATTERN
# The package of 5 GB is unpacked on the way; a broken pipe breaks tar's archive, too.
dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards "$3"
