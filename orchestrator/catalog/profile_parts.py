# SPDX-License-Identifier: GPL-2.0-only
"""What a profile may have in it."""

from __future__ import annotations

from typing import Literal

ProfilePart = Literal["symbols", "classes", "stacks", "caches", "purposes"]
"""Instructions by symbol; by class, for which QEMU also counts loads, stores and taken branches; by call stack; what
misses in models of the CPU's caches; what instructions are for."""
