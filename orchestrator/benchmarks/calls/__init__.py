# SPDX-License-Identifier: GPL-2.0-only
"""Cost of a call with a probe in it."""
