# SPDX-License-Identifier: GPL-2.0-only
"""Results: their contract, their store, and statistics."""
