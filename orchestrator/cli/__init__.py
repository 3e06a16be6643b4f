# SPDX-License-Identifier: GPL-2.0-only
"""The command line; no logic of its own."""
