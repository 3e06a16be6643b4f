# SPDX-License-Identifier: GPL-2.0-only
"""How many bytes instrumentation adds to a built object."""
