# SPDX-License-Identifier: GPL-2.0-only
"""``--qemu-cover``: the source lines of modules and of kernels' functions that the guests of a session executed.

QEMU counts each instruction by its address as long as a guest runs (``images/plugin/cover.c``). Where a module's code
is, is known while it is loaded.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debug_info import kernel_debug_info, module_debug_info
from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode
from orchestrator.artifacts.module_code import module_code
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.qemu_plugins import qemu_plugin
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import EvidenceError, LabError, UsageError
from orchestrator.files import write_whole
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import CoveragePlugin, Machine
from orchestrator.guest.qemu_command import cover_file
from orchestrator.plain_text import plain_text
from orchestrator.probes.text_layout import module_sections
from orchestrator.profile.lines.dwarf_lines import SourceLines
from orchestrator.profile.lines.line_coverage import executed_lines
from orchestrator.profile.printed.lcov import lcov_text
from orchestrator.pytest_plugin.session import COVERAGE

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_BEHIND_ALL = (1 << 64) - 1
_RECORD = struct.Struct("<QQ")

Executed = Mapping[int, int]
"""How often each instruction was executed, by its address."""


def read_executed(file: Path) -> Executed:
    """What QEMU's coverage plugin has counted so far. Raises EvidenceError if it had not room for all."""
    table = file.read_bytes() if file.exists() else b""  # the guest has ended
    executed = dict(takewhile(lambda record: record[0], _RECORD.iter_unpack(table)))
    if table and len(executed) == len(table) // _RECORD.size:
        raise EvidenceError(f"a guest has executed more than {len(executed)} different instructions of modules")
    return executed


@dataclass(eq=False)
class Covered:
    """A module, or without one a function of a kernel's, and how often its instructions were executed.

    Their addresses are those of ``module_code()``, or the kernel's. ``source`` is the file or folder that was loaded.
    """

    name: str
    kernel: Kernel
    module: Module | None = None
    source: Path = Path()
    executed: Counter[int] = field(default_factory=Counter)


class CodePlace(NamedTuple):
    """Where a guest has a section of a module, or a part of a function, and where that starts in the file."""

    covered: Covered
    addresses: range
    start: int
    section: str = ""

    def is_overwritten(self, by: CodePlace) -> bool:
        """Whether it is no more there, since another module is, or the same one again."""
        is_same = self.covered.module is not None and self.covered.name == by.covered.name
        return is_same or (self.addresses.start < by.addresses.stop and by.addresses.start < self.addresses.stop)


class GuestCoverage:
    """Counts what a guest executes of the modules that a test loads, and of its kernel's functions."""

    def __init__(self, session: Coverage, kernel: Kernel, guest: Guest) -> None:
        self._session, self._kernel, self._guest = session, kernel, guest
        self._file = cover_file(guest.console.path)
        self._places = list(session.functions(kernel))
        self._seen: Executed = {}

    @contextlib.contextmanager
    def loading(self, module: Module, source: Path) -> Iterator[None]:
        """The block loads a module. Where one was that the kernel refuses is not known."""
        self.settle()
        yield
        executed = read_executed(self._file)
        covered = self._session.covered(Covered(module.name, self._kernel, module, source))
        sections = module_sections(self._guest, [module.name])[module.name]
        loaded = [
            CodePlace(covered, range(sections[name], sections[name] + part.size), part.address, name)
            for name, part in module_code(module.file).sections.items()
            if name in sections
        ]
        # A command of the test's may have removed modules.
        self._places = [place for place in self._places if not any(map(place.is_overwritten, loaded))] + loaded
        self._count(executed)
        # The kernel frees it, and other code may be loaded there.
        self._places = [place for place in self._places if not place.section.startswith(".init")]

    def unloaded(self, name: str) -> None:
        """A module has been unloaded."""
        self.settle()
        self._places = [place for place in self._places if place.covered.module is None or place.covered.name != name]

    def end(self) -> None:
        """The guest has ended."""
        try:
            self.settle()
        except EvidenceError as error:
            self._session.problems[self._guest.console.path.stem] = error.what
        self._file.unlink(missing_ok=True)

    def settle(self) -> None:
        """Count what was executed so far. Raises EvidenceError if the plugin had not room for all."""
        self._count(read_executed(self._file))

    def _count(self, executed: Executed) -> None:
        for address, count in executed.items():
            since = count - self._seen.get(address, 0)
            for covered, addresses, start, _ in self._places if since else ():
                if address in addresses:
                    covered.executed[start + address - addresses.start] += since
        self._seen = executed


Lines = Counter[tuple[str, int]]
"""How often each line was executed, by its file and number."""


def parts_of(code: KernelCode, name: str | None = None) -> Sequence[range]:
    """The addresses of each function of a module, or of the parts of one of a kernel's."""
    symbols = (
        symbol
        for symbol in code.symbols
        if symbol.type in FUNCTION_TYPES and name in (None, symbol.name.partition(".")[0])
    )
    return [range(symbol.address, code.following(symbol.address) or symbol.address) for symbol in symbols]


def covered_lines(
    source: SourceLines, parts: Sequence[range], executed: Executed, users_file: Callable[[str], str] = str
) -> Lines:
    """The lines of parts of the code, executed or not. ``users_file`` finds the user's own source file."""
    located = ((executed.get(address, 0), frames) for address, frames in source.lines_of(*parts).items())
    lines = Lines()
    for inner, count in executed_lines(located):
        lines[users_file(inner.file), inner.line] += count
    return lines


class Coverage:
    """The coverage of a session, written into FILE at its end; workers of pytest-xdist send theirs."""

    def __init__(self, config: pytest.Config) -> None:
        self._file: Path = config.invocation_params.dir / config.getoption("qemu_cover")
        self._wanted: Sequence[str] = config.getoption("qemu_cover_of")
        if not config.getoption("--qemu"):
            raise pytest.UsageError("--qemu-cover is about what guests execute: it needs --qemu")
        if not self._file.parent.is_dir() or (self._file.exists() and not self._file.is_file()):
            raise pytest.UsageError(f"--qemu-cover: {self._file} is not a file in a folder that exists")
        self._covered: dict[tuple[str, str], Covered] = {}
        self._found: dict[str, Lines] = defaultdict(Lines)
        self.problems: dict[str, str] = {}  # by the name of the code

    def machine(self, context: BuildContext, kernel: Kernel, machine: Machine) -> Machine:
        """The same machine, counting what modules and the wanted functions execute. Raises UsageError."""
        if machine.timing == "kvm":
            hint = "guest(timing='tcg'), or leave out --qemu-cover"
            raise UsageError("on KVM nothing counts what a guest executes", hint=hint)
        code = kernel.code
        end = 0 if code is None else max(code.address("_etext") or 0, code.address("_einittext") or 0)
        if not end:
            raise UsageError(f"kernel '{kernel.spec.name}' does not say where its code ends and that of modules begins")
        self._context = context
        functions = [(function.addresses.start, function.addresses.stop) for function in self.functions(kernel)]
        return replace(
            machine, coverage=CoveragePlugin(qemu_plugin(context, "cover"), ((end, _BEHIND_ALL), *functions))
        )

    def covered(self, code: Covered) -> Covered:
        """What the session has of the same code."""
        key = code.kernel.key, code.name if code.module is None else code.module.key
        return self._covered.setdefault(key, code)

    def functions(self, kernel: Kernel) -> Iterator[CodePlace]:
        """The parts of the wanted functions in a kernel."""
        for name in self._wanted:
            for part in () if kernel.code is None else parts_of(kernel.code, name):
                yield CodePlace(self.covered(Covered(name, kernel)), part, part.start)

    @pytest.hookimpl(trylast=True)  # all guests have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Find the source lines; write the file, or send them to the process that does."""
        for code in self._covered.values():
            if not self._wanted or code.name in self._wanted:
                try:
                    lines = self._lines_of(code)
                    self._found[code.name].update(lines)
                except LabError as error:
                    self.problems[code.name] = f"{error.what} ({error.where})" if error.where else error.what
        if hasattr(session.config, "workeroutput"):
            pairs = {name: list(lines.items()) for name, lines in self._found.items()}
            session.config.workeroutput[COVERAGE] = pairs, self.problems
        elif not self._write():
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)  # pytest-xdist's
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker has found."""
        lost = {node.gateway.id: "this worker has crashed, and nothing is known of its guests"}
        covered, problems = getattr(node, "workeroutput", {}).get(COVERAGE, ({}, lost))
        for name, lines in covered.items():
            self._found[name].update(dict(lines))
        self.problems |= problems

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """What was covered, and what was not and why."""
        shares = []
        for name, lines in self._found.items():
            executed = sum(count > 0 for count in lines.values())
            shares.append(f"{name} {executed} of {len(lines)} lines ({100 * executed / max(1, len(lines)):.1f} %)")
        if shares:
            terminalreporter.write_line(f"coverage: {', '.join(shares)}, written to {self._file}")
        for name, problem in self.problems.items():
            terminalreporter.write_line(plain_text(f"coverage: {name}: {problem}"), red=True)

    def _lines_of(self, code: Covered) -> Lines:
        if code.module is None:
            source = SourceLines.of_kernel(kernel_debug_info(self._context, code.kernel), code.kernel)
            return covered_lines(source, parts_of(source.code, code.name), code.executed)
        source = SourceLines.of_module(module_debug_info(self._context, code.kernel, code.module), code.kernel)

        def own(file: str) -> str:
            folder, title = code.source if code.source.is_dir() else code.source.parent, source.title(file)
            if title == f"{code.name}_main.c" and code.source.suffix == ".c":  # the lab's name for a single file
                title = code.source.name
            return str(folder / title) if (folder / title).is_file() else file

        return covered_lines(source, parts_of(source.code), code.executed, own)

    def _write(self) -> bool:
        """Write the file. False if there is none, or a wanted name is not in it."""
        for name in self._wanted:
            if name not in self._found:
                what = "no test loads a module of this name, and no kernel of a test has such a function"
                self.problems.setdefault(name, what)
        text = ""
        for name, lines in self._found.items():
            by_file: dict[str, dict[int, int]] = defaultdict(dict)
            for (file, line), count in lines.items():
                by_file[file][line] = count
            text += lcov_text(by_file, test=name)
        if not text:
            self.problems = self.problems or {"nothing": "no test loads a module by guest.load or kmod"}
            return False
        try:
            write_whole(self._file, text)
        except OSError as error:
            self._found.clear()
            self.problems[str(self._file)] = f"cannot be written: {error.strerror}"
            return False
        return self.problems.keys().isdisjoint(self._wanted)
