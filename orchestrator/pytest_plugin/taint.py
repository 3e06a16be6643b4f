# SPDX-License-Identifier: GPL-2.0-only
"""What taints a guest's kernel: trouble that the console may not have shown. The bits are those of Linux 6.1."""

from __future__ import annotations

_TROUBLE = {
    1: "a module was loaded by force",
    3: "a module was unloaded by force",
    4: "a machine check",
    5: "a bad page",
    7: "an oops or a BUG",
    9: "a warning",
    14: "a soft lockup",
}
"""The bits that mean trouble, from Documentation/admin-guide/tainted-kernels.rst. The others describe modules (P, C, O,
E, K, N, X, T), firmware (A, I), the CPU (S) and what a user asked for (U)."""

REPORTED = frozenset({5, 7, 9, 14})
"""The bits that come with a report on the console."""


def troubles(before: int, after: int) -> dict[int, str]:
    """What has happened between two readings, by the taint's bit."""
    return {bit: what for bit, what in _TROUBLE.items() if (after & ~before) >> bit & 1}
