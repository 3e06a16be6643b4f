# SPDX-License-Identifier: GPL-2.0-only
"""Loading a module into a guest's kernel, with the reason if it was refused, and unloading it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from orchestrator.catalog.probes import parameter_problem
from orchestrator.catalog.user_files import modinfo
from orchestrator.errors import CommandTimeout, EvidenceError, GuestError, GuestHang, UsageError
from orchestrator.guest.blame import culprit_of, interrupted_at
from orchestrator.guest.channel import COMMAND_LIMIT
from orchestrator.guest.guest import END_OF_LOG, Guest
from orchestrator.guest.interruption import is_stopped

_WRONG_FORMAT = "invalid module format"
"""insmod's message for ENOEXEC: the module is for another kernel, or another configuration of this one."""

_TAINTS = re.compile(r"(loading out-of-tree module|module license '[^']*'|module verification failed: .*) ?-? ?tain")
"""The kernel's messages about a module that it does load (kernel/module/main.c)."""

_SILENT = "insmod only translates the error number: have the module's init function print why it fails, with pr_err()"

_ENDLESS = (
    "an init function must return: look at its loops, and at what it waits for where the CPU is idle; one that is only "
    "slow gets more time by `time_limit:` of an experiment, --timeout of exec"
)

WATCHED = ("sh", "-c", 'insmod "$@"; exit $?', "insmod")
"""Runs insmod in a shell that can be killed, so that the agent answers even if the init function does not return. It is
an additional process, which cells of an experiment avoid."""
_STACK = "for task in $(grep -lx insmod /proc/[0-9]*/comm); do echo && cat ${task%comm}stack; done"
_RUNNING = "echo l >/proc/sysrq-trigger"
"""Makes the kernel print where each CPU is (drivers/tty/sysrq.c), as a running task has no stack in /proc."""

_OTHERS = re.compile(rf"taint|{END_OF_LOG}|^$")
"""Matches console lines that no module prints."""

_LOADER = re.compile(r"\b(ELF|module|Module|Lockdown)\b")


class RefusedError(EvidenceError):
    """The guest's kernel or the module itself refused the module; ``reason`` is the module's own message."""

    def __init__(self, name: str, reason: str, detail: Sequence[str], hint: str = "") -> None:
        super().__init__(f"module {name} was not accepted by the guest's kernel: {reason}", detail=detail, hint=hint)
        self.reason = reason


def load(
    guest: Guest,
    name: str,
    file: Path,
    *,
    parameters: Mapping[str, str | int] = MappingProxyType({}),
    time_limit: float = COMMAND_LIMIT,
    insmod: Sequence[str] = ("insmod",),
) -> None:
    """Load a module from a host file. Raises RefusedError with its own message from the log, or GuestOops.

    ``time_limit`` is in host seconds, for the module's init function. When it is exceeded, raises CommandTimeout if the
    guest still answers, else GuestHang. Raises UsageError for invalid parameters. ``insmod`` may be ``WATCHED``.
    """
    arguments = [insmod_word(key, value) for key, value in parameters.items()]
    target = f"/tmp/{name}.ko"  # noqa: S108 - in the guest
    guest.put(file, target)
    mark = guest.console.length()
    try:
        result = guest.run([*insmod, target, *arguments], time_limit=time_limit)
    except (GuestHang, CommandTimeout) as error:
        if isinstance(error, CommandTimeout) and (lines := _where_it_is(guest)):
            culprit = culprit_of(lines)
            error.what = f"insmod did not end within {time_limit:g} s" + (f"; it is in {culprit}" if culprit else "")
            error.detail = tuple(lines)
        if guest.pid is None or not is_stopped(guest.pid):
            error.what = f"the init function of module {name} has not returned: {error.what}"
            error.hint = _ENDLESS
        raise
    if result.status == 0:
        return
    log = guest.run(["dmesg"]).text.splitlines()
    pattern = re.compile(rf"^(?:\[[ .0-9]+\] )?{re.escape(name)}: (.*)")
    messages = _once([line for line in log if (match := pattern.match(line)) and not _TAINTS.match(match[1])])[-5:]
    words = pattern.match(messages[-1]) if messages else None
    said = result.stderr.decode(errors="replace").strip()
    reason = words[1] if words else said
    guest.check_console(mark)
    if words is None and _WRONG_FORMAT in said.casefold():
        built_for = modinfo(file).get("vermagic", "unknown").strip()
        runs = guest.run(["uname", "-r", "-m"]).text.strip()
        reason = f"it was built for {built_for[:80]}, and the guest runs {runs}"
    # The loader's message lacks the module's name if the module is for another processor.
    messages = messages or _once([line for line in log[-5:] if _LOADER.search(line) and "taint" not in line])
    # A module's own message has its name only if it defines pr_fmt(); the console has what was printed meanwhile.
    if not messages:
        guest.drain_console()
        lines = guest.console.whole_lines(mark)[0]
        messages = _once([line for line in lines if not _OTHERS.search(line)])[-5:]
    silent = not messages and _WRONG_FORMAT not in said.casefold()
    raise RefusedError(name, reason, messages, hint=_SILENT if silent else _of_list(reason, parameters))


def _where_it_is(guest: Guest) -> Sequence[str]:
    """Kernel lines that show where an unfinished insmod is; empty if it has ended."""
    lines: Sequence[str] = ()
    with contextlib.suppress(GuestError):
        # As in a call trace, where frames are indented by a space.
        lines = [f" {line}" for line in guest.run(["sh", "-c", _STACK]).text.splitlines()]
        if lines and not any(map(str.strip, lines)):
            mark = guest.console.length()
            guest.run(["sh", "-c", _RUNNING])
            guest.drain_console()
            lines = interrupted_at(guest.console.whole_lines(mark)[0])
    return [line for line in lines if line.strip()]


def _of_list(reason: str, parameters: Mapping[str, str | int]) -> str:
    """A hint for a list of which the kernel quotes only the first value (it ends the text there: kernel/params.c)."""
    match = re.fullmatch(r"`(.*)' invalid for parameter `(.*)'", reason)
    given = "" if match is None else str(parameters.get(match[2], ""))
    if match is None or not given.startswith(f"{match[1]},"):
        return ""
    return f"the kernel quotes the first value alone: {match[2]}={given} has too many values, or a wrong one"


def _once(lines: Sequence[str]) -> list[str]:
    """A kernel log's lines without repetitions: busybox tries to load a module twice."""
    return list({re.sub(r"^\[[ .0-9]+\] ", "", line): line for line in lines}.values())


def unload(guest: Guest, name: str, *, time_limit: float = COMMAND_LIMIT) -> None:
    """Unload a module. Raises CommandFailed if the kernel keeps it, GuestOops if it reported trouble."""
    mark = guest.console.length()
    try:
        guest.succeed(["rmmod", name], time_limit=time_limit)
    finally:
        guest.check_console(mark)


def insmod_word(key: str, value: str | int) -> str:
    """A module parameter for insmod, in double quotes if the kernel might see spaces in it.

    The kernel's isspace() accepts the byte 0xa0 (lib/ctype.c), which is part of many letters, such as à in UTF-8.
    Raises UsageError for an invalid parameter.
    """
    text = str(int(value) if isinstance(value, bool) else value)
    wrong = parameter_problem(key, text)
    if wrong is not None:
        raise UsageError(wrong)
    return f'{key}="{text}"' if " " in text or not text.isascii() else f"{key}={text}"
