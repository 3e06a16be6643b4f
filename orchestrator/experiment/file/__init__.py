# SPDX-License-Identifier: GPL-2.0-only
"""The experiment file: reading, overrides, validation and messages."""
