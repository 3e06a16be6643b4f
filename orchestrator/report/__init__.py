# SPDX-License-Identifier: GPL-2.0-only
"""Output formats of results."""
