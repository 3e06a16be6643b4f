# SPDX-License-Identifier: GPL-2.0-only
"""Debug guests with gdb: its command line with symbols, and the places in timed calls at which a guest stops."""

from __future__ import annotations

import re
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debug_info import kernel_debug_info, module_debug_info
from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, VMLINUX
from orchestrator.artifacts.machine_code import decoded
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.data import did_you_mean
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.deadline import uncounted
from orchestrator.errors import EvidenceError, GuestConnectionLost, HostError, LabError, UsageError
from orchestrator.guest.debugger import DebuggerStub, Stub
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import counted
from orchestrator.probes.module_functions import code_at
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import module_sections
from orchestrator.process import run
from orchestrator.profile.counted.generated_code import BPF_PROGRAM
from orchestrator.run.program_symbols import added_programs, loaded_programs

_OBJCOPY_LIMIT = 120.0
NO_PROGRAMS: Mapping[int, str] = {}
_ARCHITECTURES = {"i386": "i386", "x86_64": "i386:x86-64"}
_DESCRIPTION = "i386.xml"
_DATA = (".data", ".bss", ".rodata")
_SYMBOL = re.compile(r"[\w.$]+", re.ASCII)
"""A name that is no other option in objcopy's file of options."""


def check_gdb() -> None:
    """Raise HostError if the host has no gdb."""
    if shutil.which("gdb") is None:
        raise HostError("gdb is not installed", hint="Debian's package: gdb")


def symbol_file(context: BuildContext, kernel: Kernel) -> Path | None:
    """A vmlinux for a debugger: with DWARF if the cache or the user's tree has it, else the kernel's with its symbols.

    None for a kernel whose code is not known.
    """
    try:
        return kernel_debug_info(replace(context, offline=True), kernel)
    except LabError:  # it would have to be fetched or built, or there is none
        code = kernel.code
    if code is None:
        return None
    source = (kernel.code_folder or kernel.headers) / VMLINUX
    parts = [(name, range(part.address, part.address + part.size)) for name, part in code.sections.items()]

    def build(folder: Path) -> None:
        lines = []
        for symbol in code.symbols:
            section = next((part for part in parts if symbol.address in part[1]), None)
            if section is not None and _SYMBOL.fullmatch(symbol.name):
                place = f"{section[0]}:{symbol.address - section[1].start:#x}"
                kind = "function" if symbol.type in FUNCTION_TYPES else "object"
                lines.append(f'--add-symbol "{symbol.name}={place},{kind},global"\n')
        options = folder / "options"
        options.write_text("".join(lines))
        made = run(["objcopy", f"@{options}", str(source), str(folder / VMLINUX)], time_limit=_OBJCOPY_LIMIT)
        made.or_raise(HostError, "the kernel's symbols cannot be written for a debugger")
        options.unlink()

    inputs = {"kernel": kernel.key, "contents": "symbols"}
    return context.cache.obtain("debug-info", inputs, f"symbols of {kernel.spec.name}", build).path / VMLINUX


@dataclass(frozen=True)
class Debugging:
    """What gdb needs of a guest: its kernel, and the modules that are loaded. ``say`` gets the command line."""

    context: BuildContext
    kernel: Kernel
    modules: Sequence[Module]
    say: Callable[[str], None]

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """The files of the modules by name, with DWARF where that can be made."""
        paths = {}
        for module in self.modules:
            try:
                paths[module.name] = module_debug_info(self.context, self.kernel, module)
            except LabError:
                paths[module.name] = module.file
        return paths

    def attach(self, guest: Guest) -> DebuggerStub:
        """Stop a guest, and print how to attach gdb. Raises GuestError, HostError."""
        sections = self.sections(guest)
        return self.offer(guest.stub(), sections)

    def sections(self, guest: Guest) -> Mapping[str, Mapping[str, int]]:
        return module_sections(guest, list(self.files))

    def offer(
        self,
        stub: Stub,
        sections: Mapping[str, Mapping[str, int]],
        steps: int = 0,
        programs: Mapping[int, str] = NO_PROGRAMS,
    ) -> DebuggerStub:
        """Print how to attach gdb to a stopped guest, with modules at ``sections`` and BPF ``programs`` by address."""
        vmlinux = symbol_file(self.context, self.kernel)
        description = stub.description() if self.kernel.spec.arch == "i386" else None

        def announce(place: Path) -> None:
            commands = ["set confirm off", f"set architecture {_ARCHITECTURES[self.kernel.spec.arch]}"]
            if description is not None:
                (place.parent / _DESCRIPTION).write_text(description)
                commands += [
                    f"set tdesc filename {place.parent / _DESCRIPTION}",
                    # QEMU numbers registers as on x86_64; they are read and written all together.
                    "set remote fetch-register-packet off",
                    "set remote set-register-packet off",
                ]
            commands += [_added(self.files[name], addresses) for name, addresses in sections.items()]
            if programs:
                commands.append(added_programs(place.parent, programs, self.kernel.spec.arch))
            commands.append(f"target remote {place}")
            options = [word for command in filter(None, commands) for word in ("-ex", command)]
            program = [] if vmlinux is None else [str(vmlinux)]
            self.say(f"the guest has stopped and waits for gdb:\n  {shlex.join(['gdb', *options, *program])}")

        return DebuggerStub(stub, announce, steps)


def _added(file: Path, sections: Mapping[str, int]) -> str:
    """The command for gdb for the symbols of a loaded module; empty for one without text."""
    data = "".join(f" -s {name} {sections[name]:#x}" for name in _DATA if name in sections)
    text = sections.get(".text")
    return "" if text is None else f"add-symbol-file {shlex.quote(str(file))} {text:#x}{data}"


# A place in timed calls. The loops of a benchmark's program are alike (ROUNDS() of callbench.c, workload_loop.S): they
# jump to their condition, and from there back to the first instruction of a call. A batch of no calls does not come
# there, so the timed calls follow the warm-up ones. The breakpoint moves the clock, so its batch has a timer tick, and
# is measured again: the cell's value stays as it is. Everything behind it is single steps. The kernel adds
# up seconds of which no tick has told it (timespec64_add_ns()): the call behind the breakpoint may take another path.

_LOOPS = ("int80_loop", "sysenter_loop", "syscall_loop", "call_again_and_again")
_LOOP_MAX = 256
_COMPARED = 16
"""Most bytes that tell a program's code from another's at the same address."""
_STEPS = 10_000
"""Instructions to a breakpoint that a debugger comes to without moving the clock, in some four seconds."""
_ATTEMPTS = 20
"""Breakpoints; of three calls behind one, two are as measured."""
_FRUITLESS_CALLS = 3
"""Calls that must enter a function at least once."""


@dataclass(frozen=True)
class StopPlace:
    """Before the instruction of this ``number`` in a timed call, or where calls enter ``symbol`` for so many times."""

    number: int = 1
    symbol: str | None = None

    @property
    def name(self) -> str:
        return f"instruction {self.number}" if self.symbol is None else f"entry {self.number} of {self.symbol}"


@dataclass
class PlaceStop:
    """Stops a guest at a place of its timed calls, and offers it to gdb. ``has_stopped``: it came there.

    ``untimed`` returns the number of calls that a program makes before its timed ones, by its arguments; None for one
    that makes no timed calls. None of these executes more than ``longest`` instructions, and each executes ``usual``
    ones; None for calls that vary. ``has_programs`` if calls hit BPF programs, which gdb then knows by name.
    """

    debugging: Debugging
    place: StopPlace
    untimed: Callable[[Sequence[str]], int | None]
    longest: int
    usual: int | None
    has_programs: bool = False
    has_begun: bool = False
    has_stopped: bool = False
    error: LabError | None = None

    def watch(self, guest: Guest) -> None:
        def before(argv: Sequence[str]) -> None:
            untimed = self.untimed(argv)
            if untimed is not None and not self.has_begun:
                self.has_begun = True
                self._stop_in(guest, argv[0] if "/" in argv[0] else f"/bin/{argv[0]}", untimed)

        guest.before_command = before

    def _stop_in(self, guest: Guest, program: str, untimed: int) -> None:
        firsts = first_instructions(guest.get(program))
        sections = self.debugging.sections(guest)
        programs = loaded_programs(guest) if self.has_programs else NO_PROGRAMS
        address = None if self.place.symbol is None else self._address(self.place.symbol, sections, programs)
        stub = guest.stub()

        def work() -> None:
            try:
                first = self._usual_call(stub, firsts, untimed)
                with uncounted():
                    self._step_from(first, stub, address)
                    self.has_stopped = True
                    self.debugging.offer(stub, sections, _STEPS, programs).wait_until_detached()
            except GuestConnectionLost:  # the measurement tells why
                pass
            except LabError as error:
                self.error = error
            finally:
                stub.detach()

        threading.Thread(target=work, name="place", daemon=True).start()

    def _address(self, symbol: str, sections: Mapping[str, Mapping[str, int]], programs: Mapping[int, str]) -> int:
        if symbol.startswith(BPF_PROGRAM):
            starts = {title: address for address, title in programs.items()}
            if symbol not in starts:
                raise UsageError(f"the cell's guest has no {symbol}", hint=did_you_mean(symbol, starts))
            return starts[symbol]
        for name, file in self.debugging.files.items():
            shown = {section: f"{at:#010x}" for section, at in sections[name].items()}
            functions = code_at(name, file, lambda section, shown=shown: shown.get(section, "")).functions  # type: ignore[misc]
            if symbol in functions:
                return functions[symbol]
        code = self.debugging.kernel.code
        if code is None:
            raise UsageError(f"the cell's modules have no function {symbol}, and the kernel's code is not known")
        try:
            return Symbols.of_image(code).address(symbol)
        except EvidenceError as error:
            raise UsageError(error.what, hint=error.hint) from None

    def _usual_call(self, stub: Stub, firsts: Mapping[int, bytes], untimed: int) -> int:
        """Run to a timed call behind one that was as measured; returns the address where it begins."""
        for _ in range(_ATTEMPTS):
            first, steps = _first_timed_call(stub, firsts, untimed), 1
            if self.usual is None:
                return first
            with uncounted():
                while stub.step() != first and steps <= self.longest:
                    steps += 1
            if steps == self.usual:
                return first
            untimed = 0
        raise EvidenceError(f"none of {_ATTEMPTS} timed calls behind a breakpoint was as measured")

    def _step_from(self, first: int, stub: Stub, address: int | None) -> None:
        if address is None:
            for _ in range(self.place.number - 1):
                stub.ask("s")
            return
        entered = calls = steps = 0
        while entered < self.place.number:
            at = stub.step()
            entered += at == address
            calls += at == first
            steps = 0 if at == first else steps + 1
            if calls == _FRUITLESS_CALLS and not entered:
                raise UsageError(
                    f"the timed calls do not enter {self.place.symbol}", hint="a profile lists what they do"
                )
            if steps > self.longest:  # behind the last call
                raise UsageError(f"a batch of calls enters {self.place.symbol} only {counted(entered, 'time')}")


def _first_timed_call(stub: Stub, firsts: Mapping[int, bytes], untimed: int) -> int:
    """Run to the first timed call; returns the address where it begins."""
    with stub.breakpoints(list(firsts)):
        while True:
            stub.go()
            first = stub.pointer()
            code = firsts.get(first, b"")
            if code and stub.memory(first, len(code)) == code:
                if not untimed:
                    return first
                untimed -= 1


def first_instructions(program: bytes) -> Mapping[int, bytes]:
    """Where a benchmark's program begins a call, and the bytes there. Raises EvidenceError for another program."""
    try:
        instructions = dict(_first_instructions(ELFFile(BytesIO(program))))
    except DAMAGED:
        instructions = {}
    if not instructions:
        raise EvidenceError("the program has none of the loops that make timed calls")
    return instructions


def _first_instructions(elf: ELFFile) -> Iterator[tuple[int, bytes]]:
    table = elf.get_section_by_name(".symtab")
    symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
    for start in (symbol["st_value"] for symbol in symbols if symbol.name in _LOOPS):
        for segment in elf.iter_segments("PT_LOAD"):
            inside = start - segment["p_vaddr"]
            code = segment.data()[inside : inside + _LOOP_MAX] if 0 <= inside < segment["p_filesz"] else b""
            jumps = (
                instruction.operands[0]
                for instruction in decoded(code, start, elf.elfclass // 8)
                if instruction.name == "jns"
            )
            first = next(jumps, None)
            if isinstance(first, int) and start <= first < start + len(code):
                yield first, code[first - start :][:_COMPARED]
