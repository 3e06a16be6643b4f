# SPDX-License-Identifier: GPL-2.0-only
"""Formats of results: each reads a run record and the catalogue, nothing else."""
