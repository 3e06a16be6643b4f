# SPDX-License-Identifier: GPL-2.0-only
"""The pages of docs/reference/, made of docstrings, models, options and kernel-doc comments."""
