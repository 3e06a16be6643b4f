# SPDX-License-Identifier: GPL-2.0-only
"""What a hit of a program, a module or a mechanism costs, and which call reaches it."""
