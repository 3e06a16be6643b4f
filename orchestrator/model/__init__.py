# SPDX-License-Identifier: GPL-2.0-only
"""Modelled time: cost tables of CPUs applied to profiles."""
