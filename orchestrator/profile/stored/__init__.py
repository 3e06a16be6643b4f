# SPDX-License-Identifier: GPL-2.0-only
"""Stored profiles: their form and files, differences, trees of calls, time lines."""
