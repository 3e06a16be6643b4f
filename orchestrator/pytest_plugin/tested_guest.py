# SPDX-License-Identifier: GPL-2.0-only
"""A guest as a test has it: the verbs of a tester, and a watch over its kernel."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_parameters import check_parameter_names
from orchestrator.artifacts.module_source import Value
from orchestrator.artifacts.user_modules import user_modules
from orchestrator.guest.channel import COMMAND_LIMIT
from orchestrator.guest.diagnosis import trouble_of
from orchestrator.guest.end_of_log import END_OF_LOG
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_reports import Trouble
from orchestrator.guest.life import State
from orchestrator.guest.machine import Machine
from orchestrator.guest.taint import taint_mask
from orchestrator.probes import loading
from orchestrator.pytest_plugin import expectations
from orchestrator.pytest_plugin.interaction import converse
from orchestrator.pytest_plugin.loaded_module import LoadedModule
from orchestrator.steps import step

_ANYTHING = re.compile(".")
_PRINTED_LINES = 1000
_NOTHING: Mapping[str, str | int] = MappingProxyType({})
_NO_VALUES: Mapping[str, Value] = MappingProxyType({})


@dataclass
class _Test:
    """What a guest has to know of the test that has it. ``mark`` and ``seen`` are lengths of its console.

    ``allowed`` is what its mark permits the kernel to report, ``expected`` what the test has announced besides.
    """

    workshop: BuildContext
    kernel: Kernel
    start: Callable[[Machine], Guest]
    folder: Path = field(default_factory=Path)
    allowed: Sequence[re.Pattern[str]] = ()
    expected: list[re.Pattern[str]] = field(default_factory=list)
    mark: int = 0
    seen: int = 0
    taint: int = 0


class TestedGuest(Guest):
    """A guest in a test. Made by the fixtures.

    Each verb that runs or moves something takes a ``time_limit`` in seconds of the host. Nothing goes through a shell
    unless ``argv`` names one.
    """

    __test__ = False  # pytest takes a class of this name for one of tests

    def __init__(
        self, running: Guest, workshop: BuildContext, kernel: Kernel, start: Callable[[Machine], Guest]
    ) -> None:
        self._adopt(running, _Test(workshop, kernel, start))

    def _adopt(self, running: Guest, test: _Test) -> None:
        """Be a guest that runs already: whoever started it decided whether it was booted or restored."""
        self.__dict__ = running.__dict__
        self._test = test

    @property
    def folder(self) -> Path:
        """The folder of the test's file: paths of modules and programs are relative to it."""
        return self._test.folder

    @property
    def address(self) -> str | None:
        """The guest's IPv4 address on the private network of ``guest_factory``."""
        return None if self.machine.lan is None else self.machine.lan.address

    # --- modules ----------------------------------------------------------------------------------

    def load(
        self,
        path: str | Path,
        parameters: Mapping[str, str | int] = _NOTHING,
        *,
        name: str | None = None,
        values: Mapping[str, Value] = _NO_VALUES,
        time_limit: float = COMMAND_LIMIT,
    ) -> LoadedModule:
        """Build a module for the guest's kernel and load it with ``parameters``; the module is not unloaded.

        ``path``, relative to the test's folder, is a C file, a template (``.c.j2``, rendered with ``values``), a .ko,
        or a folder with a Kbuild (``values`` are variables for make; ``name`` chooses one of several modules). Raises
        BuildError, UsageError for a parameter that the module has not got, and RefusedError with the module's own words
        where the kernel does not take it.
        """
        place = self._test.folder / path
        *needed, module = user_modules(self._test.workshop, self._test.kernel, place, name=name, values=values)
        check_parameter_names(module, parameters)
        with contextlib.ExitStack() as undo:
            for other in needed:
                loading.load(self, other.name, other.file, time_limit=time_limit, insmod=loading.WATCHED)
                undo.callback(loading.unload, self, other.name, time_limit=time_limit)
            loading.load(
                *(self, module.name, module.file),
                parameters=parameters,
                time_limit=time_limit,
                insmod=loading.WATCHED,
            )
            undo.pop_all()
        return LoadedModule(self, module.name, module.file, tuple(other.name for other in needed))

    def unload(self, module: LoadedModule | str, *, time_limit: float = COMMAND_LIMIT) -> None:
        """Unload a module, by what ``load`` gave, with the modules that it needed, or by its name.

        Raises CommandFailed where the kernel keeps it, because it is in use.
        """
        names = [module] if isinstance(module, str) else [module.name, *reversed(module.needed)]
        for name in names:
            loading.unload(self, name, time_limit=time_limit)

    # --- the kernel's log -------------------------------------------------------------------------

    def dmesg(self) -> str:
        """The kernel's log, as text: what its buffer has kept since the boot, all levels."""
        return self.succeed(["dmesg"]).text

    def wait_for_line(self, regex: str, *, time_limit: float = COMMAND_LIMIT) -> str:
        """Wait for a line on the console in which ``regex`` is found; returns it.

        Looks at what was printed since the test began, or behind the line found last. Raises GuestHang when nothing is
        printed for ``time_limit`` seconds of the host.
        """
        with step("wait for line", regex):
            line, self._test.seen = expectations.wait_for_line(self, regex, self._test.seen, time_limit)
        return line

    def printed(self) -> list[str]:
        """The lines that were printed on the console since the test began, the last thousand of them."""
        lines: deque[str] = deque(maxlen=_PRINTED_LINES)
        mark, end = self._test.mark, self.console.length()
        while mark < end:
            found, after = self.console.whole_lines(mark)
            lines.extend(found)
            if after == mark:
                break
            mark = after
        return [line for line in lines if END_OF_LOG not in line]

    # --- trouble ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def expect_oops(self, regex: str, *, time_limit: float = COMMAND_LIMIT) -> Iterator[None]:
        """Expect the kernel to report an oops, BUG, warning or the like in which ``regex`` is found, and to live on.

        The block may fail with what the oops did to its commands. Raises GuestError when there is no such report until
        nothing was printed for ``time_limit`` seconds.
        """
        with expectations.expect_oops(self, regex, time_limit) as pattern:
            self._test.expected.append(pattern)
            yield

    @contextlib.contextmanager
    def expect_panic(self, regex: str = ".", *, time_limit: float = COMMAND_LIMIT) -> Iterator[None]:
        """Expect the kernel to panic with a report in which ``regex`` is found. The guest is gone then: ``reboot()``.

        Raises GuestError when the guest lives on.
        """
        with expectations.expect_panic(self, regex, time_limit):
            self._test.expected.append(_ANYTHING)  # the oops that led to it as well
            yield

    def reboot(self) -> None:
        """End the guest and boot one of the same machine in its place: what was in memory and on its disk is gone.

        Raises GuestOops where the kernel had reported trouble that was not expected.
        """
        with step("reboot"):
            self.check_kernel()
            self.kill()
            self._adopt(self._test.start(self.machine), self._test)
            self._watch()

    def begin_test(self, folder: Path, expected: Sequence[re.Pattern[str]]) -> None:
        """Begin a test in ``folder``: what the kernel reports from now on counts, but for what is ``expected``."""
        self._test.folder, self._test.allowed = folder, expected
        self._watch()

    def has_reported(self) -> bool:
        """Whether the kernel has reported trouble since the test began, expected or not."""
        return next(self.console.reports(self._test.mark), None) is not None

    def check_kernel(self) -> None:
        """Raise GuestOops where, since the test began, the kernel has reported trouble or become tainted by it.

        A guest that has ended by itself, or does not answer, raises GuestError, unless a verb has raised that before.
        """
        was_lost = self.has_failed
        self.drain_console()
        reports = self.reports(self._test.mark)
        expected = [*self._test.allowed, *self._test.expected]
        unexpected = [report for report in reports if not report.is_expected(expected)]
        if unexpected:
            raise trouble_of(unexpected, self.console.path)
        if was_lost or any(report.trouble is Trouble.PANIC for report in reports):
            return
        self.check_alive("the test ran")
        self.check_taint(self._test.taint, has_reported=bool(reports))

    def _watch(self) -> None:
        self._test.expected.clear()
        self._test.mark = self._test.seen = self.console.length()
        if self.state is State.READY and self.pid is not None:
            self._test.taint = taint_mask(self)

    # --- a person ---------------------------------------------------------------------------------

    def interact(self) -> None:
        """Give a person a prompt on the terminal, whose lines a shell in the guest runs, until ``exit`` or Ctrl-D.

        Raises HostError where there is no terminal, as in a worker of pytest-xdist.
        """
        converse(self)
