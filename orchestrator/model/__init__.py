# SPDX-License-Identifier: GPL-2.0-only
"""What a real CPU would take for the calls that a cell counted: cost tables applied to profiles."""
