# SPDX-License-Identifier: GPL-2.0-only
"""What is asked of ``cost``, and the lines that answer it: each subject with the calls that reach it."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.artifacts.bpf_objects import bpf_lists
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_build import kernel_lists
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.compiler_flags import CompilerFlags
from orchestrator.catalog.probes import (
    ALL_PROGRAMS,
    BPF_SOURCE,
    BPF_SUFFIXES,
    COMPILED_WITH,
    ONE_PROGRAM,
    TOGETHER,
    has_programs,
    is_one_liner,
    is_text,
    one_liner,
    one_liner_name,
    program_parameters,
    split_path,
    with_path,
    written,
)
from orchestrator.catalog.program_state import ProgramState
from orchestrator.catalog.tools import is_script, is_tool, split_script, tool_command
from orchestrator.cost.call_finder import CallFinder, NamedCalls
from orchestrator.cost.cost_experiment import allowed, budget_of_hit
from orchestrator.cost.cost_machine import DEFAULT_CPU, DEFAULT_KERNEL, cost_kernel
from orchestrator.cost.line import CostLine, on_all
from orchestrator.cost.subjects import Subject, subjects
from orchestrator.cost.unreached import UnreachedSubject
from orchestrator.errors import UsageError
from orchestrator.host_packages import check_all_installed
from orchestrator.paths import user_path
from orchestrator.results.budgets import Budget

_GROWTH: Mapping[str, object] = {"*": {"overhead": "+0"}}
_FLAGS = "clang's flags"
_LONGEST_NAME = 40
"""Characters of a file's name in that of its experiment, which has at most 64."""


@dataclass(frozen=True)
class CostRequest:
    """What a hit of each of the ``subjects`` costs: programs, one-liners, modules, mechanisms (docs/cost.md).

    ``kernels`` are names, or versions of Linux. ``calls`` are named by the user. ``at_most`` is
    the budget of a hit, ``budgets`` are those of an experiment. ``against`` is what the costs are compared with: a
    file, a stored run, or a commit. ``cflags`` are clang's for the sources of BPF programs, an argument each; their
    relative paths are those of the current folder. ``state`` is set in all BPF programs before they are loaded, its
    relative paths likewise. ``function`` is the only one of a module's that is asked for. ``image`` has the tools and
    the bpftrace, in place of the lab's. ``together`` attaches all programs of a BPF file at once: a number is of a
    call.
    """

    subjects: Sequence[str]
    kernels: Sequence[str] = (DEFAULT_KERNEL,)
    calls: NamedCalls = field(default_factory=NamedCalls)
    cpu: str = DEFAULT_CPU
    at_most: Budget | float | str | None = None
    budgets: Mapping[str, object] = field(default_factory=dict)
    against: str | None = None
    cflags: Sequence[str] = ()
    function: str | None = None
    state: ProgramState = field(default_factory=ProgramState)
    image: str | None = None
    together: bool = False

    def sources(self) -> Sequence[str]:
        """The subjects, those of BPF with ``cflags``, ``state`` and ``together`` as parameters. Raises ConfigError."""
        flags = CompilerFlags.of(self.cflags, _FLAGS)
        texts = [*map(_together, self.subjects)] if self.together else self.subjects
        texts = [_compiled_with(flags, text) for text in texts] if flags.flags else texts
        return [_in_state(self.state, text) for text in texts] if self.state.is_given else texts

    @property
    def name(self) -> str:
        """What the experiment is called."""
        return f"cost-{_name(self.subjects[0])}"

    def check(self) -> None:
        """Raise UsageError for calls that are not known, what is no budget, and flags without a source to compile."""
        self.calls.check()
        if self.cflags and not any(map(_is_source, self.subjects)):
            what = "no subject is a source of BPF programs (NAME.bpf.c), which clang compiles with these flags"
            raise UsageError(what, where=_FLAGS)
        if self.state.is_given and not any(map(_has_programs, self.subjects)):
            what = "no subject is a file of BPF programs (NAME.bpf.c, NAME.o), in which this is set"
            raise UsageError(what, where="--" + next(iter(self.state.parameters)).replace("_", "-"))
        alone = next((text for text in self.subjects if self.together and not _may_be_together(text)), None)
        if alone is not None:
            what = f"{alone} is no file of BPF programs (NAME.bpf.c, NAME.o), whose programs are attached at once"
            raise UsageError(what, where="--together", hint="leave it out, or ask for it in a command of its own")
        self.sources()
        if self.function is not None and (self.calls.workload is None or self.calls.point is not None):
            hint = "name the calls, and no point: --workload FILE.c"
            raise UsageError("is one of a module that calls of yours enter", where="--function", hint=hint)
        if self.at_most is not None:
            self._of_hit(self.at_most)
        if self.calls.run is not None:
            self._check_run()

    def _check_run(self) -> None:
        """Raise UsageError for what a command's runs do not have: they vary, and with them the number of hits."""
        hint = "give a hit a limit: --at-most 2000"
        if self.against is not None or self.budgets:
            where = "--against" if self.against is not None else "--budget"
            raise UsageError(
                "is of calls, and runs of a command have as many hits as they have", where=where, hint=hint
            )

    @property
    def of_run(self) -> Budget | None:
        """The budget of a hit of a command's runs."""
        return None if self.calls.run is None or self.at_most is None else self._of_hit(self.at_most)

    def lines(self, context: BuildContext, kernels: Sequence[str]) -> tuple[list[CostLine], Sequence[UnreachedSubject]]:
        """The lines on these kernels, and why others are missing: no call reaches the subject on a kernel.

        Raises UsageError without any.
        """
        _check_packages(context, self.subjects, kernels)
        lines: list[CostLine] = []
        missed: list[UnreachedSubject] = []
        known: Sequence[Subject] = ()
        for name in kernels:
            finder = CallFinder(context, ready_kernel(context, cost_kernel(name)), self.cpu, self.calls, self.image)
            if not known:  # a source is compiled for the first kernel, to see where its programs are
                named = (subject for text in self.sources() for subject in subjects(context, finder.kernel, text))
                known = list({subject.row: subject for subject in named}.values())
            for subject in known:
                try:
                    lines += finder.lines(subject)
                except UnreachedSubject as error:
                    missed.append(error)
                except UsageError as error:
                    missed.append(UnreachedSubject(subject, finder.kernel.spec, error))
            missed += finder.unreached
        if not lines:
            raise missed[0]
        return on_all(lines), missed

    def budgets_of(self, lines: Sequence[CostLine]) -> Mapping[str, object]:
        """The budgets of the lines: the user's, or else no growth against what they are compared with."""
        if self.calls.run is not None:
            return {}
        if self.at_most is not None:
            return allowed(lines, self._of_hit(self.at_most))
        return self.budgets or (_GROWTH if self.against is not None else {})

    def _of_hit(self, at_most: Budget | float | str) -> Budget:
        budget = at_most if isinstance(at_most, Budget) else budget_of_hit(at_most)
        if budget.most is None and self.against is None:
            hint = "name what came before: --against REV|FILE|RUN; or write a limit: --at-most 300"
            raise UsageError(f"{budget} adds to what a hit took before", where="--at-most", hint=hint)
        return budget


def _is_source(text: str) -> bool:
    return _has_programs(text) and split_path(text)[0].endswith(BPF_SOURCE)


def _has_programs(text: str) -> bool:
    return not (is_text(text) or is_script(text)) and split_path(text)[0].endswith(BPF_SUFFIXES)


def _may_be_together(text: str) -> bool:
    """Whether its programs are attached at once: those of a BPF file; a tool's and bpftrace's always are."""
    return is_text(text) or is_script(text) or _has_programs(text)


def _together(text: str) -> str:
    """A file of BPF programs with all of them together, unless it says which; anything else as it is."""
    if not _has_programs(text):
        return text
    path, parameters = split_path(text)
    given = program_parameters(path, parameters)
    alone = given.pop(ONE_PROGRAM, ALL_PROGRAMS)
    return text if TOGETHER in given else with_path(path, written({TOGETHER: alone, **given}))


def _in_state(state: ProgramState, text: str) -> str:
    """A file of BPF programs with a state that wins over its own; anything else as it is."""
    if not _has_programs(text):
        return text
    path, parameters = split_path(text)
    given = program_parameters(path, parameters)
    folder = user_path(path).parent
    contents = {name: os.path.relpath(user_path(file), folder) for name, file in state.contents.items()}
    every = replace(state, contents=contents).behind(ProgramState.of_parameters(given))
    return with_path(path, written({**given, **every.parameters}))


def _compiled_with(flags: CompilerFlags, text: str) -> str:
    """A source with flags that win over its own, their paths relative to its folder; anything else as it is."""
    if not _is_source(text):
        return text
    path, parameters = split_path(text)
    given = program_parameters(path, parameters)
    there = flags.seen_from(Path.cwd(), user_path(path).parent)
    every = there.behind(CompilerFlags.of_text(given.get(COMPILED_WITH, "")))
    return with_path(path, written({**given, COMPILED_WITH: every.text}))


def _check_packages(context: BuildContext, names: Iterable[str], kernels: Iterable[str]) -> None:
    """Install, all at once, what the kernels need to be ready, and the BPF files to be compiled. Raises HostError."""
    if context.offline:
        return
    lists: dict[str, str] = {}
    for kernel in kernels:
        lists |= kernel_lists(context, cost_kernel(kernel))
    for file in (user_path(split_path(name)[0]) for name in names if not is_text(name)):
        if has_programs(file) and file.is_file():
            lists |= bpf_lists(file)
    check_all_installed(lists)


def _name(subject: str) -> str:
    """What an experiment is called after: a file's name, or a one-liner's words.

    Its digest makes it unique where letters or signs are lost.
    """
    if is_tool(subject):
        return _in_lower_case(tool_command(subject).name)
    if is_script(subject):
        path, parameters = split_script(subject)
        text = shlex.join([Path(path).name, *parameters])
        digest = f"-{hashlib.sha256(text.encode()).hexdigest()[:6]}" if parameters else ""
        return f"{_name(Path(path).stem)}{digest}"
    if is_one_liner(subject):
        return _in_lower_case(one_liner_name(one_liner(subject)))
    name = Path(split_path(subject)[0]).name.split(".")[0]
    words = _in_lower_case(name)[:_LONGEST_NAME].strip("-")
    if re.fullmatch(r"[A-Za-z0-9_+-]+", name) and words and len(name) <= _LONGEST_NAME:
        return words
    return f"{words or 'hit'}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:6]}"


def _in_lower_case(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
