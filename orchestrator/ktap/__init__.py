# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel's own tests print, as results: KTAP, TAP and ftracetest."""
