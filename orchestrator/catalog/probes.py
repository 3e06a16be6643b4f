# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of probe, how each is set up, and its evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from orchestrator.catalog.data import Fact, named, read
from orchestrator.catalog.given_parameters import (
    NO_PARAMETERS,
    in_name,
    parse_parameters,
    split_path,
    with_path,
    written,
)
from orchestrator.catalog.kernel_feature import Change, KernelFeature
from orchestrator.catalog.kernels import Arch
from orchestrator.catalog.one_liner import is_one_liner, one_liner
from orchestrator.catalog.one_liner import shown_name as shown_one_liner
from orchestrator.catalog.spelling import unknown
from orchestrator.catalog.user_probe import find_probe, has_programs, is_path, shown_name
from orchestrator.errors import ConfigError

BASELINE = "none"
"""The probe kind without a probe, against which every overhead is measured."""

Mechanism = Literal[
    "none", "int3", "jump", "detour", "ftrace", "jmp", "pointer", "tracepoint", "marker", "direct", "own"
]
"""The mechanism of a hit. ``own`` is a user's file's: any bytes at the probe point are accepted."""
Site = Literal["function", "kprobe", "ftrace", "hook", "tracepoint", "program"]
Extra = Literal["post_handler", "aggregator"]
"""What a hit of a kprobe may pass besides its own handler, in the order in which it can be taken off."""
Handler = Literal["noop", "count", "record"]
"""What a hit does: nothing, count itself, or write a 64-byte event into a ring."""


_TRACEPOINT_NAME = re.compile(r"\w{1,100}", re.ASCII)
_EVENT_NAME = re.compile(r"\w{1,100}\.\w{1,100}", re.ASCII)

Program = Literal[
    "kprobe",
    "kretprobe",
    "kprobe-multi",
    "kretprobe-multi",
    "fentry",
    "fexit",
    "tracepoint",
    "raw-tracepoint",
    "uprobe",
    "uretprobe",
]
"""What a BPF program is attached to, as ``images/bpf/bpfprobe.c`` has it."""


class OtherTraps(Fact):
    """The breakpoint traps of a hit on kernels of one ``arch``, ``since`` a change."""

    since: Change
    arch: Arch
    int3_per_hit: int


class ProbeKind(KernelFeature):
    """A kind of probe: a mechanism at a point.

    ``title`` heads its column in a report, ``column`` is its key in the published tables (None: not published),
    ``int3_per_hit`` its breakpoint traps, ``site`` the place that is read for evidence. What arms it is a ``template``
    of ``kmods``, an ``event`` of tracefs, or a BPF ``program``, which the kernel compiles or not (``is_compiled``);
    with none of them nothing of the lab's does. ``fprobe`` is the side of its fprobe's handler: the function tracer
    must call fprobes' function, else kprobes' or the module's own. ``tracepoint`` is the one that it is at, as
    SYSTEM.NAME where it is an event there. ``optimisation`` is the value of ``debug.kprobes-optimization`` while it is
    armed. ``extras`` is what becomes of the aggregator and the post-handler that its hits would pass: kept and
    measured, or removed; none where there are none to speak of. A user's module has a ``file`` and is loaded with
    ``parameters``, a user's BPF programs have a ``bpf_file``, those that bpftrace makes of a text a ``one_liner``;
    their traps are not known in advance.
    ``since`` and ``until`` are about what it is made of. A kind that only verifies one
    capability (List 15 of the djprobe document) has a ``capability``.
    """

    name: str
    title: str
    column: str | None
    template: str | None = None
    event: Literal["kprobe", "kretprobe", "trace", "uprobe", "uretprobe"] | None = None
    program: Program | None = None
    is_compiled: bool = True
    fprobe: Literal["entry", "return"] | None = None
    tracepoint: str | None = None
    site: Site
    mechanism: Mechanism
    int3_per_hit: int | None
    other_traps: OtherTraps | None = None
    at: Literal["entry", "after-ftrace-nop"]
    optimisation: bool
    extras: Literal["kept", "removed", "none"] = "none"
    file: Path | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    bpf_file: Path | None = None
    one_liner: str | None = None
    capability: str | None = None

    @property
    def has_own_programs(self) -> bool:
        """Whether it is BPF programs of the user's."""
        return self.bpf_file is not None or self.one_liner is not None

    def on(self, release: str, arch: Arch) -> ProbeKind:
        """The kind on a kernel, where a hit may take other traps."""
        other = self.other_traps
        if other is None or other.arch != arch or not other.since.is_in(release):
            return self
        return self.model_copy(update={"int3_per_hit": other.int3_per_hit})


@lru_cache(maxsize=1)
def probes() -> Mapping[str, ProbeKind]:
    """Return the probe kinds by name, in the documents' order."""
    return named(ProbeKind, read("probes.yaml"))


def probe_in_catalogue(name: str) -> ProbeKind | None:
    """The kind of this name, or a tracepoint's at another (``tracepoint.sched_switch``); None for any other name."""
    if name in probes():
        return probes()[name]
    base, _, tracepoint = name.partition(".")
    kind = probes().get(base)
    if kind is None or kind.tracepoint is None:
        return None
    form = _EVENT_NAME if "." in kind.tracepoint else _TRACEPOINT_NAME
    if not form.fullmatch(tracepoint):
        return None
    title = kind.title.replace(kind.tracepoint.rpartition(".")[2], tracepoint)
    return kind.model_copy(update={"name": name, "title": title, "tracepoint": tracepoint})


def published_column(probe: str) -> str | None:
    """A probe's column in the published tables; None where it has none, as a user's module."""
    kind = probes().get(probe)
    return None if kind is None else kind.column


def probe_kind(name: str) -> ProbeKind:
    """Return the kind of probe, or the user's own where the name is a path (with a slash in it) or a one-liner.

    Behind the path of a module its parameters may stand. Raises ConfigError for an unknown name, a missing file, wrong
    parameters or a wrong one-liner.
    """
    if is_one_liner(name):
        text = one_liner(name)
        return _own(shown_one_liner(text), f"bpftrace: {text}", one_liner=text)
    if not is_path(name):
        kind = probe_in_catalogue(name)
        if kind is None:
            raise ConfigError(
                unknown("probe", name, probes()), hint="a module of your own is named by a path, with a slash in it"
            )
        return kind
    path, text = split_path(name)
    file, parameters = find_probe(path), parse_parameters(text)
    shown = shown_name(file)
    if has_programs(file):
        if parameters:
            raise ConfigError(f"found {text!r} behind {file.name}; BPF programs of your own take no parameters")
        return _own(shown, shown, bpf_file=file)
    title = with_path(shown, written(parameters))
    return _own(shown + in_name(parameters), title, file=file, parameters=parameters)


def _own(
    name: str,
    title: str,
    *,
    file: Path | None = None,
    parameters: Mapping[str, str] = NO_PARAMETERS,
    bpf_file: Path | None = None,
    one_liner: str | None = None,
) -> ProbeKind:
    is_module = file is not None
    return ProbeKind(
        name=name,
        title=title,
        column=None,
        template=None,
        site="kprobe" if is_module else "ftrace",
        mechanism="own",
        int3_per_hit=None,
        at="after-ftrace-nop" if is_module else "entry",
        optimisation=is_module,
        file=file,
        parameters=dict(parameters),
        bpf_file=bpf_file,
        one_liner=one_liner,
    )
