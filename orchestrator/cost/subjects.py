# SPDX-License-Identifier: GPL-2.0-only
"""What ``orchestrator cost`` measures: BPF programs, bpftrace programs, modules, mechanisms, and where they attach."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from orchestrator.artifacts.bpf_objects import UnknownProgram, bpf_object, user_section
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.object_state import in_state
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.preparation import SITES_WITHOUT_POINT
from orchestrator.catalog.bpf_sections import Section, SectionWord, nearest_section
from orchestrator.catalog.bpftrace_text import IN_PROGRAMS, PROVIDERS, AttachPoint
from orchestrator.catalog.data import did_you_mean, unknown
from orchestrator.catalog.probes import (
    BASELINE,
    BPF_SUFFIXES,
    ONE_PROGRAM,
    PREFIX,
    SUFFIXES,
    TOGETHER,
    ProbeKind,
    attach_points_of,
    has_several_places,
    is_one_liner,
    is_path,
    is_text,
    may_be_one_liner,
    one_liner,
    parameters_of,
    probe_in_catalogue,
    probe_kind,
    probes,
    split_member,
    split_path,
    with_path,
    written,
)
from orchestrator.catalog.tools import (
    ToolCommand,
    is_script,
    is_tool,
    script_row,
    script_text,
    split_script,
    tool_row,
)
from orchestrator.errors import BuildError, ConfigError, LabError, UsageError
from orchestrator.paths import user_path
from orchestrator.plain_text import shown
from orchestrator.program import PROGRAM as CALLED

_QUOTED = 80
_SHOWN = 10


@dataclass(frozen=True)
class AttachPlace:
    """Where something is attached: at a ``function``, at a ``system_call``'s entry or exit, at another ``event``.

    They are names or patterns; an event is ``SYSTEM:NAME``, or ``NAME`` of a raw tracepoint. ``offset`` is in bytes
    from a function's symbol. Nothing is known of a module. What ``is_in_program`` is in user space: ``file`` is a path
    in the guest, or the name of a library or program, and ``symbol`` a FUNCTION, FUNCTION+BYTES or PROVIDER:NAME, as
    far as they are written. ``wrong`` says why what is written is nowhere.
    """

    function: str | None = None
    system_call: str | None = None
    event: str | None = None
    offset: int | None = None
    is_in_program: bool = False
    wrong: str = ""
    file: str | None = None
    symbol: str | None = None


@dataclass(frozen=True)
class Subject:
    """Something with a cost: its ``row`` among an experiment's probes, and its name within its ``source``.

    ``mechanism`` is that of a BPF program's section; the kernel tells that of others. ``programs`` are those of a BPF
    file that are attached at once, each as its section says.
    """

    row: str
    source: str
    place: AttachPlace
    name: str = ""
    mechanism: str = ""
    programs: tuple[Subject, ...] = ()

    @property
    def title(self) -> str:
        if self.name or not self.programs:
            return self.name or self.source
        names = ", ".join(probe_kind(self.row).named_programs)
        return f"{self.source} {TOGETHER}: {names}" if names else f"{self.source} {TOGETHER}"

    @property
    def is_whole(self) -> bool:
        """Whether its number is of a call, which may run several programs of it: a tool, or programs together."""
        return bool(self.programs) or self.command is not None

    @property
    def command(self) -> ToolCommand | None:
        """The command of a tool that is measured whole; None for others."""
        return probe_kind(self.row).tool if is_text(self.row) or is_script(self.row) else None

    @property
    def is_module(self) -> bool:
        """Whether it is a kernel module of the user's."""
        return not (self.name or self.programs) and is_path(self.row) and not is_script(self.row)

    @cached_property
    def probe(self) -> str:
        """Its name in records; a user's file is looked at for it."""
        return probe_kind(self.row).name


_ANY_CALL = "getppid"
"""A system call for what is attached to all of them."""
ANY_FUNCTION = "vfs_read"
"""A function for mechanisms: the tracer has a nop there, BTF knows it, and every kernel has it."""


def _mechanism(section: str) -> str | None:
    """The probe kind of a section that libbpf attaches by itself; None where the lab has none."""
    word = Section.of(section).word
    return None if word is None or word.kind not in probes() else word.kind


def place_of_section(text: str) -> AttachPlace | None:
    """Where libbpf attaches a program of this section; None for one that it does not attach by itself: ``kprobe``."""
    section = Section.of(text)
    if user_section(text) is not None:
        return _in_file(section.target)
    if section.word is None:
        guess = nearest_section(text)
        return AttachPlace(wrong=f"libbpf has no section {text}{f'; did you mean {guess}?' if guess else ''}")
    return None if _mechanism(text) is None or not section.target else _named_place(text, section.word, section.target)


def _in_file(target: str) -> AttachPlace:
    """The place ``FILE:SYMBOL`` in user space; without one the point says where it is."""
    file, _, symbol = target.partition(":")
    return AttachPlace(is_in_program=True, file=file or None, symbol=symbol or None)


def _named_place(text: str, word: SectionWord, target: str) -> AttachPlace:
    if word.at == "event" and "/" not in target:
        return AttachPlace(wrong=f"{text} names no event: it is {word.name}/SYSTEM/NAME, such as tp/sched/sched_switch")
    if word.at in ("event", "tracepoint"):
        return _at_event(target.replace("/", ":"))
    if word.at == "system call":
        return AttachPlace(system_call=target)
    if word.at == "hook":
        return AttachPlace(function=f"bpf_lsm_{target}")
    name, plus, offset = target.partition("+")
    return AttachPlace(function=name, offset=_number(offset) if plus else None)


def _number(text: str) -> int | None:
    with suppress(ValueError):
        return int(text, 0)
    return None


def _at_event(name: str) -> AttachPlace:
    """The place of a tracepoint ``CATEGORY:NAME``, which may be a pattern, or of a raw one ``NAME``."""
    call = re.fullmatch(r"syscalls:sys_(?:enter|exit)_([\w*]+)", name)
    if call is not None:
        return AttachPlace(system_call=call[1])
    if re.fullmatch(r"(?:raw_syscalls:)?sys_(?:enter|exit)", name):
        return AttachPlace(system_call=_ANY_CALL, event=name)
    return AttachPlace(event=name)


def place_of_one_liner(text: str) -> AttachPlace:
    """Where bpftrace attaches the first probe of a program that names a function or a tracepoint of the kernel."""
    points = attach_points_of(text)
    wrong = next(filter(None, map(_wrong, points)), "")
    if wrong:
        return AttachPlace(wrong=wrong)
    for point in points:
        if point.function is not None:
            return AttachPlace(function=point.function, offset=point.offset)
        if point.event is not None:
            return _at_event(point.event)
    in_programs = [point for point in points if point.kind in IN_PROGRAMS]
    return _in_file(":".join(in_programs[0].parts)) if in_programs else AttachPlace()


def _only_place(text: str) -> AttachPlace:
    """The place of a program of bpftrace; nothing is known of one with several, which is measured whole."""
    place = place_of_one_liner(text)
    return AttachPlace() if has_several_places(text) and not place.wrong else place


def _wrong(point: AttachPoint) -> str:
    """What no bpftrace takes of an attach point; a newer one may have more kinds, but none of nearly the same name."""
    if point.kind is None and "*" not in point.provider:
        guess = did_you_mean(point.provider, PROVIDERS)
        return f"bpftrace has no probe {point.provider}; {guess}" if guess else ""
    if point.kind == "tracepoint" and len(point.parts) == 1:
        return f"{point} names no event: it is {point.provider}:SYSTEM:NAME, such as tracepoint:sched:sched_switch"
    return ""


def _place_of(kind: ProbeKind) -> AttachPlace:
    if kind.site == "program":
        return AttachPlace(is_in_program=True)
    if kind.site in SITES_WITHOUT_POINT:
        event = None if kind.tracepoint is None else kind.tracepoint.replace(".", ":")
        return AttachPlace(system_call=_ANY_CALL, event=event)
    return AttachPlace(function=kind.functions or ANY_FUNCTION)


def subjects(context: BuildContext, kernel: Kernel, text: str) -> Sequence[Subject]:
    """What the user named, each program of a BPF file by itself. A source is compiled for ``kernel``.

    Raises ConfigError, BuildError, UnsupportedError, HostError.
    """
    if is_one_liner(text):
        return [Subject(f"{PREFIX} {one_liner(text)}", text, _only_place(one_liner(text)))]
    if is_tool(text):
        probe_kind(text)
        return [Subject(tool_row(text), text, AttachPlace())]
    kind = probe_in_catalogue(text)
    if kind is not None and kind.name != BASELINE:
        return [Subject(text, text, _place_of(kind))]
    if kind is not None:
        raise UsageError(f"'{BASELINE}' has no cost: it is what the others are compared with")
    if "{" in text and may_be_one_liner(text):
        raise ConfigError(f"found {text[:_QUOTED]!r}", hint=f"a one-liner of bpftrace is '{PREFIX} PROBE {{ ACTION }}'")
    if is_script(text):
        probe_kind(script_row(text))
        return [Subject(script_row(text), text, _only_place(script_text(user_path(split_script(text)[0]))))]
    path, parameters = split_path(text)
    place, member = split_member(path)
    file = user_path(place)
    if not path or not ("/" in path or path.endswith((*SUFFIXES, *BPF_SUFFIXES)) or file.exists()):
        raise ConfigError(unknown("probe or file", path, probes()), hint=f"all probes: {CALLED} list probes")
    row = with_path(str(file) if member is None else f"{file}:{member}", parameters)
    if not path.endswith(BPF_SUFFIXES):
        probe_kind(row)
        return [Subject(row, text, AttachPlace())]
    programs = _programs(context, kernel, file, text, parameters)
    is_together = TOGETHER in parameters_of(text)
    return [Subject(row, path, AttachPlace(), programs=tuple(programs))] if is_together else programs


class NoSuchSubject(BuildError):
    """What somebody named by ``text`` is a program that its file does not have."""

    def __init__(self, text: str, cause: LabError) -> None:
        super().__init__(cause.what, where=cause.where, detail=cause.detail, hint=cause.hint)
        self.text = text


def _programs(context: BuildContext, kernel: Kernel, file: Path, text: str, parameters: str) -> Sequence[Subject]:
    kind = probe_kind(with_path(str(file), parameters))
    own_object = in_state(context, bpf_object(context, kernel, file, kind.flags), kind.state, file)
    try:
        is_chosen = kind.is_together or kind.one_program is not None
        programs = own_object.chosen(kernel, kind.named_programs).programs if is_chosen else own_object.programs
    except UnknownProgram as error:
        raise NoSuchSubject(text, error) from None
    attached = []
    for name, section in programs.items():
        place = place_of_section(section)
        if place is not None:
            others = {parameter: value for parameter, value in kind.parameters.items() if parameter != TOGETHER}
            row = with_path(str(file), written({ONE_PROGRAM: name, **others}))
            attached.append(Subject(row, split_path(text)[0], place, name, _mechanism(section) or ""))
    if not attached:
        what = "no program of it is attached at a function, a system call or a tracepoint by itself"
        is_somewhere = any(_mechanism(section) for section in programs.values())
        hint = 'say where each is attached: SEC("fentry/vfs_read"), SEC("tp/syscalls/sys_enter_read")'
        detail = [f"{name}: {_unattached(section)}" for name, section in programs.items()]
        raise UsageError(what, where=str(file), detail=shown(detail, _SHOWN), hint=hint if is_somewhere else "")
    for name, section in programs.items():
        if place_of_section(section) is None:  # it may be called by another (a tail call)
            context.say(f"{'not attached' if kind.is_together else 'not measured'}: {name}; {_unattached(section)}")
    return attached


def _unattached(text: str) -> str:
    section = Section.of(text)
    assert section.word is not None
    if _mechanism(text) is not None:
        return f"its section, {text}, names no {section.word.at}, so libbpf attaches it nowhere by itself"
    if section.word.runs_on:
        where = "the lab measures what functions and events hit"
        return f"a program of section {text} runs on {section.word.runs_on}; {where}"
    return f"libbpf attaches no {text} to what a call hits"
