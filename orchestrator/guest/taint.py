# SPDX-License-Identifier: GPL-2.0-only
"""The taint mask of a guest's kernel: sticky bits that record events since boot."""

from __future__ import annotations

from orchestrator.errors import GuestError
from orchestrator.guest.commands import GuestCommands
from orchestrator.guest.kernel_value import kernel_value, whole_number

_FILE = "/proc/sys/kernel/tainted"
_QUOTED = 40

_TROUBLE = {
    1: "a module was loaded by force",
    3: "a module was unloaded by force",
    4: "a machine check",
    5: "a bad page",
    7: "an oops or a BUG",
    9: "a warning",
    14: "a soft lockup",
}
"""The bits that mean trouble, from Documentation/admin-guide/tainted-kernels.rst. Others describe modules (P, C, O, E,
K, N, X, T, J), firmware (A, I), the CPU (S) and users' requests (U)."""


_REPORTED = frozenset({5, 7, 9, 14})
"""The bits that accompany a report on the console."""


def troubles(before: int, after: int, *, has_reported: bool) -> list[str]:
    """The troubles between two readings; if the kernel ``has_reported``, without those that accompany reports."""
    new = {bit for bit in _TROUBLE if (after & ~before) >> bit & 1}
    return [_TROUBLE[bit] for bit in sorted(new - _REPORTED if has_reported else new)]


def taint_mask(guest: GuestCommands) -> int:
    """The current mask. Raises GuestError if it cannot be read or is not a number."""
    text = kernel_value(guest, _FILE)
    mask = whole_number(text)
    if mask is None:
        raise GuestError(f"the guest's kernel has no number for its taint: {text[:_QUOTED]!r}", where=_FILE)
    return mask
