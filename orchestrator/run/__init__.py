# SPDX-License-Identifier: GPL-2.0-only
"""A run: boots as tasks, the coordinator that stores their outcomes, and what both need."""
