# SPDX-License-Identifier: GPL-2.0-only
"""Bytes of code that a marker adds."""
