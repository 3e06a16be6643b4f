# SPDX-License-Identifier: GPL-2.0-only
"""A run: boots as tasks, the crews that do them, the journal of their outcomes, and what all need."""
