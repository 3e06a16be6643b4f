# SPDX-License-Identifier: GPL-2.0-only
"""Profiles by source line and inlined function."""
