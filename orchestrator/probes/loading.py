# SPDX-License-Identifier: GPL-2.0-only
"""Loads a module into a guest's kernel, or reports why it was refused; unloads it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from orchestrator.artifacts.prebuilt import modinfo
from orchestrator.catalog.given_parameters import parameter_problem
from orchestrator.errors import EvidenceError, UsageError
from orchestrator.guest.channel import COMMAND_LIMIT
from orchestrator.guest.guest import Guest

_WRONG_FORMAT = "invalid module format"
"""What insmod says for ENOEXEC: the module is of another kernel, or of another configuration of this one."""

_LOADER = re.compile(r"\b(ELF|module|Module|Lockdown)\b")
_NO_PARAMETERS: Mapping[str, str | int] = MappingProxyType({})


class RefusedError(EvidenceError):
    """The guest's kernel, or the module itself, refused the module; ``reason`` is the module's own message."""

    def __init__(self, name: str, reason: str, detail: Sequence[str]) -> None:
        super().__init__(f"module {name} was not accepted by the guest's kernel: {reason}", detail=detail)
        self.reason = reason


def load(
    guest: Guest,
    name: str,
    file: Path,
    *,
    parameters: Mapping[str, str | int] = _NO_PARAMETERS,
    time_limit: float = COMMAND_LIMIT,
) -> None:
    """Load a module from a file of the host's. Raises RefusedError with its own message from the log, or GuestOops.

    ``time_limit`` is in host seconds, for the module's own beginning. Raises UsageError for parameters that cannot be.
    """
    arguments = [insmod_word(key, value) for key, value in parameters.items()]
    target = f"/tmp/{name}.ko"  # noqa: S108 - in the guest
    guest.put(file, target)
    mark = guest.console.length()
    result = guest.run(["insmod", target, *arguments], time_limit=time_limit)
    if result.status == 0:
        return
    log = guest.run(["dmesg"]).text.splitlines()
    own = re.compile(rf"^(?:\[[ .0-9]+\] )?{re.escape(name)}: (.*)")
    messages = [line for line in log if own.match(line)][-5:]
    words = own.match(messages[-1]) if messages else None
    said = result.stderr.decode(errors="replace").strip()
    reason = words[1] if words else said
    guest.check_console(mark)
    if words is None and _WRONG_FORMAT in said.casefold():
        built_for = modinfo(file).get("vermagic", "unknown").strip()
        runs = guest.run(["uname", "-r", "-m"]).text.strip()
        reason = f"it was built for {built_for[:80]}, and the guest runs {runs}"
    raise RefusedError(name, reason, messages or _of_the_loader(log[-5:]))


def _of_the_loader(log: Sequence[str]) -> Sequence[str]:
    """The lines in which the kernel's loader names no module: what it was given is none for this processor.

    busybox tries it twice, by finit_module and by init_module; the same words are quoted once.
    """
    by_words = {line.partition("] ")[2]: line for line in log if _LOADER.search(line)}
    return list(by_words.values())


def unload(guest: Guest, name: str, *, time_limit: float = COMMAND_LIMIT) -> None:
    """Unload a module. Raises CommandFailed where the kernel keeps it, GuestOops where that has made it report."""
    mark = guest.console.length()
    try:
        guest.succeed(["rmmod", name], time_limit=time_limit)
    finally:
        guest.check_console(mark)


def insmod_word(key: str, value: str | int) -> str:
    """A module parameter as insmod takes it, in double quotes where the kernel could see spaces in it.

    Its isspace() takes the byte 0xa0 for one (lib/ctype.c), which is a part of many letters: of an à in UTF-8. Raises
    UsageError for a parameter that cannot be.
    """
    text = str(int(value) if isinstance(value, bool) else value)
    wrong = parameter_problem(key, text)
    if wrong is not None:
        raise UsageError(wrong)
    return f'{key}="{text}"' if " " in text or not text.isascii() else f"{key}={text}"
