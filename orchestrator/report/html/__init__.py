# SPDX-License-Identifier: GPL-2.0-only
"""Reports as pages: self-contained files that need no network."""
