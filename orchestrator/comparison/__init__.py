# SPDX-License-Identifier: GPL-2.0-only
"""Comparisons of runs, kernels or commits: pairs of cells, verdicts, output formats."""
