# SPDX-License-Identifier: GPL-2.0-only
"""The frame and the pictures of pages, which need no network."""
