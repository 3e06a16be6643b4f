# SPDX-License-Identifier: GPL-2.0-only
"""How a run's readings are printed; it loads no guest code."""
