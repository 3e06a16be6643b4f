# SPDX-License-Identifier: GPL-2.0-only
echo "#define MADE 5"
