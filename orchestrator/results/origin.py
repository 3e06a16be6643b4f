# SPDX-License-Identifier: GPL-2.0-only
"""What two runs were made with and what of it differs; commits that a bisection has found.

Guests, programs and modules are compared where both runs have one of the same name: another selection of cells is no
difference. The host is apart (``host_differences``): nothing of it reaches a number of the exact clock.
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
_QEMU_OPTIONS = {"-append": "kernel command line", "-cpu": "CPU", "-machine": "machine", "-icount": "instruction clock"}
"""Options that a number may depend on. Others are paths and sockets, or part of the cell: memory, number of CPUs."""


def _plain(value: object) -> str:
    """A value as a sentence quotes it: short and printable, since the file may come from elsewhere."""
    return cut(plain_line(str(value)), _LONGEST)


Text = Annotated[str, BeforeValidator(_plain)]
Texts = dict[Text, Text]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Session(_Part):
    """What one process worked with; a run that was resumed has several, with the same tools."""

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
        """The release, and the versions of its packages or sources: ``6.1.0-50-686 (6.1.176-1)``.

        The suite that a package came from is left out: another one may have the same package.
        """
        packages = self.packages or {name: version.partition(" (")[0] for name, version in self.origin.items()}
        versions = ", ".join(dict.fromkeys(packages[name] for name in sorted(packages)))
        return f"{self.release} ({versions})" if versions else self.release


class _Image(_Part):
    name: Text = ""
    key: Text = ""
    packages: Texts = {}


class _Module(_Part):
    name: Text = ""
    key: Text = ""
    file_sha256: Text = ""


class _Input(_Part):
    """Something of the user's: a file by its name, or a line of the experiment."""

    name: Text = ""
    key: Text = ""


class Boot(_Part):
    """A guest that was booted: its ``name`` is its files' without suffix, ``qemu`` its command line."""

    name: Text = ""
    qemu: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    kernel: _Kernel = _Kernel()
    image: _Image | None = None
    work: Texts = {}
    initramfs_sha256: Text = ""
    modules: dict[str, _Module] = {}
    """By cell; of several of one cell, each has its name behind the cell's."""
    inputs: dict[str, dict[Text, _Input]] = {}
    sources: dict[Text, Texts] = {}
    cells: tuple[str, ...] = ()
    """The cells of the guest; empty in runs of earlier versions, whose modules name those that have one."""

    @property
    def machine(self) -> str:
        """The guest's name without its number, ``pentium4-debian-686``: boots are numbered in a plan's order."""
        return PurePath(self.name).name.partition("-")[2]

    @cached_property
    def keys(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for name, module in self.modules.items():
            found.setdefault(name.partition(": ")[0], []).append(module.key)
        return found

    def has(self, cell: CellRecord) -> bool:
        """Whether the cell was, or may have been, measured in this guest."""
        if self.cells:
            return cell.id in self.cells
        return cell.id in self.keys or (cell.probe == "none" and self.name.endswith(f"-{cell.cpu}-{cell.kernel}"))


class Origin(_Part):
    """What a run was made with: ``provenance.json``, or as much of it as there is."""

    sessions: tuple[_Session, ...] = ()
    boots: tuple[Boot, ...] = ()

    @property
    def session(self) -> _Session:
        """The last one; an empty one where none is known."""
        return self.sessions[-1] if self.sessions else _Session()


@dataclass(frozen=True)
class OriginDifference:
    """One thing that two runs were not made with alike.

    ``before`` and ``after`` are its versions. They are empty where only its content tells them apart: ``detail`` has
    the files or packages that differ, where those are known.
    """

    what: str
    before: str = ""
    after: str = ""
    detail: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """``QEMU: 7.2.22 -> 10.0.13``, or ``module lab_kprobe: kprobe.c changed``."""
        if self.before or self.after:
            return f"{self.what}: {self.before or 'none'} -> {self.after or 'none'}"
        if self.detail:
            return f"{self.what}: {', '.join(self.detail)} changed"
        return f"{self.what}: not the same"


def origin_of(directory: Path, facts: Mapping[str, Any] | None = None) -> Origin:
    """What the run in ``directory`` was made with.

    Where the file is gone, what the store has of it (``facts``, as ``Store.provenance`` returns them), or nothing.
    Raises LabError for a damaged file, HostError for one that may not be read.
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
    raise LabError("damaged: it does not say what the run was made with", where=str(path))


def kernel_versions(origin: Origin) -> Mapping[str, str]:
    """The versions of the kernels that were measured, by name."""
    return {boot.kernel.name: boot.kernel.version for boot in origin.boots}


def origin_differences(
    before: Origin, after: Origin, pairs: Iterable[tuple[str, str]] | None = None
) -> Sequence[OriginDifference]:
    """What differs that a number of any clock may depend on: sources, this program, QEMU, compiler, kernels, modules.

    The sources come first, of the ``pairs`` of cells that are compared: by default those of one id.
    """
    first, second = before.session, after.session
    tools = [
        ("this program", first.orchestrator, second.orchestrator),
        ("QEMU", first.qemu, second.qemu),
        ("compiler of guests' programs", first.compiler, second.compiler),
        ("release of guests' packages", first.guests, second.guests),
    ]
    # An earlier version did not record each of them.
    found = [OriginDifference(what, one, other) for what, one, other in tools if one != other and one and other]
    named = None if pairs is None else list(pairs)
    return [
        *_inputs(before, after, named),
        *_modules(before, after, same_tools=not found),
        *found,
        *_kernels_and_images(before, after),
        *_machines(before, after),
    ]


def host_differences(before: Origin, after: Origin) -> Sequence[OriginDifference]:
    """What differs of the hosts, which only times of the wall clock depend on."""
    first, second = before.session.host, after.session.host
    return [
        OriginDifference(f"host's {name}", first[name], second[name])
        for name in first
        if name in second and first[name] != second[name]
    ]


def _both(before: Origin, after: Origin, name: Callable[[Boot], str | None]) -> Iterator[tuple[str, Boot, Boot]]:
    """The first boot of both runs by what ``name`` makes of it; one that has no name is left out."""
    first, second = ({name(boot): boot for boot in reversed(origin.boots)} for origin in (before, after))
    names = dict.fromkeys(map(name, before.boots))
    return ((key, first[key], second[key]) for key in names if key and key in second)


def _kernels_and_images(before: Origin, after: Origin) -> Iterator[OriginDifference]:
    for name, first, second in _both(before, after, lambda boot: boot.kernel.name):
        one, other = first.kernel, second.kernel
        what = f"kernel {name}"
        if one.version != other.version:
            yield OriginDifference(what, one.version, other.version)
        elif one.packages != other.packages:
            yield OriginDifference(what, detail=_differing(one.packages, other.packages))
        elif one.image_sha256 != other.image_sha256:
            yield OriginDifference(what, detail=("its image",))
        elif first.initramfs_sha256 != second.initramfs_sha256:
            yield OriginDifference(f"programs in guests with kernel {name}")
    for name, first, second in _both(before, after, lambda boot: boot.image.name if boot.image else None):
        if first.image is not None and second.image is not None and first.image.key != second.image.key:
            yield OriginDifference(f"image {name}", detail=_differing(first.image.packages, second.image.packages))


def _machines(before: Origin, after: Origin) -> Iterator[OriginDifference]:
    for name, first, second in _both(before, after, lambda boot: boot.machine):
        one, other = _options(first.qemu), _options(second.qemu)
        for option, what in _QEMU_OPTIONS.items():
            if one.get(option) != other.get(option) and one and other:
                yield OriginDifference(f"{what} of {name}", one.get(option, ""), other.get(option, ""))
        changed = tuple(key for key in first.work if first.work[key] != second.work.get(key))
        if changed and first.work.get("name") == second.work.get("name"):
            yield OriginDifference(f"work in {name}", detail=changed)


def _inputs(before: Origin, after: Origin, pairs: Sequence[tuple[str, str]] | None) -> Iterator[OriginDifference]:
    """The user's files and lines that differ between cells; an earlier version did not record them."""
    first, second = (
        {cell: (boot, inputs) for boot in origin.boots for cell, inputs in boot.inputs.items()}
        for origin in (before, after)
    )
    found: dict[OriginDifference, None] = {}
    changed: dict[str, dict[str, None]] = {}
    for cell, other_cell in [(cell, cell) for cell in first] if pairs is None else pairs:
        if cell not in first or other_cell not in second:
            continue
        (boot, ones), (other_boot, others) = first[cell], second[other_cell]
        for role in ones.keys() & others.keys():
            one, other = ones[role], others[role]
            if one.name != other.name:
                found[OriginDifference(role, one.name, other.name)] = None
            elif one.key != other.key:
                titles = _differing(boot.sources.get(one.key, {}), other_boot.sources.get(other.key, {}))
                changed.setdefault(f"{role} {one.name}", {}).update(dict.fromkeys(titles))
    yield from (OriginDifference(what, detail=tuple(titles)) for what, titles in changed.items())
    yield from found


def _modules(before: Origin, after: Origin, *, same_tools: bool) -> Iterator[OriginDifference]:
    first, second = (
        {cell: (boot, module) for boot in origin.boots for cell, module in boot.modules.items()}
        for origin in (before, after)
    )
    found: dict[str, dict[str, None]] = {}
    for cell in [cell for cell in first if cell in second]:
        (boot, one), (other_boot, other) = first[cell], second[cell]
        own, others_own = (at.inputs.get(cell, {}).get("probe") for at in (boot, other_boot))
        if own is not None and others_own is not None and own != others_own:
            continue  # the user's own file is named by itself
        sources, others = boot.sources.get(one.key), other_boot.sources.get(other.key)
        if sources and others:
            changed = [_source_title(name, one.name) for name in _differing(sources, others)]
        else:
            # A key is that of sources, kernel and compiler. Earlier versions did not record the sources by themselves.
            rebuilt = one.key != other.key and same_tools and boot.kernel == other_boot.kernel
            changed = ["its sources"] if rebuilt else []
        if changed:
            found.setdefault(f"module {one.name or f'of {_plain(cell)}'}", {}).update(dict.fromkeys(changed))
    yield from (OriginDifference(what, detail=tuple(files)) for what, files in found.items())


def _source_title(file: str, module: str) -> str:
    """A module's source as a person knows it: what was rendered is called after the module, whatever its file is."""
    if file != f"{module}_main.c":
        return file
    return "its template" if module.startswith("lab_") else "its main file"


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in sorted({**first, **second}) if first.get(name) != second.get(name))


def _options(command: Sequence[str]) -> Mapping[str, str]:
    """The values of options that count. Where a guest's memory is kept does not: a restored guest has it in a file."""
    return {
        option: ",".join(part for part in _plain(value).split(",") if not part.startswith("memory-backend="))
        for option, value in pairwise(command)
        if option in _QEMU_OPTIONS
    }


@dataclass(frozen=True)
class Measured:
    """What a commit costs: its value, and the half-width of its interval, 0 on the exact clock."""

    value: float
    scatter: float = 0.0


@dataclass(frozen=True)
class Commit:
    """A commit by its hash, with its first line, its author and its date."""

    hash: str
    subject: str
    author: str
    date: str

    @property
    def short(self) -> str:
        return self.hash[:12]


@dataclass(frozen=True)
class Tried:
    """A commit that was looked at: what it costs, or why it was skipped."""

    commit: Commit
    measured: Measured | None
    why_skipped: str = ""


@dataclass(frozen=True)
class Found:
    """How a bisection ended: the ``candidates``, of which there is one unless skipped commits hide it, oldest last.

    ``tried`` are the commits in the order in which they were measured, both ends first.
    """

    candidates: Sequence[Commit]
    tried: Sequence[Tried]

    @property
    def skipped(self) -> Sequence[Tried]:
        return [one for one in self.tried if one.measured is None]
