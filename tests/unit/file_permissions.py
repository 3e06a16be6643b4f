# SPDX-License-Identifier: GPL-2.0-only
"""How files' modes are made to count for root as well, so that tests find a folder that they cannot write to.

Root writes to any file by CAP_DAC_OVERRIDE. Without it, root is the owner of root's files; it still reads all others,
by CAP_DAC_READ_SEARCH. An ordinary user could not read a checkout in root's own home.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

AS_MERE_OWNER = () if os.geteuid() != 0 else ("setpriv", "--bounding-set=-dac_override")
"""What to put before a command for which modes are to count."""

_VERSION_3 = 0x20080522  # linux/capability.h
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def modes_count() -> contextlib.AbstractContextManager[None]:
    """Lay down the capability to override modes, for this thread; root still reads everything."""
    return _without(_DAC_OVERRIDE)


def reading_by_modes() -> contextlib.AbstractContextManager[None]:
    """The same for reading: of files that are not its own root reads what everybody may."""
    return _without(_DAC_OVERRIDE, _DAC_READ_SEARCH)


@contextlib.contextmanager
def _without(*capabilities: int) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()  # 32 capabilities each
    _check(libc.capget(ctypes.byref(header), sets))
    before = sets[0].effective
    for capability in capabilities:
        sets[0].effective &= ~(1 << capability)
    _check(libc.capset(ctypes.byref(header), sets))
    try:
        yield
    finally:
        sets[0].effective = before
        _check(libc.capset(ctypes.byref(header), sets))


def _check(status: int) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be changed")
