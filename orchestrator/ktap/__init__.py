# SPDX-License-Identifier: GPL-2.0-only
"""Parsers of the output of the kernel's own tests: KTAP, TAP and ftracetest."""
