# SPDX-License-Identifier: GPL-2.0-only
"""The parameters that a built module has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.modules import Module
from orchestrator.catalog.spelling import unknown
from orchestrator.elf import DAMAGED
from orchestrator.errors import ConfigError, UsageError

_NAME = "__param_str_"
"""Begins the symbol of a parameter's name (__module_param_call() of include/linux/moduleparam.h)."""

_KERNELS_OWN = frozenset({"async_probe", "dyndbg"})
"""Parameters that the kernel takes for every module (unknown_module_param_cb() of kernel/module/main.c)."""


def check_parameter_names(module: Module, given: Iterable[str]) -> None:
    """Raise UsageError for a parameter that the module has not got: the kernel ignores it, with a line in its log.

    Not where the module's own symbols are stripped; then its parameters are not known. Raises ConfigError for a file
    that is no module.
    """
    names = [name for name in given if name not in _KERNELS_OWN]
    allowed = _parameter_names(module.file) if names else None
    if allowed is None:
        return
    for name in names:
        if name not in allowed:
            if not allowed:
                raise UsageError(f"module {module.name} has no parameter '{name}': it has no parameters at all")
            raise UsageError(f"module {module.name}: {unknown('parameter', name, allowed)}")


def _parameter_names(file: Path) -> list[str] | None:
    """The names; None where the file does not tell them."""
    try:
        with file.open("rb") as stream:
            elf = ELFFile(stream)
            if elf.get_section_by_name("__param") is None:
                return []
            symbols = elf.get_section_by_name(".symtab")
            names = (
                [symbol.name for symbol in symbols.iter_symbols()] if isinstance(symbols, SymbolTableSection) else []
            )
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except DAMAGED:
        raise ConfigError("is no kernel module", where=str(file)) from None
    return sorted(name.removeprefix(_NAME) for name in names if name.startswith(_NAME)) or None
