# SPDX-License-Identifier: GPL-2.0-only
"""Results: their contract, the store that keeps them, and statistics."""
