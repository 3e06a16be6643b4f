# SPDX-License-Identifier: GPL-2.0-only
"""What was measured: the result contract, the store that keeps it, and the arithmetic on it."""
