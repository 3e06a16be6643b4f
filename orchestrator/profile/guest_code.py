# SPDX-License-Identifier: GPL-2.0-only
"""The code of a running guest, with the module that is loaded in it now."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.artifacts.modules import Module
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.module_symbols import module_functions
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import TextLayout
from orchestrator.profile.places import CodeRange, Function, Places

_TEXT = "_stext"
_HALF = 1 << 63
_SPLITS = 0xF0000000
"""Where a 32-bit kernel may begin (CONFIG_VMSPLIT_*): at a multiple of 256 MiB, its text 16 MiB behind."""


def code_of(guest: Guest, symbols: Symbols, module: Module | None, program: str) -> Places:
    """Its functions: those of ``symbols``, and of the ``module`` that was loaded since they were read.

    Raises EvidenceError where the guest's lists make no sense.
    """
    start = symbols.anywhere(_TEXT)
    if start is None:
        raise EvidenceError(f"the guest's kernel does not list where its text is ({_TEXT})")
    return Places(
        functions=tuple(_functions(guest, symbols, module)),
        ranges=tuple(CodeRange(span.start, span.end) for span in TextLayout.of(guest, symbols).text),
        kernel_start=_HALF if start >= _HALF else start & _SPLITS,
        program=program,
    )


def _functions(guest: Guest, symbols: Symbols, module: Module | None) -> Iterator[Function]:
    for address, name, owner in symbols.functions():
        yield Function(address, name, owner)
    if module is not None:
        for name, address in module_functions(guest, module.name, module.file).items():
            yield Function(address, name, module.name)
