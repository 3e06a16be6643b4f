# SPDX-License-Identifier: GPL-2.0-only
"""The store as a folder of static pages, rebuilt incrementally."""
