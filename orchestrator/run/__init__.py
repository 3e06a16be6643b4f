# SPDX-License-Identifier: GPL-2.0-only
"""A run: boots as tasks, their executors, and the journal of their outcomes."""
