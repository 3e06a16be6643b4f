# SPDX-License-Identifier: GPL-2.0-only
"""The guests of a test session: a test's machine, when guests start and end, and what is kept of them."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import GuestError, LabError
from orchestrator.guest.guest import Guest, State
from orchestrator.guest.machine import Machine
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.program import PROGRAM
from orchestrator.pytest_plugin.coverage import Coverage, GuestCoverage
from orchestrator.pytest_plugin.session import attempt, settings_given

_SHARED_MAX = 4
"""Guests kept for further tests; each holds its memory on the host while it idles."""

_ANSWER_LIMIT = 5.0
"""Host seconds for a shared guest to run ``true``, which takes some milliseconds."""

_REPRODUCE = "reproduce"
_STATE = ".guest"


class GuestPool:
    """Starts guests from the calling thread. Their logs go into ``directory``, and vmcores with ``keeps_cores``.

    ``coverage`` has what they execute.
    """

    def __init__(
        self, workshop: BuildContext, directory: Path, coverage: Coverage | None = None, *, keeps_cores: bool = False
    ) -> None:
        self._workshop, self._directory, self._coverage = workshop, directory, coverage
        self._keeps_cores = keeps_cores
        self._shared: dict[tuple[str, bool, Machine], TestedGuest] = {}  # the most recently used comes last
        self._single: list[TestedGuest] = []
        self._numbers = count(1)  # of guests, also those that were booted again

    def new(self, machine: Machine, kernel: Kernel, *, fresh: bool) -> TestedGuest:
        """A guest of this machine that nothing has used before; with ``fresh`` booted. Raises GuestError."""
        guest = self._start(machine, kernel, fresh=fresh)
        self._single.append(guest)
        return guest

    def shared(self, machine: Machine, kernel: Kernel, module: str, *, fresh: bool) -> TestedGuest:
        """The guest of this machine that a module's tests share; those that want a ``fresh`` one share another.

        Raises GuestError if a new one does not start.
        """
        for key in [key for key in self._shared if key[0] != module]:
            self._shared.pop(key).kill()
        guest = self._shared.pop((module, fresh, machine), None)
        if guest is not None and not _is_sound(guest):
            guest.kill()
            guest = None
        if guest is None:
            while len(self._shared) >= _SHARED_MAX:
                self._shared.pop(next(iter(self._shared))).kill()
            guest = self._start(machine, kernel, fresh=fresh)
        self._shared[module, fresh, machine] = guest
        return guest

    def rest(self, guest: TestedGuest) -> None:
        """Pause a shared guest until the next test: on the exact clock an idle guest keeps a core busy."""
        # A guest that cannot be paused is replaced when the next test needs it.
        with contextlib.suppress(GuestError):
            guest.pause()

    def keep(self, item: pytest.Item, guest: TestedGuest) -> None:
        """Write what a test's guest leaves into the test's folder, beside ``lab.log``, and let its debuggers go.

        The console's output during the test and QEMU's arguments; of a failed test's guest a vmcore, and with
        ``--qemu-keep`` its state, after which it has ended. The test's properties name the files, ``qemu_console``,
        ``qemu_arguments``, ``qemu_log``, ``qemu_core`` and ``qemu_state``, and the command that reproduces the test,
        ``qemu_reproduce``.
        """
        state = attempt(item)
        for attachment in state.debuggers:
            attachment.close()
        if state.log is not None:
            folder, name = state.log.parent, guest.console.path.stem
            console, arguments = folder / f"{name}.console", folder / f"{name}.arguments"
            console.write_text("".join(f"{line}\n" for line in guest.printed()), encoding="utf-8")
            arguments.write_text(shlex.join(guest.command_line) + "\n", encoding="utf-8")
            state.properties += [("qemu_console", str(console)), ("qemu_arguments", str(arguments))]
            if not (folder / _REPRODUCE).exists():
                command = reproducing_command(item)
                (folder / _REPRODUCE).write_text(command + "\n", encoding="utf-8")
                state.properties += [("qemu_log", str(state.log)), ("qemu_reproduce", command)]
        if guest.core_file is not None:
            if state.has_failed and state.log is not None:
                _keep_core(item, guest, state.log.with_name(guest.core_file.name), self._workshop.say)
            guest.core_file.unlink(missing_ok=True)
        if state.log is not None and state.has_failed and item.config.getoption("qemu_keep"):
            _keep_state(item, guest, state.log.with_name(f"{guest.console.path.stem}{_STATE}"), self._workshop.say)

    def retire(self, guest: TestedGuest) -> None:
        guest.kill()
        self._shared = {key: other_guest for key, other_guest in self._shared.items() if other_guest is not guest}
        self._single = [other_guest for other_guest in self._single if other_guest is not guest]

    def close(self) -> None:
        for guest in (*self._shared.values(), *self._single):
            guest.kill()
        self._shared, self._single = {}, []

    def _start(self, machine: Machine, kernel: Kernel, *, fresh: bool) -> TestedGuest:
        coverage = None
        if self._coverage is not None:
            machine = self._coverage.machine(self._workshop, kernel, machine)
            coverage = partial(GuestCoverage, self._coverage, kernel)
        names = (f"guest{number}-{machine.cpu.name}" for number in self._numbers)
        guest = TestedGuest(self._workshop, kernel, machine, self._directory, names, coverage)
        guest.keeps_core = self._keeps_cores
        guest.start(fresh=fresh)
        return guest


def _is_sound(guest: Guest) -> bool:
    try:
        if guest.state is State.PAUSED:
            guest.resume()
        if next(guest.console.reports(), None) is not None:
            return False
        return guest.run(["true"], time_limit=_ANSWER_LIMIT).status == 0
    except GuestError:
        return False


def _keep_core(item: pytest.Item, guest: TestedGuest, file: Path, say: Callable[[str], None]) -> None:
    """Leave a vmcore in the file; of a guest that has ended it is the one that was written then."""
    guest.keep_core()
    if guest.core_file is not None and guest.core_file.exists():
        shutil.move(guest.core_file, file)
        attempt(item).properties.append(("qemu_core", str(file)))
        say(f"{item.nodeid}: {guest.opening_command(file)}")


def _keep_state(item: pytest.Item, guest: TestedGuest, file: Path, say: Callable[[str], None]) -> None:
    """Save the guest's state, and end the guest. If that fails, a warning says why; the test's result stays."""
    from orchestrator.artifacts.kept_guests import keep_guest

    try:
        keep_guest(guest, file)
    except LabError as error:
        say(f"warning: {item.nodeid}: {guest.console.path.stem}: {error}")
        return
    attempt(item).properties.append(("qemu_state", str(file)))
    say(f"{item.nodeid}: {PROGRAM} shell --saved {shlex.quote(str(file))}")


def reproducing_command(item: pytest.Item) -> str:
    """A shell command that runs this test alone, with the guest that it had."""
    folder = str(item.config.rootpath)
    words = ["pytest", "--qemu", *settings_given(item.config), item.nodeid]
    here = Path.cwd() == item.config.rootpath
    return shlex.join(words) if here else f"cd {shlex.quote(folder)} && {shlex.join(words)}"
