# SPDX-License-Identifier: GPL-2.0-only
"""Cost of probes to a whole system."""
