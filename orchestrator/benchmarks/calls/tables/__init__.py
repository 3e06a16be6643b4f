# SPDX-License-Identifier: GPL-2.0-only
"""The tables of benchmarks of calls, one in each file."""
