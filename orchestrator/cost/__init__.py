# SPDX-License-Identifier: GPL-2.0-only
"""What a program costs: the call that reaches its probe point."""
