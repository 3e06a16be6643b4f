# SPDX-License-Identifier: GPL-2.0-only
"""The executed instructions as code: their classes, functions compared by instruction, annotated functions."""
