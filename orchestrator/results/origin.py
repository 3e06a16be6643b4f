# SPDX-License-Identifier: GPL-2.0-only
"""The provenance of runs, how that of two runs differs, and the result of a bisection.

Guests, programs and modules are compared by name if both runs have them: a different selection of cells is not a
difference. Hosts are compared separately (``host_differences``), since they do not affect the exact clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from orchestrator.errors import LabError
from orchestrator.plain_text import cut, plain_line
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults

FILE_NAME = "provenance.json"

_LARGEST_FILE = 64 << 20  # 10 000 cells with a module each take some 3 MB
_LONGEST = 300
UNREADABLE = "unreadable provenance"
_QEMU_OPTIONS = {"-append": "kernel command line", "-cpu": "CPU", "-machine": "machine", "-icount": "instruction clock"}
"""Options that may affect a number. Others are paths and sockets, or part of the cell: memory, number of CPUs."""


def _plain(value: object) -> str:
    """A short and printable text: the file may come from another machine."""
    return cut(plain_line(str(value)), _LONGEST)


Text = Annotated[str, BeforeValidator(_plain)]
Texts = dict[Text, Text]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Session(_Part):
    """The tools of one process; a resumed run has several sessions with the same tools."""

    orchestrator: Text = ""
    qemu: Text = ""
    compiler: Text = ""
    guests: Text = ""
    host: Texts = {}


class _Kernel(_Part):
    name: Text = ""
    release: Text = ""
    packages: Texts = {}
    origin: Texts = {}
    image_sha256: Text = ""

    @property
    def version(self) -> str:
        """The release and the versions of its packages or sources, without suites: ``6.1.0-50-686 (6.1.176-1)``."""
        packages = self.packages or {name: version.partition(" (")[0] for name, version in self.origin.items()}
        versions = ", ".join(dict.fromkeys(packages[name] for name in sorted(packages)))
        return f"{self.release} ({versions})" if versions else self.release


class _Image(_Part):
    name: Text = ""
    key: Text = ""
    packages: Texts = {}


class BootModule(_Part):
    """A module that was loaded: the key of its artifact, and the digest of its file."""

    name: Text = ""
    key: Text = ""
    file_sha256: Text = ""


class _Input(_Part):
    """A user's file, by its name, or a line of the experiment."""

    name: Text = ""
    key: Text = ""


class BootProvenance(_Part):
    """A booted guest: ``name`` is that of its files without suffix, ``qemu`` its command line."""

    name: Text = ""
    qemu: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    kernel: _Kernel = _Kernel()
    image: _Image | None = None
    work: Texts = {}
    initramfs_sha256: Text = ""
    modules: dict[str, BootModule] = {}
    """By cell, or by ``CELL: MODULE`` if a cell has several."""
    inputs: dict[str, dict[Text, _Input]] = {}
    sources: dict[Text, Texts] = {}
    cells: tuple[str, ...] = ()
    """The cells of the guest; empty in runs of earlier versions."""

    @property
    def machine(self) -> str:
        """The guest's name without its number: ``pentium4-debian-686``."""
        return PurePath(self.name).name.partition("-")[2]

    @cached_property
    def keys(self) -> Mapping[str, Sequence[str]]:
        keys: dict[str, list[str]] = {}
        for name, module in self.modules.items():
            keys.setdefault(name.partition(": ")[0], []).append(module.key)
        return keys

    def has(self, cell: CellRecord) -> bool:
        """Whether the cell was or, in a run of an earlier version, may have been measured in this guest."""
        if self.cells:
            return cell.id in self.cells
        return cell.id in self.keys or (cell.probe == "none" and self.name.endswith(f"-{cell.cpu}-{cell.kernel}"))


class Origin(_Part):
    """The provenance of a run: the content of ``provenance.json``, as far as known."""

    sessions: tuple[_Session, ...] = ()
    boots: tuple[BootProvenance, ...] = ()

    @property
    def session(self) -> _Session:
        """The last session, or an empty one."""
        return self.sessions[-1] if self.sessions else _Session()


@dataclass(frozen=True)
class OriginDifference:
    """A difference in the provenance of two runs.

    ``before`` and ``after`` are versions. If both are empty, only the content differs, in the files or packages of
    ``detail``, if known.
    """

    what: str
    before: str = ""
    after: str = ""
    detail: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """``QEMU: 7.2.22 -> 10.0.13``, or ``module lab_kprobe: kprobe.c changed``."""
        if self.what == UNREADABLE:
            return f"{self.what}: {', '.join(self.detail)}"
        if self.before or self.after:
            return f"{self.what}: {self.before or 'none'} -> {self.after or 'none'}"
        if self.detail:
            return f"{self.what}: {', '.join(self.detail)} changed"
        return f"{self.what}: changed"


def origin_of(directory: Path, facts: Mapping[str, Any] | None = None) -> Origin:
    """The provenance of the run in ``directory``; without its file that of the store (``facts``), or an empty one.

    Raises LabError for a damaged file, HostError for an unreadable one.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return Origin.model_validate({"sessions": [facts or {}]})
    with storage_faults(path), path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    try:
        if len(content) <= _LARGEST_FILE:
            return Origin.model_validate_json(content)
    except ValidationError:
        pass
    raise LabError("damaged: not the provenance of a run", where=str(path))


def kernel_versions(origin: Origin) -> Mapping[str, str]:
    """The versions of the measured kernels, by name."""
    return {boot.kernel.name: boot.kernel.version for boot in origin.boots}


def origin_differences(
    before: Origin, after: Origin, pairs: Iterable[tuple[str, str]] | None = None
) -> Sequence[OriginDifference]:
    """Differences that may affect numbers of any clock: sources, this program, QEMU, compiler, kernels, modules.

    Users' sources come first, of the compared ``pairs`` of cells, by default those of equal ids.
    """
    first, second = before.session, after.session
    tools = [
        ("this program", first.orchestrator, second.orchestrator),
        ("QEMU", first.qemu, second.qemu),
        ("compiler of guests' programs", first.compiler, second.compiler),
        ("release of guests' packages", first.guests, second.guests),
    ]
    # Earlier versions did not record all of them.
    differences = [OriginDifference(what, old, new) for what, old, new in tools if old != new and old and new]
    return [
        *_inputs(before, after, pairs),
        *_modules(before, after, same_tools=not differences),
        *differences,
        *_kernels_and_images(before, after),
        *_machines(before, after),
    ]


def host_differences(before: Origin, after: Origin) -> Sequence[OriginDifference]:
    """Differences between the hosts, which only affect the wall clock."""
    first, second = before.session.host, after.session.host
    return [
        OriginDifference(f"host's {name}", first[name], second[name])
        for name in first
        if name in second and first[name] != second[name]
    ]


def _both(
    before: Origin, after: Origin, name: Callable[[BootProvenance], str | None]
) -> Iterator[tuple[str, BootProvenance, BootProvenance]]:
    """The first boots of both runs with the same ``name``, without boots that have none."""
    first, second = ({name(boot): boot for boot in reversed(origin.boots)} for origin in (before, after))
    names = dict.fromkeys(map(name, before.boots))
    return ((key, first[key], second[key]) for key in names if key and key in second)


def _kernels_and_images(before: Origin, after: Origin) -> Iterator[OriginDifference]:
    for name, first, second in _both(before, after, lambda boot: boot.kernel.name):
        kernel, other_kernel = first.kernel, second.kernel
        what = f"kernel {name}"
        if kernel.version != other_kernel.version:
            yield OriginDifference(what, kernel.version, other_kernel.version)
        elif kernel.packages != other_kernel.packages:
            yield OriginDifference(what, detail=_differing(kernel.packages, other_kernel.packages))
        elif kernel.image_sha256 != other_kernel.image_sha256:
            yield OriginDifference(what, detail=("its image",))
        elif first.initramfs_sha256 != second.initramfs_sha256:
            yield OriginDifference(f"programs in guests with kernel {name}")
    for name, first, second in _both(before, after, lambda boot: boot.image.name if boot.image else None):
        if first.image is not None and second.image is not None and first.image.key != second.image.key:
            yield OriginDifference(f"image {name}", detail=_differing(first.image.packages, second.image.packages))


def _machines(before: Origin, after: Origin) -> Iterator[OriginDifference]:
    for name, first, second in _both(before, after, lambda boot: boot.machine):
        options, other_options = _options(first.qemu), _options(second.qemu)
        for option, what in _QEMU_OPTIONS.items():
            if options.get(option) != other_options.get(option) and options and other_options:
                yield OriginDifference(f"{what} of {name}", options.get(option, ""), other_options.get(option, ""))
        changed = tuple(key for key in first.work if first.work[key] != second.work.get(key))
        if changed and first.work.get("name") == second.work.get("name"):
            yield OriginDifference(f"work in {name}", detail=changed)


def _inputs(before: Origin, after: Origin, pairs: Iterable[tuple[str, str]] | None) -> Iterator[OriginDifference]:
    """The users' files and lines that differ between cells; earlier versions did not record them."""
    first, second = (
        {cell: (boot, inputs) for boot in origin.boots for cell, inputs in boot.inputs.items()}
        for origin in (before, after)
    )
    renamed: dict[OriginDifference, None] = {}
    changed: dict[str, dict[str, None]] = {}
    for cell, other_cell in [(cell, cell) for cell in first] if pairs is None else pairs:
        if cell not in first or other_cell not in second:
            continue
        (boot, inputs_of_cell), (other_boot, other_inputs) = first[cell], second[other_cell]
        for role in inputs_of_cell.keys() & other_inputs.keys():
            input_, other_input = inputs_of_cell[role], other_inputs[role]
            if input_.name != other_input.name:
                renamed[OriginDifference(role, input_.name, other_input.name)] = None
            elif input_.key != other_input.key:
                titles = _differing(boot.sources.get(input_.key, {}), other_boot.sources.get(other_input.key, {}))
                changed.setdefault(f"{role} {input_.name}", {}).update(dict.fromkeys(titles))
    yield from (OriginDifference(what, detail=tuple(titles)) for what, titles in changed.items())
    yield from renamed


def _modules(before: Origin, after: Origin, *, same_tools: bool) -> Iterator[OriginDifference]:
    first, second = (
        {cell: (boot, module) for boot in origin.boots for cell, module in boot.modules.items()}
        for origin in (before, after)
    )
    changes: dict[str, dict[str, None]] = {}
    for cell in [cell for cell in first if cell in second]:
        (boot, module), (other_boot, other_module) = first[cell], second[cell]
        input_, other_input = (at.inputs.get(cell, {}).get("probe") for at in (boot, other_boot))
        if input_ is not None and other_input is not None and input_ != other_input:
            continue  # _inputs reports the user's file
        sources, other_sources = boot.sources.get(module.key), other_boot.sources.get(other_module.key)
        if sources and other_sources:
            changed = [_source_title(name, module.name) for name in _differing(sources, other_sources)]
        else:
            # A key covers sources, kernel and compiler. Earlier versions did not record the sources separately.
            rebuilt = module.key != other_module.key and same_tools and boot.kernel == other_boot.kernel
            changed = ["its sources"] if rebuilt else []
        if changed:
            changes.setdefault(f"module {module.name or f'of {_plain(cell)}'}", {}).update(dict.fromkeys(changed))
    yield from (OriginDifference(what, detail=tuple(files)) for what, files in changes.items())


def _source_title(file: str, module: str) -> str:
    """A module's source file for messages: the main file is rendered from a template of another name."""
    if file != f"{module}_main.c":
        return file
    return "its template" if module.startswith("lab_") else "its main file"


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in sorted({**first, **second}) if first.get(name) != second.get(name))


def _options(command: Sequence[str]) -> Mapping[str, str]:
    """The values of ``_QEMU_OPTIONS``, without the memory backend, which is a file in a restored guest."""
    return {
        option: ",".join(part for part in _plain(value).split(",") if not part.startswith("memory-backend="))
        for option, value in pairwise(command)
        if option in _QEMU_OPTIONS
    }


@dataclass(frozen=True)
class Measured:
    """The cost at a commit in ``unit``, and the half-width of its interval, 0 on the exact clock."""

    value: float
    scatter: float = 0.0
    unit: str = "instructions"


@dataclass(frozen=True)
class Commit:
    """A commit with the first line of its message."""

    hash: str
    subject: str
    author: str
    date: str

    @property
    def short(self) -> str:
        return self.hash[:12]


@dataclass(frozen=True)
class SeriesCommit:
    """A commit with its author's address; ``reverts`` is the hash that its message names."""

    commit: Commit
    email: str = ""
    is_merge: bool = False
    reverts: str = ""

    @property
    def remark(self) -> str:
        """What kind of commit it is; empty for a usual one."""
        if self.is_merge:
            return "merge of all that it brings"
        return f"reverts {self.reverts[:12]}" if self.reverts else ""


@dataclass(frozen=True)
class Tried:
    """A commit of a bisection: its cost, or why it was skipped."""

    commit: Commit
    measured: Measured | None
    why_skipped: str = ""


@dataclass(frozen=True)
class Found:
    """The result of a bisection: one of the ``candidates``, oldest last; several if commits were skipped.

    ``tried`` has the commits in the order of measurement, both ends first.
    """

    candidates: Sequence[Commit]
    tried: Sequence[Tried]

    @property
    def skipped(self) -> Sequence[Tried]:
        return [tried for tried in self.tried if tried.measured is None]
