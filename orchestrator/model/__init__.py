# SPDX-License-Identifier: GPL-2.0-only
"""Modelled time: price lists of CPUs applied to profiles."""
