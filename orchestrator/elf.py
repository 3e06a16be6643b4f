# SPDX-License-Identifier: GPL-2.0-only
"""The errors that reading a damaged ELF file can raise."""

from __future__ import annotations

import struct
import zlib

from elftools.common.exceptions import ELFError

DAMAGED = (
    ELFError,
    UnicodeDecodeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)
"""What pyelftools and struct raise for files that are not what their headers say."""
