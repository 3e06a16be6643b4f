# SPDX-License-Identifier: GPL-2.0-only
"""The guests of a test session: a test's machine, when guests start and end, and what is kept of them."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.artifacts.boot_files import disk_drivers
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.errors import GuestError, LabError, UsageError
from orchestrator.guest.console import report_patterns
from orchestrator.guest.guest import Guest, State, Watch
from orchestrator.guest.hub import Hub
from orchestrator.guest.machine import Machine
from orchestrator.library.guests import GUEST_ARGUMENTS, Expected, GuestOptions, guest_options
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.program import PROGRAM
from orchestrator.pytest_plugin.coverage import Coverage, GuestCoverage
from orchestrator.pytest_plugin.session import NO_CHOICES, OPTIONS, attempt, choose, merged, settings_given, unchosen
from orchestrator.run.guests import GuestStart, unwatched

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
        self._own: list[TestedGuest] = []
        self._started = 0

    def new(self, machine: Machine, kernel: Kernel, *, fresh: bool) -> TestedGuest:
        """A guest of this machine that nothing has used before; with ``fresh`` booted. Raises GuestError."""
        guest = self._start(machine, kernel, fresh=fresh)
        self._own.append(guest)
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
        self._own = [other_guest for other_guest in self._own if other_guest is not guest]

    def close(self) -> None:
        for guest in (*self._shared.values(), *self._own):
            guest.kill()
        self._shared, self._own = {}, []

    def _start(self, machine: Machine, kernel: Kernel, *, fresh: bool) -> TestedGuest:
        covering = None
        if self._coverage is not None:
            machine = self._coverage.machine(self._workshop, kernel, machine)
            covering = partial(GuestCoverage, self._coverage, kernel)

        def start(watch: Watch, *, fresh: bool = True) -> Guest:
            self._started += 1
            name = f"guest{self._started}-{machine.cpu.name}"

            def watched(guest: Guest) -> None:
                guest.core_file = self._directory / f"{name}.vmcore" if self._keeps_cores else None
                watch(guest)

            return GuestStart(self._workshop, machine, self._directory, name, watched).guest(fresh=fresh)

        guest = TestedGuest(self._workshop, kernel, start(unwatched, fresh=fresh), start, covering)
        guest.join_network()
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


def read_marks(settings: Mapping[str, Any], marks: Sequence[pytest.Mark], chosen: Mapping[str, Any]) -> GuestOptions:
    """The options in a test's ``guest`` marks, nearest first, which override the session's ``settings``.

    ``chosen`` has the test's value for each list in a mark. Raises UsageError for unknown names or values.
    """
    if any(mark.args for mark in marks):
        raise UsageError("arguments are given by name", hint="for example guest(cpu='pentium4')")
    for name, value in settings.items():
        try:
            checked({name: value})
        except UsageError as error:
            where = f"option --qemu-{name}, or setting qemu_{name}"
            raise UsageError(error.what, where=where, hint=error.hint) from None
    arguments = merged(marks)
    for name in unchosen(arguments, chosen):
        if name in GUEST_ARGUMENTS:
            what = "a list makes a test for each value, and pytest has made one test"
            hint = "name one value here, or move the test into a plain class: a unittest.TestCase has no parameters"
            raise UsageError(f"{name}: found {arguments[name]!r}; {what}", hint=hint)
    return checked({**settings, **choose(arguments, chosen)})


def read_expected_reports(marks: Sequence[pytest.Mark]) -> Expected:
    """The reports that a test's ``allow_oops`` marks permit. Raises UsageError as ``report_patterns`` does."""
    for mark in marks:
        if not mark.args or mark.kwargs:
            raise UsageError("regular expressions are expected", hint="for example allow_oops('WARNING: .* my_init')")
    return report_patterns(regex for mark in marks for regex in mark.args)


def check_no_arguments(marks: Sequence[pytest.Mark]) -> None:
    """Raise UsageError for arguments of a test's ``qemu`` marks."""
    if any(mark.args or mark.kwargs for mark in marks):
        raise UsageError("takes no arguments", hint="those of a guest are in the mark guest: guest(cpu='pentium4')")


def checked(arguments: Mapping[str, Any]) -> GuestOptions:
    """The options in the arguments of marks. Raises UsageError for unknown names or values, and for an empty list."""
    for name, value in arguments.items():
        if name in GUEST_ARGUMENTS and name not in NO_CHOICES and isinstance(value, list | tuple) and not value:
            raise UsageError(f"{name}: found an empty list; expected a value, or a list with a value for each test")
    return guest_options(arguments)


_NEEDED = ("CONFIG_VIRTIO_NET", "CONFIG_INET")


class GuestFactory:
    """Boots guests. Made by the fixture ``guest_factory``.

    ``arguments`` are those of the test's mark; ``begin`` is called with each guest.
    """

    def __init__(
        self,
        workshop: BuildContext,
        pool: GuestPool,
        arguments: Mapping[str, Any],
        begin: Callable[[TestedGuest], None],
    ) -> None:
        self._workshop, self._pool = workshop, pool
        self._arguments, self._begin = arguments, begin
        self._hub = Hub()
        self.guests: list[TestedGuest] = []

    def __call__(self, **arguments: Any) -> TestedGuest:
        """Boot another guest; ``arguments`` are those of the mark, and override its own.

        All guests of a test run at the same time, on the plain clock, on a network of their own. ``address`` is a
        guest's IPv4 address there. Raises UsageError for an impossible guest, GuestError if it does not boot.
        """
        options = checked({**self._arguments, **arguments})
        if options.timing == "instructions":
            raise UsageError("guests on a network run on the plain clock: timing 'auto', 'tcg' or 'kvm'")
        kernel = ready_kernel(self._workshop, options.kernel)
        lacking = [option for option in _NEEDED if kernel.config.get(option, "n") not in ("y", "m")]
        if lacking:
            raise UsageError(f"kernel '{kernel.spec.name}' does not support a network: it lacks {', '.join(lacking)}")
        lan = self._hub.next_lan()
        drivers = disk_drivers(self._workshop, kernel)
        machine = replace(options.machine(self._workshop, kernel), lan=lan, disk_drivers=drivers)
        guest = self._pool.new(machine, kernel, fresh=True)
        self.guests.append(guest)
        self._begin(guest)
        return guest

    def close(self) -> None:
        for guest in self.guests:
            self._pool.retire(guest)
        self._hub.close()


def _keep_core(item: pytest.Item, guest: TestedGuest, file: Path, say: Callable[[str], None]) -> None:
    """Leave a vmcore in the file; of a guest that has ended it is the one that was written then."""
    guest.keep_core()
    if guest.core_file is not None and guest.core_file.exists():
        shutil.move(guest.core_file, file)
        attempt(item).properties.append(("qemu_core", str(file)))
        say(f"{item.nodeid}: {guest.opening_command(file)}")


def _keep_state(item: pytest.Item, guest: TestedGuest, file: Path, say: Callable[[str], None]) -> None:
    """Save the guest's state, and end the guest. If that fails, a warning says why; the test's result stays."""
    from orchestrator.artifacts.saved_guests import keep_guest

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


# Listing the guests of a session: ``--qemu-list``.

_HEADINGS = ("tests", "kernel", "cpu", "smp", "memory", "timing", "image", "channel", "start")


def guest_lines(items: Sequence[pytest.Item]) -> Iterator[str]:
    """The lines of a table: each machine, how tests get it, and the number of tests."""
    marked = [(item.stash[OPTIONS], set(getattr(item, "fixturenames", ()))) for item in items if OPTIONS in item.stash]
    counts = Counter(row for options, fixtures in marked for row in _rows(options, fixtures))
    rows = [_HEADINGS, *((str(count), *row) for row, count in counts.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    further = sum("_guest_choice" not in fixtures for _, fixtures in marked)
    if further:
        yield f"{further} more tests start guests by themselves"


def _rows(options: GuestOptions, fixtures: Set[str]) -> Iterator[tuple[str, ...]]:
    hardware = (options.kernel.name, options.cpu.name, str(options.smp), f"{options.memory}M", options.timing)
    for start in _starts(fixtures, fresh=options.fresh):
        yield (*hardware, options.image or "-", options.channel, start)


def _starts(fixtures: Set[str], *, fresh: bool) -> Iterator[str]:
    """How a test with these fixtures gets guests. Another fixture may request one at run time."""
    named = fixtures & {"guest", "shared_guest", "guest_factory", "_tests_guest"}
    if "_guest_choice" in fixtures and not named:
        yield "if a fixture asks"
    if "shared_guest" in fixtures:
        yield "shared, booted" if fresh else "shared"
    if "guest" in fixtures or ("_tests_guest" in fixtures and "shared_guest" not in fixtures):
        yield "booted" if fresh else "clean"
    if "guest_factory" in fixtures:
        yield "several, booted"
