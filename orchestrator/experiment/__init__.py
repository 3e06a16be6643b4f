# SPDX-License-Identifier: GPL-2.0-only
"""Experiments: the file, its schema, and the plan of cells that follows from it."""
