# SPDX-License-Identifier: GPL-2.0-only
"""A guest as tests and programs see it: a tester's verbs, and a watch over its kernel."""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_source import Value
from orchestrator.artifacts.modules import check_parameter_names, user_modules
from orchestrator.artifacts.opening_cores import opening_command
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import GuestError, GuestExit, GuestHang, HostError
from orchestrator.guest.channel import COMMAND_LIMIT, Stream
from orchestrator.guest.console import REPORTS_MAX, plain_lines
from orchestrator.guest.debugger import DebuggerStub
from orchestrator.guest.diagnosis import trouble_of
from orchestrator.guest.guest import END_OF_LOG, Guest, State
from orchestrator.guest.kernel_reports import Trouble, line_pattern, report_patterns
from orchestrator.guest.machine import Machine
from orchestrator.guest.taint import taint_mask
from orchestrator.library.module_coverage import ModuleCoverage
from orchestrator.probes import loading
from orchestrator.probes.symbols import ModuleMemory
from orchestrator.run.debugging import Debugging, check_gdb
from orchestrator.run.guest_start import start_guest
from orchestrator.steps import step

_MOST_BYTES = 64 << 20
"""Console bytes to search for a line: a guest that prints endlessly is given up."""


def _behind(guest: Guest, line: str, mark: int) -> int:
    """The mark after a line that was printed since ``mark``."""
    with guest.console.path.open("rb") as file:
        file.seek(mark)
        for raw in file:
            mark += len(raw)
            if plain_lines(raw) == [line]:
                return mark
    return mark


_TERMINAL = Path("/dev/tty")
"""The terminal itself, as pytest has taken standard input and output."""

_LINE_LIMIT = 24 * 3600.0


@dataclass(frozen=True)
class LoadedModule:
    """A loaded module: its name in the kernel, its .ko on the host, and its dependencies that were loaded before."""

    guest: Guest
    """The guest in which it is loaded."""
    name: str
    """Its name in the kernel, as in ``/proc/modules``."""
    file: Path
    """Its .ko on the host."""
    needed: tuple[str, ...] = ()
    """The names of the modules that were loaded before it, in order."""

    def parameter(self, name: str) -> str:
        """A parameter's current value. Raises GuestError if it does not exist or cannot be read."""
        return self.guest.get(self._file(name)).decode("utf-8", errors="replace").removesuffix("\n")

    def set_parameter(self, name: str, value: str | int) -> None:
        """Change a parameter. Raises GuestError if the module refuses the value."""
        self.guest.put(str(value).encode(), self._file(name))

    def _file(self, name: str) -> str:
        return f"/sys/module/{self.name}/parameters/{name}"


_PRINTED_LINES = 1000
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TestedGuest(Guest):
    """A guest with the verbs of a tester. Made by the fixtures, and by ``Lab.guest``.

    Verbs that run or copy something take a ``time_limit`` in host seconds. No verb uses a shell unless ``argv`` names
    one.
    """

    __test__ = False  # the name would make pytest collect it

    def __init__(
        self,
        workshop: BuildContext,
        kernel: Kernel,
        machine: Machine,
        directory: Path,
        names: Iterator[str],
        coverage: Callable[[Guest], ModuleCoverage] | None = None,
    ) -> None:
        super().__init__(machine, directory, next(names))
        self._workshop, self._kernel, self._names = workshop, kernel, names
        self.keeps_core = False  # of each of its lives that ends badly
        self._make_coverage = coverage
        self._coverage: ModuleCoverage | None = None
        self._folder = Path()
        self._allowed: Sequence[re.Pattern[str]] = ()  # from the test's mark
        self._announced: list[re.Pattern[str]] = []  # further reports that the test expects
        self._mark = self._seen = self._taint = 0  # console lengths, and the kernel's taint at the test's start

    @property
    def folder(self) -> Path:
        """The folder of the test's file, to which paths of modules and programs are relative."""
        return self._folder

    @property
    def address(self) -> str | None:
        """The guest's IPv4 address on the private network of ``guest_factory``."""
        return None if self.machine.lan is None else self.machine.lan.address

    def load(
        self,
        path: str | Path,
        parameters: Mapping[str, str | int] = _NOTHING,
        *,
        name: str | None = None,
        values: Mapping[str, Value] = _NOTHING,
        time_limit: float = COMMAND_LIMIT,
    ) -> LoadedModule:
        """Build a module for the guest's kernel and load it with ``parameters``; it stays loaded.

        ``path``, relative to the test's folder, is a C file, a template (``.c.j2``, rendered with ``values``), a .ko,
        or a folder with a Kbuild (``values`` are variables for make; ``name`` selects one of several modules). Raises
        BuildError, UsageError for a parameter that the module lacks, and RefusedError with the module's own words if
        the kernel refuses it.
        """
        place = self._folder / path
        *needed, module = user_modules(self._workshop, self._kernel, place, name=name, values=values)
        check_parameter_names(module, parameters)
        with contextlib.ExitStack() as undo:
            for kernel_module in (*needed, module):
                assigned = parameters if kernel_module is module else _NOTHING
                with (
                    contextlib.nullcontext() if self._coverage is None else self._coverage.loading(kernel_module, place)
                ):
                    loading.load(
                        self,
                        kernel_module.name,
                        kernel_module.file,
                        parameters=assigned,
                        time_limit=time_limit,
                        insmod=loading.WATCHED,
                    )
                undo.callback(self.unload, kernel_module.name, time_limit=time_limit)
            undo.pop_all()
        return LoadedModule(self, module.name, module.file, tuple(other_module.name for other_module in needed))

    def unload(self, module: LoadedModule | str, *, time_limit: float = COMMAND_LIMIT) -> None:
        """Unload a module and its dependencies, given ``load``'s result, or one module by name.

        Raises CommandFailed if the kernel keeps it because it is in use.
        """
        names = [module] if isinstance(module, str) else [module.name, *reversed(module.needed)]
        for name in names:
            loading.unload(self, name, time_limit=time_limit)
            if self._coverage is not None:
                self._coverage.unloaded(name)

    def kill(self) -> None:
        """End the guest immediately. Does nothing if it is off or gone."""
        super().kill()
        if self._coverage is not None:
            self._coverage.end()
        self._coverage = None

    def dmesg(self) -> str:
        """The kernel's log as text: everything in its buffer, all levels."""
        return self.succeed(["dmesg"]).text

    def wait_for_line(self, regex: str, *, time_limit: float = COMMAND_LIMIT) -> str:
        """Wait for a console line in which ``regex`` is found, and return it.

        Searches what was printed since the test began, or after the line found last. Raises GuestHang after
        ``time_limit`` host seconds without output.
        """
        pattern = line_pattern(regex)
        with step("wait for line", regex), self.awake():
            for lines, mark in self.console.followed(self._seen, time_limit, _MOST_BYTES, lambda: self.pid is None):
                for line in lines:
                    if pattern.search(line):
                        self._seen = _behind(self, line, mark)
                        return line
            if self.pid is None:
                what = f"the guest is gone, and printed no line with {regex!r}"
                raise GuestExit(what, detail=self.console.last_lines())
            raise GuestHang(
                f"no line with {regex!r}, and nothing printed for {time_limit:g} s",
                where=str(self.console.path),
                detail=self.console.last_lines(),
            )

    def _printing(self, silence: float) -> Iterator[None]:
        with self.awake():
            yield from self.console.printing(silence, lambda: self.pid is None)

    def printed(self) -> list[str]:
        """The last thousand console lines since the test began."""
        lines: deque[str] = deque(maxlen=_PRINTED_LINES)
        mark, end = self._mark, self.console.length()
        while mark < end:
            printed, after = self.console.whole_lines(mark)
            lines.extend(printed)
            if after == mark:
                break
            mark = after
        return [line for line in lines if END_OF_LOG not in line]

    @contextlib.contextmanager
    def expect_oops(self, regex: str, *, time_limit: float = COMMAND_LIMIT) -> Iterator[None]:
        """Expect the kernel to report an oops, BUG, warning or the like that matches ``regex``, and to survive.

        The block may raise what the oops did to its commands. Raises GuestError if there is no such report after
        ``time_limit`` seconds without output.
        """
        (pattern,) = report_patterns([regex])
        self._announced.append(pattern)
        mark, failure = self.console.length(), None
        try:
            yield
        except GuestError as error:
            failure = error  # an oops may kill the command that caused it
        for _ in self._printing(time_limit):
            if any(report.is_expected([pattern]) for report in islice(self.console.reports(mark), REPORTS_MAX)):
                if self.state is State.READY:
                    self.drain_console()  # the rest of the report belongs to this test
                return
        raise failure or self._missing(f"reported nothing with {regex!r}")

    @contextlib.contextmanager
    def expect_panic(self, regex: str = ".", *, time_limit: float = COMMAND_LIMIT) -> Iterator[None]:
        """Expect the kernel to panic with a report that matches ``regex``. The guest is then gone: ``reboot()``.

        Raises GuestError if the guest survives.
        """
        pattern = line_pattern(regex)
        self._announced.append(re.compile("."))  # also the oops that led to it
        mark, failure = self.console.length(), None
        try:
            yield
        except GuestError as error:
            failure = error
        for _ in self._printing(time_limit):
            pass
        reports = list(islice(self.console.reports(mark), REPORTS_MAX))
        has_panicked = any(report.trouble is Trouble.PANIC for report in reports)
        if not has_panicked or not any(report.is_expected([pattern]) for report in reports):
            raise failure or self._missing(f"not panicked with {regex!r}")
        self.kill()

    def _missing(self, what: str) -> GuestError:
        what = f"the guest's kernel has {what}"
        return GuestError(what, where=str(self.console.path), detail=self.console.last_lines())

    def reboot(self) -> None:
        """Replace the guest by a newly booted one of the same machine; its memory and disk changes are lost.

        Raises GuestOops if the kernel had reported unexpected trouble.
        """
        with step("reboot"):
            self.check_kernel()
            self.kill()
            if self.core_file is not None:
                self.core_file.unlink(missing_ok=True)
            self.renew(next(self._names))
            self.start(fresh=True)
            self._watch()

    def opening_command(self, core: Path) -> str:
        """The command that opens a vmcore of this guest."""
        return opening_command(self._workshop, self._kernel, core)

    def wait_for_debugger(self) -> DebuggerStub:
        """Stop the guest and wait for gdb. Raises HostError without gdb, or in a worker of pytest-xdist."""
        _check_terminal()
        check_gdb()
        attachment = Debugging(self._workshop, self._kernel, (), self._workshop.say).attach(self)
        attachment.wait_until_attached()
        return attachment

    def start(self, *, fresh: bool) -> None:
        """Restore it if possible, or boot it (always with ``fresh``), and give it its address on its private network.

        Raises GuestError, HostError.
        """
        self.core_file = self.directory / f"{self.name}.vmcore" if self.keeps_core else None
        start_guest(self._workshop, self, fresh=fresh)
        if self._make_coverage is not None:
            self._coverage = self._make_coverage(self)
        self._join_network()

    def _join_network(self) -> None:
        if self.machine.lan is None:
            return
        try:
            result = self.succeed(["sh", "-c", 'grep -lx "$1" /sys/class/net/*/address', "sh", self.machine.lan.mac])
            device = result.text.split("/")[4]
            self.succeed(["ip", "addr", "add", f"{self.machine.lan.address}/24", "dev", device])
            self.succeed(["ip", "link", "set", device, "up"])
        except BaseException:
            self.kill()
            raise

    def begin_test(self, folder: Path, expected: Sequence[re.Pattern[str]]) -> None:
        """Begin a test in ``folder``: kernel reports from now on count, except ``expected`` ones."""
        self._folder, self._allowed = folder, expected
        self._watch()

    def has_reported(self) -> bool:
        """Whether the kernel has reported trouble since the test began, expected or not."""
        return next(self.console.reports(self._mark), None) is not None

    def check_kernel(self) -> None:
        """Raise GuestOops if, since the test began, the kernel has reported trouble or become tainted by it.

        A guest that has ended by itself, or does not answer, raises GuestError, unless a verb has raised that already.
        """
        was_lost = self.has_failed
        self.drain_console()
        reports = self.reports(self._mark)
        expected = [*self._allowed, *self._announced]
        unexpected = [report for report in reports if not report.is_expected(expected)]
        if unexpected:
            raise trouble_of(unexpected, self.console.path)
        if was_lost or any(report.trouble is Trouble.PANIC for report in reports):
            return
        self.check_alive("the test ran")
        self.check_taint(self._taint, has_reported=bool(reports))

    def _watch(self) -> None:
        self._announced.clear()
        self._mark = self._seen = self.console.length()
        if self.state is State.READY and self.pid is not None:
            self._taint = taint_mask(self)

    def interact(self) -> None:
        """Give the user a prompt whose lines a shell in the guest runs, until ``exit`` or Ctrl-D.

        Raises HostError if there is no terminal, as in a pytest-xdist worker.
        """
        _check_terminal()
        try:
            with _TERMINAL.open() as lines, _TERMINAL.open("w") as out:
                self._converse(lines, out)
        except OSError as error:
            raise HostError(f"there is no terminal for a prompt in the guest: {error.strerror}") from None

    def _converse(self, lines: TextIO, out: TextIO) -> None:
        def show(stream: Stream, data: bytes) -> None:
            del stream  # one terminal shows both
            print(data.decode("utf-8", errors="replace"), end="", file=out, flush=True)

        print(f"\nguest {self.console.path.stem}; its console: {self.console.path}; `exit` continues", file=out)
        while True:
            print("guest# ", end="", file=out, flush=True)
            line = lines.readline()
            if not line or line.strip() == "exit":
                print(file=out, flush=True)
                return
            try:  # each line has a shell of its own
                self.run(["sh", "-c", line], time_limit=_LINE_LIMIT, listener=show)
            except GuestError as error:
                print(f"{type(error).__name__}: {error}", file=out, flush=True)


def _check_terminal() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        raise HostError("a worker of pytest-xdist has no terminal", hint="run this test with -n 0")


class KernelModules:
    """Builds and loads modules. Made by the fixture ``kmod``."""

    def __init__(self, guest: TestedGuest) -> None:
        self._guest = guest
        self._loaded: list[LoadedModule] = []

    def __call__(
        self,
        path: str | Path,
        parameters: Mapping[str, str | int] = _NOTHING,
        *,
        name: str | None = None,
        values: Mapping[str, Value] = _NOTHING,
    ) -> LoadedModule:
        """Build and load a module, as ``load`` of the guest does."""
        module = self._guest.load(path, parameters, name=name, values=values)
        self._loaded.append(module)
        return module

    def unload_all(self) -> None:
        """Unload the remaining modules, last first. Raises CommandFailed for a module that is in use.

        Does nothing if the guest is gone or its kernel has reported trouble: no other test gets it.
        """
        if self._guest.state is not State.READY or self._guest.pid is None or self._guest.has_reported():
            return
        there = ModuleMemory.all_of(self._guest)
        for module in reversed(self._loaded):
            for name in (module.name, *reversed(module.needed)):
                if name in there:
                    self._guest.unload(name)
