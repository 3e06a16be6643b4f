# SPDX-License-Identifier: GPL-2.0-only
"""Cost of attaching to many functions."""
