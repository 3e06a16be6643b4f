# SPDX-License-Identifier: GPL-2.0-only
"""What is fed with inputs: one function for each target, named as in the registry."""
