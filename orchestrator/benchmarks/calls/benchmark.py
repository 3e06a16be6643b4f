# SPDX-License-Identifier: GPL-2.0-only
"""What each cell of a table runs, as an experiment file says it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Self, get_args

from pydantic import BeforeValidator, model_validator

from orchestrator.benchmarks.calls.call_programs import Argument
from orchestrator.benchmarks.scaling.rows import MassBenchmark, mass_benchmark
from orchestrator.benchmarks.system.workloads import macro_benchmarks
from orchestrator.catalog.benchmarks import Entry, benchmarks
from orchestrator.catalog.spelling import choices_sentence
from orchestrator.catalog.user_workload import UserWorkload, find_workload
from orchestrator.experiment.file import fields
from orchestrator.experiment.file.fields import one_of, whole
from orchestrator.experiment.file.problems import Problem, conflict, mismatch, shown, wrong
from orchestrator.experiment.file.strict import Strict

_MOST_ARGUMENTS = 6
_LIKE_A_NUMBER = re.compile(r"[-+]?(0[xo])?[0-9a-fA-F]*[0-9][0-9a-fA-F]*")


def _few(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) > _MOST_ARGUMENTS:
        found = f"{len(value)} arguments" if isinstance(value, list | tuple) else shown(value)
        raise wrong(f"found {found}; expected a list of at most {_MOST_ARGUMENTS}")
    return tuple(value)


def _name(value: object) -> object:
    if isinstance(value, str) and value in macro_benchmarks().benchmarks:
        raise wrong(f"found '{value}', a whole-system workload: write it in a table's macro: {{name: {value}}} instead")
    if not isinstance(value, str) or value not in benchmarks():
        raise mismatch(value, choices_sentence(str(value), benchmarks()))
    return value


class Benchmark(Strict):
    """What each cell runs: ``repeats`` samples of ``calls`` calls, entering the kernel by ``entry``.

    Without ``repeats``, as many as the clock needs. A system call has a ``call`` and ``arguments``; a workload of the
    user's own a ``file``: a C file, or a static program (``arguments`` are its own), of which a sample is a whole run.
    ``hits`` is how often each call, or each run, enters the probe point. A benchmark of many probes has ``sizes``, each
    a number of probes and a guest of its own, and a ``seed`` that the functions are chosen by.
    """

    name: Annotated[str, BeforeValidator(_name)]
    calls: Annotated[int, whole(1, 1_000_000)] = 5000
    repeats: Annotated[int, whole(1, 100)] | None = None
    entry: Annotated[Entry, one_of(lambda: get_args(Entry))] = "auto"
    call: Annotated[str, BeforeValidator(fields.call)] | None = None
    arguments: Annotated[tuple[Annotated[Argument, BeforeValidator(fields.argument)], ...], BeforeValidator(_few)] = ()
    file: Annotated[str, BeforeValidator(fields.file)] | None = None
    hits: Annotated[int, whole(1, 1_000_000)] = 1
    sizes: Annotated[tuple[int, ...], BeforeValidator(fields.sizes)] | None = None
    seed: Annotated[int, whole(0, 2**32 - 1)] = 2014

    @property
    def own(self) -> UserWorkload | None:
        """The user's own workload, if it is one."""
        return find_workload(self.file) if self.file is not None else None

    @property
    def is_program(self) -> bool:
        """Whether a sample is a whole run of a program."""
        return self.own is not None and self.own.kind == "program"

    @property
    def mass(self) -> MassBenchmark | None:
        """What is known of it where it is one of many probes."""
        return mass_benchmark(self.name)

    @property
    def has_rows(self) -> bool:
        """Whether its probes are rows of its own, named ``BENCHMARK.ROW`` or ``marker.ROW``."""
        return self.name == "markers" or self.mass is not None

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        problems = list(self._superfluous())
        spec = benchmarks()[self.name]
        if self.name == "workload" and self.file is None:
            problems.append(Problem(("file",), "missing; benchmark 'workload' runs a file of your own"))
        if spec.entries and spec.call is None and self.call is None:
            problems.append(
                Problem(("call",), f"missing; benchmark '{self.name}' makes a system call, such as getppid")
            )
        if problems:
            raise conflict(problems)
        return self

    def _superfluous(self) -> Iterator[Problem]:
        """Keys that this benchmark would pass over."""
        spec = benchmarks()[self.name]
        allowed = {
            "entry": bool(spec.entries),
            "call": bool(spec.entries) and spec.call is None,
            "file": self.name == "workload",
            "arguments": (bool(spec.entries) and spec.call is None) or self.is_program,
            "calls": not self.is_program and not self.has_rows,
            "repeats": self.mass is None,
            "hits": not self.has_rows,
            "sizes": self.mass is not None,
            "seed": self.mass is not None,
        }
        for key, may in allowed.items():
            if not may and key in self.model_fields_set and getattr(self, key) != type(self).model_fields[key].default:
                what = "a program is run whole" if self.is_program else f"benchmark '{self.name}' has no such key"
                yield Problem((key,), f"{what}; leave it out")
        if self.is_program and not all(isinstance(argument, str) for argument in self.arguments):
            yield Problem(("arguments",), "a program's arguments are texts; put numbers in quotes")
        for index, argument in enumerate(() if self.is_program else self.arguments):
            if isinstance(argument, str) and _LIKE_A_NUMBER.fullmatch(argument):
                yield Problem(("arguments", index), f"found {argument!r}, a text; numbers are decimal, within 64 bits")
