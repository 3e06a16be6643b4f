# SPDX-License-Identifier: GPL-2.0-only
"""Cost of a marker in a loop."""
