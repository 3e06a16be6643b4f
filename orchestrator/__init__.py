# SPDX-License-Identifier: GPL-2.0-only
"""A lab for the cost of kernel probes: boot, probe, measure, prove, tabulate."""

__version__ = "0.2.0"
