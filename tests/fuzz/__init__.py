# SPDX-License-Identifier: GPL-2.0-only
"""Readers of what guests, files and archives say, fed with damaged and invented inputs."""
