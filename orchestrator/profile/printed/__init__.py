# SPDX-License-Identifier: GPL-2.0-only
"""Printed profiles: tables, files for other programs, flame graphs, time lines."""
