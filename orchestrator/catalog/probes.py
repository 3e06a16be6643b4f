# SPDX-License-Identifier: GPL-2.0-only
"""Probe kinds: the catalogue's, users' files, tools, bpftrace one-liners; module parameters, events and recorders."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from orchestrator.arch import Arch
from orchestrator.catalog.bpftrace_text import AttachPoint, UnreadTextError, attach_points
from orchestrator.catalog.compiler_flags import LONGEST_FLAGS, CompilerFlags
from orchestrator.catalog.data import CatalogEntry, existing_file, named, read, similar_file, unknown
from orchestrator.catalog.kernels import version_numbers
from orchestrator.catalog.program_state import STATE, ProgramState
from orchestrator.catalog.tools import (
    BPFTRACE_PROGRAM,
    TOOL_PREFIX,
    ToolCommand,
    is_script,
    is_tool,
    named_file,
    script_command,
    script_text,
    tool_command,
    with_named_file,
)
from orchestrator.catalog.user_files import is_packed, unpacking
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path
from orchestrator.plain_text import cut

_NUMBERS = re.compile(r"\d+(?:\.\d+)+")


class KernelChange(CatalogEntry):
    """A change of Linux: its first ``release`` (``6.6``, or ``6.1.28``), its ``commit``, and the affected ``arch``."""

    release: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+(\.\d+)*$")]
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
    arch: Arch | None = None

    def __str__(self) -> str:
        return f"{self.release} (commit {self.commit})"

    def is_in(self, release: str) -> bool:
        """Whether a kernel's release (``6.12.117-lab``) has the change; true for one without a number."""
        match = _NUMBERS.match(release)
        return match is None or version_numbers(match[0]) >= version_numbers(self.release)


class KernelFeature(CatalogEntry):
    """A feature that Linux has ``since`` one change and ``until`` another; None is no limit.

    A release candidate counts as its release: ``6.12.0-rc1`` has what 6.12 has. Backports of distributions are not
    known.
    """

    since: KernelChange | None = None
    until: KernelChange | None = None

    def lacking_in(self, release: str, arch: str) -> str | None:
        """Why a kernel of this release and architecture lacks the feature; None if it does not."""
        if self.since is not None and not self.since.is_in(release):
            return f"Linux has this since {self.since}; the kernel is {release}"
        if self.until is not None and self.until.arch in (None, arch) and self.until.is_in(release):
            on = f" on {arch}" if self.until.arch else ""
            return f"Linux no longer has this{on}, since {self.until}; the kernel is {release}"
        return None


PREFIX = "bpftrace:"
IMAGE = "debian-amd64-bpftrace"
"""The lab's image with bpftrace, 0.17."""
NEWER_IMAGE = "debian-amd64-bpftrace-13"
"""The lab's image with bpftrace 0.23."""

LONGEST = 500
"""The most characters of a one-liner."""

_COLUMN, _END = 60, 16


ONE_PROGRAM = "program"
"""What a row of a user's BPF file may say: ``./x.bpf.c program=NAME`` attaches this one alone."""
TOGETHER = "together"
"""``./x.bpf.c together=all`` attaches all programs of the file as their sections say, ``together=a,b`` these."""
ALL_PROGRAMS = "all"
COMPILED_WITH = "cflags"
"""The flags of clang for a source: ``./x.bpf.c cflags='-I ../include'``, paths relative to the source's folder."""


def is_one_liner(name: str) -> bool:
    """Whether a probe's name is a bpftrace one-liner."""
    return name.startswith(PREFIX)


def is_text(name: str) -> bool:
    """Whether a probe's name is a one-liner or a tool's command, and neither a path nor in the catalogue."""
    return is_one_liner(name) or is_tool(name)


def may_be_one_liner(name: str) -> bool:
    """Whether an unknown probe's name looks like a one-liner with a missing or misspelt prefix."""
    return name.casefold().startswith(PREFIX.removesuffix(":")) or (":" in name and "{" in name)


def one_liner(name: str) -> str:
    """The program for bpftrace. Raises ConfigError for an invalid one."""
    text = name.removeprefix(PREFIX).strip()
    if not text:
        raise ConfigError(
            f"found {name!r}; a one-liner has a probe and an action: '{PREFIX} kprobe:vfs_read {{ @ = count(); }}'"
        )
    if len(text) > LONGEST:
        raise ConfigError(f"found a one-liner of {len(text)} characters; at most {LONGEST} are allowed")
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(f"found {name[:80]!r}; a one-liner has printable ASCII characters in one line")
    _check_hit(text)
    return text


def _check_hit(text: str) -> None:
    """Raise ConfigError for a program of bpftrace that has nothing that a call hits."""
    points = [point for point in attach_points_of(text) if point.kind not in _AROUND]
    unhit = [(point, event) for point in points if (event := _unhit_event(point)) is not None]
    if points and len(unhit) == len(points):
        point, event = unhit[0]
        name = ":".join((point.provider, *point.parts[:1]))
        what = f"found '{name}'; {event.why}, and it has nothing that a call hits"
        raise ConfigError(what, hint="name a function or a tracepoint beside it")


_AROUND = ("BEGIN", "END")
"""Probes that run before and after all of a program."""


_PERF_EVENTS = ("interval", "profile", "software", "hardware", "watchpoint", "asyncwatchpoint")
"""Probes whose programs are at perf events: the kernel tells of no program where it is."""


class PerfEvent(CatalogEntry):
    """A probe of bpftrace that no call hits, a row of ``perf_events.yaml``, which explains the fields."""

    name: str
    why: str


@lru_cache(maxsize=1)
def _perf_events() -> Mapping[str, PerfEvent]:
    return named(PerfEvent, read("perf_events.yaml"))


def _unhit_event(point: AttachPoint) -> PerfEvent | None:
    known = _perf_events()
    event = known.get(":".join((point.kind or "", *point.parts[:1])))
    return event or known.get(point.kind or "")


def attach_points_of(text: str) -> Sequence[AttachPoint]:
    """The attach points of a one-liner; none where only bpftrace itself can say what is wrong with it, or new in it."""
    try:
        return attach_points(text)
    except UnreadTextError:
        return ()


def has_several_places(text: str) -> bool:
    """Whether a one-liner's programs are at several places, or at perf events, so that its hits are not of one kind.

    Such a line is measured whole, as a tool.
    """
    points = [point for point in attach_points_of(text) if point.kind not in _AROUND]
    places = {point.function or point.event or str(point) for point in points}
    is_pattern = any("*" in (point.function or point.event or "") for point in points)
    return len(places) > 1 or is_pattern or any(point.kind in _PERF_EVENTS for point in points)


def shortened(text: str) -> str:
    """The one-liner in a table's column: its beginning and its end, both whole words where these are short."""
    line = f"{PREFIX} {text}"
    if len(line) <= _COLUMN:
        return line
    end = line[-_END:]
    return f"{cut(line, _COLUMN - _END - 1)} {end[end.find(' ', 0, _END // 2) + 1 :]}"


def one_liner_name(text: str) -> str:
    """The one-liner's name in results, safe in file names and filters: its words and a digest."""
    words = "_".join(re.findall(r"[A-Za-z0-9_]+", text))[:24].strip("_")
    return ".".join(filter(None, ["bpftrace", words, hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]]))


SUFFIXES = (".c.j2", ".c", ".ko")
BPF_SOURCE = ".bpf.c"
BPF_SUFFIXES = (BPF_SOURCE, ".o")

_FORMS = "your own module is a template (.c.j2), a C file (.c), a .ko or a folder with a Kbuild"
_PROGRAM_FORMS = "; your own BPF programs are a C file (.bpf.c) or an object (.o)"


def is_path(name: str) -> bool:
    """Whether a probe's name is a path: it has a slash, unlike the catalogue's names."""
    return "/" in name and not is_text(name)


def file_of(name: str) -> str | None:
    """The path, as it is written, of the user's file in a probe's name; None for a name without. Raises ConfigError."""
    if is_tool(name) or is_script(name):
        return named_file(name)
    return split_path(name)[0] if is_path(name) else None


def with_file(name: str, file: str) -> str:
    """A probe's name that has a file, with another path of it."""
    return with_named_file(name, file) if is_tool(name) or is_script(name) else with_path(file, split_path(name)[1])


def has_programs(path: Path) -> bool:
    """Whether a user's file is a source or object of BPF programs."""
    return path.name.endswith(BPF_SUFFIXES) and not path.is_dir()


def is_module_folder(path: Path) -> bool:
    """Whether a path is a folder that the kernel's build system makes modules of."""
    return any((path / name).is_file() for name in ("Kbuild", "Makefile"))


def split_member(given: str) -> tuple[str, str | None]:
    """The path of a module's file or folder, and the module's name of ``FOLDER:NAME``."""
    folder, colon, name = given.rpartition(":")
    is_member = bool(colon) and not user_path(given).exists() and user_path(folder).is_dir()
    return (folder, name) if is_member else (given, None)


def find_probe(name: str, *, forms: str = _PROGRAM_FORMS) -> Path:
    """The file or folder at a path. Raises ConfigError for one that is missing or is not a probe."""
    path = user_path(name)
    if path.is_dir():
        if not is_module_folder(path):
            raise ConfigError(f"found {name!r}; this folder has neither a Kbuild nor a Makefile", hint=_kbuild(path))
        return path
    if not path.exists() and not path.name.endswith((*SUFFIXES, *BPF_SUFFIXES)) and not _way(path):
        raise ConfigError(f"found {name!r}; this file or folder does not exist", hint=similar_file(path, ("",)))
    if not path.name.endswith((*SUFFIXES, *BPF_SUFFIXES)) or (has_programs(path) and not forms):
        raise ConfigError(f"found {name!r}; {_FORMS}{forms}", hint=_way(path))
    return existing_file(name, (*SUFFIXES, *BPF_SUFFIXES))


def find_module(name: str) -> Path:
    """The file at a path. Raises ConfigError for one that is missing or is not a module."""
    return find_probe(name, forms="")


def _way(path: Path) -> str:
    if is_packed(path) and path.stem.endswith(".ko"):
        return f"unpack it first: {unpacking(path)}"
    if path.suffix in (".cpp", ".cc", ".cxx", ".C", ".c++"):
        if path.stem.endswith(".bpf"):
            return "write BPF programs in C, not C++"
        return "the kernel's build system compiles C, not C++"
    if path.suffix == ".o" and not path.stem.endswith(".bpf"):
        return "an object is not a module: name its source, a .c, and the lab builds it"
    if has_programs(path):
        return "BPF programs are not modules: name them among the probes of an experiment that measures calls"
    return ""


def _kbuild(folder: Path) -> str:
    objects = " ".join(sorted(f"{file.stem}.o" for file in folder.glob("*.c")))
    if not objects:
        return "name the folder that has the module's .c files, with a Kbuild"
    return f"one line makes a module of each file: echo 'obj-m := {objects}' >{shlex.quote(str(folder / 'Kbuild'))}"


def probe_name(path: Path) -> str:
    """The probe's name in results: its file's name, without characters unsafe in output and filters."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", path.name).lstrip("._+-") or "module"


VALUE_MAX = 1024
"""The most characters of a value (STRING_MAX of param_set_charp(), kernel/params.c)."""

TEXT_MAX = 1000
"""The most characters of all parameters after a path."""

_FILE = r"(.*?\.(?:c\.j2|c|ko|o))"
_FOLDER = r"(.*?)\s+(['\"]?[A-Za-z0-9_]+=.*)"
_SHOWN_VALUES = 60
_DIGITS = 6
_QUOTED = 40


def split_path(name: str) -> tuple[str, str]:
    """A probe's path, which may have spaces, and the text of the parameters after it."""
    name = name.rstrip()
    parts = re.fullmatch(_FILE + r"\s+(['\"]?[A-Za-z0-9_]+=.*)", name)
    if parts is None and not re.fullmatch(_FILE, name):
        parts = re.fullmatch(_FILE + r"\s+(\S.*)", name) or re.fullmatch(_FOLDER, name)
    return (name, "") if parts is None else (parts[1], parts[2])


def with_path(path: str, text: str) -> str:
    """The inverse of ``split_path``."""
    return f"{path} {text}" if text else path


def parse_parameters(text: str) -> dict[str, str]:
    """Parse a module's ``NAME=VALUE ...``, quoted as in a shell. Raises ConfigError."""
    given = _parameters(text, TEXT_MAX)
    wrong = next(filter(None, (parameter_problem(name, value) for name, value in given.items())), None)
    if wrong is not None:
        raise ConfigError(wrong)
    return given


def program_parameters(path: str, text: str) -> dict[str, str]:
    """Parse what follows the ``path`` of BPF programs: ``program=NAME`` or ``together=all``, ``cflags=FLAGS``, a state.

    Flags and what is set are in one spelling each.

    Raises ConfigError.
    """
    given = _parameters(text, LONGEST_FLAGS)
    if not given.keys() <= {ONE_PROGRAM, TOGETHER, COMPILED_WITH, *STATE}:
        raise ConfigError(
            f"found {text[:_QUOTED]!r} after {Path(path).name}; BPF programs take {ONE_PROGRAM}=NAME, one of the "
            f"file's, {TOGETHER}={ALL_PROGRAMS} or {TOGETHER}=NAME,NAME, which are attached at once, "
            f"{COMPILED_WITH}=FLAGS, those of clang, and {', '.join(STATE)}=NAME=VALUE"
        )
    if {ONE_PROGRAM, TOGETHER} <= given.keys():
        what = f"{ONE_PROGRAM}={given[ONE_PROGRAM][:_QUOTED]} is measured alone, and {TOGETHER} attaches several"
        raise ConfigError(f"{what}: leave one of them out, or name the programs: {TOGETHER}=NAME,NAME")
    programs = [given.get(ONE_PROGRAM, ALL_PROGRAMS), *given.get(TOGETHER, ALL_PROGRAMS).split(",")]
    if not all(re.fullmatch(r"[A-Za-z_]\w{0,127}", name, re.ASCII) for name in programs):
        raise ConfigError(f"found {text[:_QUOTED]!r}; a program's name is that of a function of C")
    flags = CompilerFlags.of_text(given.pop(COMPILED_WITH, ""))
    state = ProgramState.of_parameters({name: given.pop(name) for name in STATE if name in given})
    return {**given, **({COMPILED_WITH: flags.text} if flags.flags else {}), **state.parameters}


def parameters_of(name: str) -> dict[str, str]:
    """The parameters after the path of a user's module or BPF programs. Raises ConfigError."""
    path, text = split_path(name)
    return program_parameters(path, text) if path.endswith(BPF_SUFFIXES) else parse_parameters(text)


def _parameters(text: str, longest: int) -> dict[str, str]:
    if len(text) > longest:
        raise ConfigError(f"found parameters of {len(text)} characters; at most {longest} are allowed")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"found {text[:_QUOTED]!r}; {str(error).lower()}: quotes are as in a shell") from None
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"found {word[:_QUOTED]!r} after a module's path; a parameter is NAME=VALUE")
        if name in given:
            raise ConfigError(f"found parameter {name!r} twice; give it once")
        given[name] = value
    return given


def parameter_problem(name: str, value: str) -> str | None:
    """Why a module cannot take this parameter, as a sentence; None if it can."""
    if not re.fullmatch(r"[A-Za-z0-9_]{1,64}", name):
        return f"found {name[:_QUOTED]!r}; a module parameter's name has letters, digits and '_'"
    if not value.isprintable() or '"' in value or len(value) > VALUE_MAX:
        return f"{name}: found {value[:_QUOTED]!r}; a value is one line of at most {VALUE_MAX} characters without '\"'"
    return None


def written(parameters: Mapping[str, str]) -> str:
    """The canonical text of parameters."""
    return shlex.join(f"{name}={value}" for name, value in parameters.items())


def in_name(parameters: Mapping[str, str]) -> str:
    """The parameters as a part of a row's name, safe in file names and filters: ``.size-64.mode-fast``.

    Long values, and those with other characters, add a digest, so that no two sets share a name.
    """
    shown = "".join(f".{name}-{re.sub(r'[^A-Za-z0-9_-]', '_', value)}" for name, value in parameters.items())
    if len(shown) <= _SHOWN_VALUES and all(re.fullmatch(r"[A-Za-z0-9_-]*", value) for value in parameters.values()):
        return shown
    return f"{shown[:_SHOWN_VALUES]}.{hashlib.sha256(written(parameters).encode()).hexdigest()[:_DIGITS]}"


BASELINE = "none"
"""The row without a probe, against which every overhead is computed."""

Mechanism = Literal[
    "none", "int3", "jump", "detour", "ftrace", "jmp", "pointer", "tracepoint", "marker", "direct", "call", "own"
]
"""The mechanism of a hit. ``own`` is that of a user's file, which may write any bytes at the probe point."""
Site = Literal["function", "kprobe", "ftrace", "hook", "tracepoint", "program"]
Extra = Literal["post_handler", "aggregator"]
"""Extra costs of a kprobe's hit besides its handler, in the order in which they can be disabled."""
Handler = Literal["noop", "count", "count-shared", "record", "stack", "fetch-1", "fetch-2", "fetch-4", "fetch-string"]
"""What a hit does: nothing, count itself (``count-shared``: in a BPF map of all CPUs), or write an event into a ring:
of 64 bytes or, in tracefs, of few.

The others write an event, too: with a trace of the stack, or with so many values or a text, fetched by a tracefs event.
"""
FETCHES = ("fetch-1", "fetch-2", "fetch-4", "fetch-string")


def is_recording(handler: Handler) -> bool:
    """Whether each hit leaves an event that is read back."""
    return handler not in ("noop", "count", "count-shared")


_TRACEPOINT_NAME = re.compile(r"\w{1,100}", re.ASCII)
_EVENT_NAME = re.compile(r"\w{1,100}\.\w{1,100}", re.ASCII)

Context = Literal["registers", "words", "record", "none"]
"""The content of a BPF program's context, in the order of ``enum context`` of ``images/bpf/programs.h``."""


class Program(CatalogEntry):
    """How ``images/bpf/bpfprobe.c`` loads and links a BPF program, in the words of ``probes.yaml``.

    ``runs`` is per hit. One event of each hit has the address ``behind`` bytes after the probe point, or none has one.
    The probe kind ``entries`` counts the entries of a function whose returns the kernel may miss, without a counter
    that can be read, when all of its instances (``maxactive``) are in use.
    """

    type: int
    attach_type: int = 0
    link: Literal["kprobe", "uprobe", "tracepoint", "raw", "typed", "trampoline", "multi", "functions", "places"]
    flags: int = 0
    context: Context
    behind: int | None = None
    runs: int = 1
    entries: str | None = None
    is_compiled: bool = True


class OtherTraps(CatalogEntry):
    """The breakpoint traps of a hit on kernels of one ``arch``, ``since`` a change."""

    since: KernelChange
    arch: Arch
    int3_per_hit: int


class OtherNeeds(CatalogEntry):
    """Kernel options that are needed besides, ``since`` a change has introduced them."""

    since: KernelChange
    options: list[str]


class ProbeKind(KernelFeature):
    """A probe kind, a mechanism at a point: a row of ``probes.yaml``, which explains the fields.

    ``fetched`` are the values of an event's fetching handler, in the kernel's syntax, most of them by ``fetching()``.

    A user's module has a ``file`` or folder, of which it may be one ``member``, and ``parameters``, a user's BPF
    programs a ``bpf_file``, of which ``parameters`` may name one, a bpftrace program a ``one_liner``, what attaches its
    programs itself and is measured whole a ``tool``; their traps are not known in advance. A kind that only verifies
    one capability (List 15 of the djprobe document) has a ``capability``.
    """

    name: str
    title: str
    column: str | None = None
    template: str | None = None
    records: str | None = None
    event: Literal["kprobe", "uprobe", "fprobe", "tprobe", "eprobe", "graph", "trace"] | None = None
    option: str | None = None
    fetched: list[str] = Field(default_factory=list)
    program: Program | None = None
    at_return: bool = False
    fprobe: bool = False
    tracepoint: str | None = None
    calls: str = ""
    functions: str = ""
    needs: list[str] = Field(default_factory=list)
    other_needs: OtherNeeds | None = None
    site: Site
    mechanism: Mechanism
    int3_per_hit: int | None = 0
    int3_per_process: int = 0
    other_traps: OtherTraps | None = None
    at: Literal["entry", "after-ftrace-nop"]
    optimisation: bool = False
    extras: Literal["kept", "removed", "none"] = "none"
    file: Path | None = None
    member: str | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    bpf_file: Path | None = None
    one_liner: str | None = None
    tool: ToolCommand | None = None
    capability: str | None = None

    @property
    def has_own_programs(self) -> bool:
        return self.bpf_file is not None or self.attaches_itself

    @property
    def attaches_itself(self) -> bool:
        """Whether a process in the guest attaches its programs."""
        return self.one_liner is not None or self.tool is not None

    @property
    def one_program(self) -> str | None:
        """The only program of a user's BPF file that is attached; None for all of them."""
        return None if self.bpf_file is None else self.parameters.get(ONE_PROGRAM)

    @property
    def is_together(self) -> bool:
        """Whether a user's BPF programs are attached at once, each as its section says."""
        return self.bpf_file is not None and TOGETHER in self.parameters

    @property
    def named_programs(self) -> Sequence[str]:
        """The programs of a user's BPF file that are named to be attached; empty for all of them."""
        if self.one_program is not None:
            return [self.one_program]
        together = self.parameters.get(TOGETHER, ALL_PROGRAMS) if self.bpf_file is not None else ALL_PROGRAMS
        return [] if together == ALL_PROGRAMS else list(dict.fromkeys(together.split(",")))

    @property
    def state(self) -> ProgramState:
        """What is set in a user's BPF programs before they are loaded."""
        return ProgramState() if self.bpf_file is None else ProgramState.of_parameters(self.parameters)

    @property
    def flags(self) -> str:
        """The flags of clang for a user's source of BPF programs."""
        return "" if self.bpf_file is None else self.parameters.get(COMPILED_WITH, "")

    @property
    def runs(self) -> int:
        """How often the handler runs in a hit."""
        return 1 if self.program is None else self.program.runs

    @property
    def is_traced(self) -> bool:
        return self.mechanism in ("ftrace", "direct")

    def fetching(self, handler: Handler, arch: Arch) -> ProbeKind:
        """The kind of event whose hits fetch what a handler says; the same kind for other handlers."""
        if handler not in FETCHES:
            return self
        number = handler.removeprefix("fetch-")
        values = _values(self, arch)
        # Without its type an eprobe stores the address (TPARG_FL_TEVENT, traceprobe_parse_probe_arg_body()).
        text = ["text=$comm:string"]
        fetched = text if number == "string" else [f"a{index + 1}={values[index]}" for index in range(int(number))]
        return self.model_copy(update={"fetched": fetched})

    def needed_in(self, release: str) -> list[str]:
        """The kernel options that a kernel of this release needs for it."""
        other_needs = self.other_needs
        return [
            *self.needs,
            *(other_needs.options if other_needs is not None and other_needs.since.is_in(release) else ()),
        ]

    def on(self, release: str, arch: Arch) -> ProbeKind:
        """The probe kind on a kernel, where a hit may take other traps."""
        other_traps = self.other_traps
        if other_traps is None or other_traps.arch != arch or not other_traps.since.is_in(release):
            return self
        return self.model_copy(update={"int3_per_hit": other_traps.int3_per_hit})


EVENT_FIELD = "$FIELD"
"""A field of the event that an eprobe is at: events have no field in common, so the guest is asked."""
_MOST_VALUES = 4
_REGISTERS: Mapping[Arch, list[str]] = {
    "x86_64": ["%di", "%si", "%dx", "%cx"],
    "i386": ["%ax", "%dx", "%cx", "$stack1"],
}


def _values(kind: ProbeKind, arch: Arch) -> list[str]:
    """What an event can fetch, as Documentation/trace writes it: arguments, or its only value again and again."""
    if kind.at_return:
        return ["$retval"] * _MOST_VALUES
    match kind.event:
        case "kprobe":
            return _REGISTERS[arch]
        case "uprobe":
            return _REGISTERS[arch] if arch == "x86_64" else [f"+{4 + 4 * index}(%sp)" for index in range(_MOST_VALUES)]
        case "fprobe":
            return [f"$arg{index + 1}" for index in range(_MOST_VALUES)]
        case "tprobe":
            return ["$arg1"] * _MOST_VALUES  # a tracepoint may have no more
        case _:
            return [EVENT_FIELD] * _MOST_VALUES


@lru_cache(maxsize=1)
def probes() -> Mapping[str, ProbeKind]:
    """The probe kinds by name, in the documents' order."""
    return named(ProbeKind, read("probes.yaml"))


def probe_in_catalogue(name: str) -> ProbeKind | None:
    """The probe kind of this name, also with another tracepoint (``tracepoint.sched_switch``); None if unknown."""
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
    """A probe's column in the published tables, its name if it has no other; None for a probe not in the catalogue."""
    kind = probe_in_catalogue(probe)
    return None if kind is None else kind.column or kind.name


def probe_kind(name: str) -> ProbeKind:
    """The probe kind of a catalogue name, a path or a one-liner. Raises ConfigError."""
    own = _own_text(name)
    if own is not None:
        return own
    if not is_path(name):
        kind = probe_in_catalogue(name)
        if kind is None:
            raise ConfigError(unknown("probe", name, probes()), hint="name your own module by a path with a slash")
        return kind
    path, text = split_path(name)
    place, member = split_member(path)
    file = find_probe(place)
    shown = probe_name(file) + (f".{member}" if member else "")
    if has_programs(file):
        parameters = program_parameters(place, text)
        if COMPILED_WITH in parameters and not file.name.endswith(BPF_SOURCE):
            raise ConfigError(f"found {COMPILED_WITH} after {file.name}; an object is compiled already")
        paths: dict[str, object] = {"bpf_file": file}
    else:
        parameters, paths = parse_parameters(text), {"file": file, "member": member}
    title = with_path(shown, written(parameters))
    return _own(shown + in_name(_named(parameters)), title, **paths, parameters=parameters)


def _named(parameters: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters that are part of a row's name."""
    if COMPILED_WITH not in parameters:
        return parameters
    flags = CompilerFlags.of_text(parameters[COMPILED_WITH]).named
    others = {name: value for name, value in parameters.items() if name != COMPILED_WITH}
    return {**others, COMPILED_WITH: flags.text} if flags.flags else others


def _own_text(name: str) -> ProbeKind | None:
    """What attaches its programs itself: a line, a tool, or a script; None for another name. Raises ConfigError."""
    if is_one_liner(name):
        text = one_liner(name)
        line: dict[str, object] = {"one_liner": text}
        if has_several_places(text):
            line["tool"] = ToolCommand(text, (BPFTRACE_PROGRAM, "-e", text))
        return _own(one_liner_name(text), f"bpftrace: {text}", **line)
    if is_tool(name):
        command = tool_command(name)
        return _own(command.name, f"{TOOL_PREFIX} {command.title}", tool=command)
    if is_script(name):
        script = script_command(name)
        assert script.file is not None
        try:
            _check_hit(script_text(script.file))
        except ConfigError as error:
            raise ConfigError(error.what, where=str(script.file), hint=error.hint) from None
        return _own(_script_name(script), script.title, tool=script)
    return None


def _script_name(script: ToolCommand) -> str:
    assert script.file is not None
    parameters = script.argv[2:]
    shown = "".join(f".{re.sub(r'[^A-Za-z0-9_-]', '_', value)}" for value in parameters)[:_SHOWN_VALUES]
    digest = f".{hashlib.sha256(script.title.encode()).hexdigest()[:_DIGITS]}" if parameters else ""
    return f"{probe_name(script.file)}{shown}{digest}"


_NEEDED_BY_PROGRAMS = [
    *("CONFIG_BPF_EVENTS", "CONFIG_BPF_JIT", "CONFIG_KPROBE_EVENTS"),
    *("CONFIG_DEBUG_INFO_BTF", "CONFIG_DYNAMIC_FTRACE", "CONFIG_X86_64"),
]


def _own(name: str, title: str, **fields: object) -> ProbeKind:
    is_module = "file" in fields
    common: dict[str, object] = {"name": name, "title": title, "mechanism": "own", "int3_per_hit": None}
    if is_module:
        where = {"site": "kprobe", "at": "after-ftrace-nop", "optimisation": True, "needs": ["CONFIG_OPTPROBES"]}
    else:
        where = {"site": "ftrace", "at": "entry", "needs": _NEEDED_BY_PROGRAMS}
    return ProbeKind.model_validate({**common, **where, **fields})


CALL_PREFIX: Mapping[Arch, str] = {"i386": "__ia32_sys_", "x86_64": "__x64_sys_"}
"""What the names of system calls' functions begin with."""


class StandardEvent(CatalogEntry):
    """An event: its ``marker`` for static probes, and the functions whose entries dynamic ones probe.

    ``functions`` are the names that Linux has given one function, the same on all architectures; ``calls`` are the
    functions of system calls by architecture, without their prefix.
    """

    name: str
    title: str
    group: str
    marker: str
    functions: list[str] = Field(default_factory=list)
    calls: dict[Arch, list[str]] = Field(default_factory=dict)

    def function(self, has: Callable[[str], bool]) -> str | None:
        """The function whose entry is the event, in a kernel that ``has`` it; None for an event of system calls."""
        return next((name for name in self.functions if has(name)), next(iter(self.functions), None))

    def call_functions(self, arch: Arch) -> list[str]:
        """The functions of the system calls, on a 64-bit kernel without the 32-bit ones."""
        return [CALL_PREFIX[arch] + call for call in self.calls.get(arch, [])]


@lru_cache(maxsize=1)
def standard_events() -> Mapping[str, StandardEvent]:
    """The events by name, in the order of their numbers and in reports."""
    return named(StandardEvent, read("events.yaml"))


RecorderName = Literal["marker", "djprobe", "kprobe", "kprobe-boosted", "kprobe-optimized", "jprobe"]


class RecorderKind(CatalogEntry):
    """A recorder: its name in the recording module, the mechanism of its hits, and the evidence for it.

    ``live`` are the first bytes (in hex) of each place while it records, ``optimisation`` the value of
    ``debug.kprobes-optimization``, ``missed`` the largest accepted share of hits without their handler.
    """

    name: str
    module: RecorderName
    mechanism: Mechanism
    live: str
    optimisation: bool
    missed: float
    needs: list[str]


@lru_cache(maxsize=1)
def recorder_kinds() -> Mapping[str, RecorderKind]:
    """The recorders by probe kind."""
    return named(RecorderKind, read("recorders.yaml"))
