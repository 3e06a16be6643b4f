# SPDX-License-Identifier: GPL-2.0-only
"""The key ``benchmark`` of a table of calls: which calls are made, and what they pass and return."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Annotated, TypeVar, get_args

from pydantic import BeforeValidator, ValidationInfo

from orchestrator.benchmarks.calls.benchmarks import COUNTED_BENCHMARK, Buffer, Entry, benchmarks
from orchestrator.benchmarks.calls.call_programs import Argument
from orchestrator.benchmarks.calls.call_results import SUCCESS, Expected
from orchestrator.benchmarks.calls.header_constants import header_constant
from orchestrator.catalog.data import choices_sentence
from orchestrator.catalog.error_names import error_numbers
from orchestrator.catalog.system_calls import system_calls
from orchestrator.catalog.user_files import UserWorkload, find_library, find_workload
from orchestrator.errors import ConfigError
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.problems import Problem, conflict, mismatch, shown, wrong
from orchestrator.experiment.source import Unquoted
from orchestrator.experiment.table import BenchmarkChoice

_LONGEST_TEXT = 200
_LARGEST_BUFFER = 65536
_MOST_ARGUMENTS = 6
_OF_PROGRAMS = ("workload", COUNTED_BENCHMARK)
"""The benchmarks whose arguments are texts: those of a program."""
_LONGEST_RUN = 200
"""Characters of a command: as many as a record keeps, so that two commands differ there."""
_WORDS = range(-(1 << 63), 1 << 64)
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,19})")
_LIKE_A_NUMBER = re.compile(r"[-+~(]*\.?[0-9]")
_CONSTANT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
_FileT = TypeVar("_FileT")
_OR_A_TEXT = "; a text to point to stands in quotes"


def checked_arguments(value: object) -> object:
    """A list of at most six."""
    if not isinstance(value, list | tuple) or len(value) > _MOST_ARGUMENTS:
        value_found = f"{len(value)} arguments" if isinstance(value, list | tuple) else shown(value)
        raise wrong(f"found {value_found}; expected a list of at most {_MOST_ARGUMENTS}")
    return tuple(value)


def checked_call(value: object) -> object:
    """A system call's name."""
    if not isinstance(value, str) or value not in system_calls():
        raise mismatch(value, "expected the name of a system call, such as getppid", system_calls())
    return value


def checked_argument(value: object, info: ValidationInfo) -> object:
    """A decimal number, a constant of C, a text in quotes to point to, or ``{buffer: BYTES}``, 1 to 65536, to point to.

    A constant is one that the headers of system calls have, or several: ``O_WRONLY|O_CREAT``. A text has up to 200
    characters; a path (``/dev/null``) and what a program gets need no quotes.
    """
    is_programs = info.data.get("name") in _OF_PROGRAMS
    if isinstance(value, Unquoted) and not is_programs and not value.startswith(("/", "./", "../")):
        value = _number(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in _WORDS:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_TEXT and "\0" not in value and value.isprintable():
        return value
    unknown = [key for key in value if key != "buffer"] if isinstance(value, dict) else []
    if unknown:
        raise conflict([Problem((key,), f"unknown key; {choices_sentence(str(key), ['buffer'])}") for key in unknown])
    if isinstance(value, dict) and value:
        size = value["buffer"]
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST_BUFFER:
            return Buffer(buffer=size)
    raise mismatch(
        value, f"expected a number, a text of at most {_LONGEST_TEXT} characters, or {{buffer: 1 to {_LARGEST_BUFFER}}}"
    )


def _number(text: str) -> int:
    """A number that is written without quotes: a decimal one of 64 bits, or constants of C, joined by ``|``."""
    if _DECIMAL.fullmatch(text) and int(text) in _WORDS:
        return int(text)
    if _LIKE_A_NUMBER.match(text):
        raise mismatch(text, f"numbers are decimal and whole, within 64 bits{_OR_A_TEXT}")
    names = [name.strip() for name in text.split("|")]
    if not all(_CONSTANT.fullmatch(name) for name in names):
        raise mismatch(text, f"this is neither a number nor a constant of C{_OR_A_TEXT}")
    try:
        return reduce(int.__or__, map(header_constant, names))
    except ConfigError as error:
        raise mismatch(text, f"{error.what}: write the number{_OR_A_TEXT}") from None


def checked_outcome(value: object) -> object:
    """``success``, the name of an error, or a number that is no error."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    known = [SUCCESS, *error_numbers()]
    if isinstance(value, str) and value in known:
        return value
    raise mismatch(value, "expected success, the name of an error, such as EBADF, or a number from 0", known)


def checked_file(value: object, info: ValidationInfo) -> object:
    """The path of a C file or of a static program, of ``program`` that of any program; it becomes absolute."""
    is_program = info.data.get("name") == COUNTED_BENCHMARK
    expected = "expected the path of a program" if is_program else "expected the path of a C file or a static program"
    return str(_named_file(value, partial(find_workload, is_program=is_program), expected).file)


def checked_run(value: object) -> object:
    """A shell's command of 1 to 200 printable characters."""
    if not isinstance(value, str) or not value.isprintable() or not value.isascii() or not value.strip():
        raise mismatch(value, "expected a shell's command, such as sort /etc/passwd | wc -l")
    if len(value) > _LONGEST_RUN:
        most = f"a command has at most {_LONGEST_RUN}: put a longer one into a script of the image"
        raise wrong(f"found {len(value)} characters; {most}")
    return value


def checked_library(value: object) -> object:
    """A library of the image by its name, or the path of a C file or a library of your own, which becomes absolute."""
    expected = "expected a library of the image, such as libc.so.6, or a path: ./libmine.c, ./libmine.so"
    library = _named_file(value, find_library, expected)
    return library.name if library.file is None else str(library.file)


def _named_file(value: object, find: Callable[[str], _FileT], expected: str) -> _FileT:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise mismatch(value, expected)
    try:
        return find(value)
    except ConfigError as error:
        raise wrong(error.what) from None


class CallsBenchmark(BenchmarkChoice):
    """What each cell runs: samples of many calls, or runs of a program."""

    calls: Annotated[int, whole(1, 1_000_000)] = 5000
    """Calls in a sample. A program is run whole, and has no such key."""
    repeats: Annotated[int, whole(1, 100)] | None = None
    """Samples of each cell. Where they scatter, by clock ``wall`` or of a program, at least 6, and 12 by default.

    Runs of ``program`` are counted: an odd number from 3 to 15, by default 7.
    """
    entry: Annotated[Entry, one_of(lambda: get_args(Entry))] = "auto"
    """The way into the kernel, of ``gtodbench`` and ``syscall``: ``auto`` is the fastest that CPU and kernel have.

    ``sysenter`` is i386's, ``syscall`` x86_64's.
    """
    call: Annotated[str, BeforeValidator(checked_call)] | None = None
    """The system call; required of ``syscall``, and of no other benchmark."""
    arguments: Annotated[
        tuple[Annotated[Argument, BeforeValidator(checked_argument)], ...], BeforeValidator(checked_arguments)
    ] = ()
    """What each call of ``syscall`` passes, or the texts that a program gets."""
    expect: Annotated[Expected, BeforeValidator(checked_outcome)] | None = None
    """What each call of ``gtodbench`` and ``syscall`` must return, else the cell fails. Without it, anything.

    Of ``workload``, what each system call of ``workload()`` must return.
    """
    file: Annotated[str, BeforeValidator(checked_file)] | None = None
    """The workload; required of ``workload``. A C file defines ``workload()``; of a program a sample is a whole run.

    ``program`` takes a program, which may need the shared libraries of the table's ``image``.
    """
    run: Annotated[str, BeforeValidator(checked_run)] | None = None
    """The command that ``program`` runs in place of a ``file``, with the guest's shell: ``sort /etc/passwd | wc``."""
    libraries: Entries[Annotated[str, BeforeValidator(checked_library)]] | None = None
    """Shared libraries that a C file of ``workload`` is linked with; the table needs an ``image``."""
    in_turns: bool = False
    """Whether all CPUs make the calls, one after the other in turns, and the lines that move between them are counted.

    Not of programs. A sample has at most 50 calls on each CPU.
    """
    hits: Annotated[int, whole(1, 1_000_000)] = 1
    """How often one call, or one run of a program, enters the point."""

    @property
    def is_counted(self) -> bool:
        """Whether it is a program whose instructions are counted by system call."""
        return self.name == COUNTED_BENCHMARK

    @property
    def own(self) -> UserWorkload | None:
        return find_workload(self.file, is_program=self.is_counted) if self.file is not None else None

    @property
    def is_program(self) -> bool:
        return self.is_counted or (self.own is not None and self.own.kind == "program")

    def conflicts(self) -> Iterator[Problem]:
        spec = benchmarks()[self.name]
        names_its_call = bool(spec.entries) and spec.call is None
        # Other keys this benchmark would ignore.
        allowed = {
            "entry": bool(spec.entries),
            "call": names_its_call,
            "file": self.name in _OF_PROGRAMS,
            "run": self.is_counted,
            "libraries": self.name == "workload" and not self.is_program,
            "arguments": names_its_call or (self.is_program and self.run is None),
            "hits": not self.is_counted,
            "in_turns": not self.is_program,
            "expect": not self.is_program,
            "calls": not self.is_program,
        }
        for key, may in allowed.items():
            if not may and key in self.model_fields_set and getattr(self, key) != type(self).model_fields[key].default:
                what = f"benchmark '{self.name}' does not have this key"
                if self.is_program:
                    what = {"hits": "QEMU counts them", "arguments": "the command has them"}.get(
                        key, "a program is run whole"
                    )
                yield Problem((key,), f"{what}; leave it out")
        if self.is_program and not all(isinstance(argument, str) for argument in self.arguments):
            yield Problem(("arguments",), "a program's arguments are texts; put numbers in quotes")
        if self.is_counted and (self.file is None) == (self.run is None):
            what = (
                "missing; name a program, or a command (run)"
                if self.file is None
                else "there is also run; leave one out"
            )
            yield Problem(("file",), what)
        if self.name == "workload" and self.file is None:
            yield Problem(("file",), "missing; benchmark 'workload' runs a file of your own")
        if names_its_call and self.call is None:
            yield Problem(("call",), f"missing; benchmark '{self.name}' makes a system call, such as getppid")
