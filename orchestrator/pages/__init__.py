# SPDX-License-Identifier: GPL-2.0-only
"""A run as one page, and the store as a folder of pages."""
