# SPDX-License-Identifier: GPL-2.0-only
"""Two runs, kernels or commits compared: pairs of cells, how much they differ, and how that is printed."""
