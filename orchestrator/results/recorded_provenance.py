# SPDX-License-Identifier: GPL-2.0-only
"""The recorded provenance of runs, and how that of two runs differs.

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
from orchestrator.files import read_bounded
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
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


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


class RecordedProvenance(_Part):
    """The provenance of a run: the content of ``provenance.json``, as far as known."""

    sessions: tuple[_Session, ...] = ()
    boots: tuple[BootProvenance, ...] = ()

    @property
    def session(self) -> _Session:
        """The last session, or an empty one."""
        return self.sessions[-1] if self.sessions else _Session()


@dataclass(frozen=True)
class ProvenanceDifference:
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


def provenance_of(directory: Path, facts: Mapping[str, Any] | None = None) -> RecordedProvenance:
    """The provenance of the run in ``directory``; without its file that of the store (``facts``), or an empty one.

    Raises LabError for a damaged file, HostError for an unreadable one.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return RecordedProvenance.model_validate({"sessions": [facts or {}]})
    with storage_faults(path):
        content = read_bounded(path, _LARGEST_FILE)
    try:
        if content is not None:
            return RecordedProvenance.model_validate_json(content)
    except ValidationError:
        pass
    raise LabError("damaged: not the provenance of a run", where=str(path))


def kernel_versions(provenance: RecordedProvenance) -> Mapping[str, str]:
    """The versions of the measured kernels, by name."""
    return {boot.kernel.name: boot.kernel.version for boot in provenance.boots}


def provenance_differences(
    before: RecordedProvenance, after: RecordedProvenance, pairs: Iterable[tuple[str, str]] | None = None
) -> Sequence[ProvenanceDifference]:
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
    differences = [ProvenanceDifference(what, old, new) for what, old, new in tools if old != new and old and new]
    return [
        *_inputs(before, after, pairs),
        *_modules(before, after, same_tools=not differences),
        *differences,
        *_kernels_and_images(before, after),
        *_machines(before, after),
    ]


def host_differences(before: RecordedProvenance, after: RecordedProvenance) -> Sequence[ProvenanceDifference]:
    """Differences between the hosts, which only affect the wall clock."""
    first, second = before.session.host, after.session.host
    return [
        ProvenanceDifference(f"host's {name}", first[name], second[name])
        for name in first
        if name in second and first[name] != second[name]
    ]


def _both(
    before: RecordedProvenance, after: RecordedProvenance, name: Callable[[BootProvenance], str | None]
) -> Iterator[tuple[str, BootProvenance, BootProvenance]]:
    """The first boots of both runs with the same ``name``, without boots that have none."""
    first, second = ({name(boot): boot for boot in reversed(provenance.boots)} for provenance in (before, after))
    names = dict.fromkeys(map(name, before.boots))
    return ((key, first[key], second[key]) for key in names if key and key in second)


def _kernels_and_images(before: RecordedProvenance, after: RecordedProvenance) -> Iterator[ProvenanceDifference]:
    for name, first, second in _both(before, after, lambda boot: boot.kernel.name):
        kernel, other_kernel = first.kernel, second.kernel
        what = f"kernel {name}"
        if kernel.version != other_kernel.version:
            yield ProvenanceDifference(what, kernel.version, other_kernel.version)
        elif kernel.packages != other_kernel.packages:
            yield ProvenanceDifference(what, detail=_differing(kernel.packages, other_kernel.packages))
        elif kernel.image_sha256 != other_kernel.image_sha256:
            yield ProvenanceDifference(what, detail=("its image",))
        elif first.initramfs_sha256 != second.initramfs_sha256:
            yield ProvenanceDifference(f"programs in guests with kernel {name}")
    for name, first, second in _both(before, after, lambda boot: boot.image.name if boot.image else None):
        if first.image is not None and second.image is not None and first.image.key != second.image.key:
            yield ProvenanceDifference(f"image {name}", detail=_differing(first.image.packages, second.image.packages))


def _machines(before: RecordedProvenance, after: RecordedProvenance) -> Iterator[ProvenanceDifference]:
    for name, first, second in _both(before, after, lambda boot: boot.machine):
        options, other_options = _options(first.qemu), _options(second.qemu)
        for option, what in _QEMU_OPTIONS.items():
            if options.get(option) != other_options.get(option) and options and other_options:
                yield ProvenanceDifference(f"{what} of {name}", options.get(option, ""), other_options.get(option, ""))
        changed = tuple(key for key in first.work if first.work[key] != second.work.get(key))
        if changed and first.work.get("name") == second.work.get("name"):
            yield ProvenanceDifference(f"work in {name}", detail=changed)


def _inputs(
    before: RecordedProvenance, after: RecordedProvenance, pairs: Iterable[tuple[str, str]] | None
) -> Iterator[ProvenanceDifference]:
    """The users' files and lines that differ between cells; earlier versions did not record them."""
    first, second = (
        {cell: (boot, inputs) for boot in provenance.boots for cell, inputs in boot.inputs.items()}
        for provenance in (before, after)
    )
    renamed: dict[ProvenanceDifference, None] = {}
    changed: dict[str, dict[str, None]] = {}
    for cell, other_cell in [(cell, cell) for cell in first] if pairs is None else pairs:
        if cell not in first or other_cell not in second:
            continue
        (boot, inputs_of_cell), (other_boot, other_inputs) = first[cell], second[other_cell]
        for role in inputs_of_cell.keys() & other_inputs.keys():
            input_, other_input = inputs_of_cell[role], other_inputs[role]
            if input_.name != other_input.name:
                renamed[ProvenanceDifference(role, input_.name, other_input.name)] = None
            elif input_.key != other_input.key:
                titles = _differing(boot.sources.get(input_.key, {}), other_boot.sources.get(other_input.key, {}))
                changed.setdefault(f"{role} {input_.name}", {}).update(dict.fromkeys(titles))
    yield from (ProvenanceDifference(what, detail=tuple(titles)) for what, titles in changed.items())
    yield from renamed


def _modules(
    before: RecordedProvenance, after: RecordedProvenance, *, same_tools: bool
) -> Iterator[ProvenanceDifference]:
    first, second = (
        {cell: (boot, module) for boot in provenance.boots for cell, module in boot.modules.items()}
        for provenance in (before, after)
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
    yield from (ProvenanceDifference(what, detail=tuple(files)) for what, files in changes.items())


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
