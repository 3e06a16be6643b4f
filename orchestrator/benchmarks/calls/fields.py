# SPDX-License-Identifier: GPL-2.0-only
"""The allowed values of a ``benchmark`` that makes calls."""

from __future__ import annotations

import re
from functools import reduce

from pydantic import ValidationInfo

from orchestrator.artifacts.header_constants import header_constant
from orchestrator.benchmarks.calls.benchmarks import Buffer
from orchestrator.benchmarks.calls.outcome import SUCCESS
from orchestrator.catalog.errnos import error_numbers
from orchestrator.catalog.spelling import choices_sentence, nearest
from orchestrator.catalog.system_calls import system_calls
from orchestrator.catalog.user_library import find_library
from orchestrator.catalog.user_workload import find_workload
from orchestrator.errors import ConfigError
from orchestrator.experiment.file.problems import Problem, conflict, mismatch, shown, wrong
from orchestrator.experiment.file.source import Unquoted

_LONGEST_TEXT = 200
_LARGEST_BUFFER = 65536
_MOST_ARGUMENTS = 6
_OF_PROGRAMS = "workload"
"""The benchmark whose arguments are all texts: what a program gets."""
_PATHS = ("/", "./", "../")
_WORDS = range(-(1 << 63), 1 << 64)
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,19})")
_LIKE_A_NUMBER = re.compile(r"[-+~(]*\.?[0-9]")
_CONSTANT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
_OR_A_NUMBER = ": write the number"
_OR_A_TEXT = "; a text to point to stands in quotes"


def arguments(value: object) -> object:
    """A list of at most six."""
    if not isinstance(value, list | tuple) or len(value) > _MOST_ARGUMENTS:
        found = f"{len(value)} arguments" if isinstance(value, list | tuple) else shown(value)
        raise wrong(f"found {found}; expected a list of at most {_MOST_ARGUMENTS}")
    return tuple(value)


def call(value: object) -> object:
    """A system call's name."""
    if not isinstance(value, str) or value not in system_calls():
        guess = nearest(value, system_calls()) if isinstance(value, str) else None
        question = f"; did you mean '{guess}'?" if guess else ""
        raise mismatch(value, f"expected the name of a system call, such as getppid{question}")
    return value


def argument(value: object, info: ValidationInfo) -> object:
    """A decimal number, a constant of C, a text in quotes to point to, or ``{buffer: BYTES}``, 1 to 65536, to point to.

    A constant is one that the headers of system calls have, or several: ``O_WRONLY|O_CREAT``. A text has up to 200
    characters; a path (``/dev/null``) and what a program gets need no quotes.
    """
    if isinstance(value, Unquoted) and info.data.get("name") != _OF_PROGRAMS and not value.startswith(_PATHS):
        value = _number(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in _WORDS:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_TEXT and "\0" not in value and value.isprintable():
        return value
    others = [key for key in value if key != "buffer"] if isinstance(value, dict) else []
    if others:
        raise conflict([Problem((key,), f"unknown key; {choices_sentence(str(key), ['buffer'])}") for key in others])
    if isinstance(value, dict) and value:
        size = value["buffer"]
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST_BUFFER:
            return Buffer(buffer=size)
    raise mismatch(
        value, f"expected a number, a text of at most {_LONGEST_TEXT} characters, or {{buffer: 1 to {_LARGEST_BUFFER}}}"
    )


def _number(text: str) -> int:
    """What is written without quotes as a number: a decimal one of 64 bits, or constants of C, joined by ``|``."""
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
        raise mismatch(text, f"{error.what}{_OR_A_NUMBER}{_OR_A_TEXT}") from None


def expected(value: object) -> object:
    """``success``, the name of an error, or a number that is no error."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    known = [SUCCESS, *error_numbers()]
    if isinstance(value, str) and value in known:
        return value
    guess = nearest(value, known) if isinstance(value, str) else None
    question = f"; did you mean '{guess}'?" if guess else ""
    raise mismatch(value, f"expected success, the name of an error, such as EBADF, or a number from 0{question}")


def file(value: object) -> object:
    """The path of a C file or of a static program; it becomes absolute."""
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise mismatch(value, "expected the path of a C file or of a static program")
    try:
        return str(find_workload(value).file)
    except ConfigError as error:
        raise wrong(error.what) from None


def library(value: object) -> object:
    """A library of the image by its name, or the path of a C file or a library of your own, which becomes absolute."""
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise mismatch(
            value, "expected a library of the image, such as libc.so.6, or a path: ./libmine.c, ./libmine.so"
        )
    try:
        found = find_library(value)
    except ConfigError as error:
        raise wrong(error.what) from None
    return found.name if found.file is None else str(found.file)
