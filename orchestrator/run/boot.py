# SPDX-License-Identifier: GPL-2.0-only
"""A boot as a pure task, from its cells' preparation to their records; the interface of a kind of benchmark.

A task can be pickled. It uses neither the store nor the progress display nor other boots, so it runs equally in a
thread, in another process, or on another machine.
"""

from __future__ import annotations

import signal
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from orchestrator.artifacts.cache import Artifact, BuildContext
from orchestrator.artifacts.diagnostics import warning_note
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.artifacts.module_source import ModuleSource, Value, render, render_own
from orchestrator.artifacts.modules import (
    Module,
    build_modules,
    check_parameter_names,
    folder_modules,
    prebuilt,
    with_needed,
)
from orchestrator.artifacts.sources import UserSource, folder_source, line_source, user_source
from orchestrator.catalog.images import SUFFIX
from orchestrator.catalog.probes import PREFIX, ProbeKind, written
from orchestrator.errors import (
    BuildError,
    ConfigError,
    EvidenceError,
    GuestExit,
    HostError,
    LabError,
    NotEntered,
    UnsupportedError,
    UsageError,
)
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Boot
from orchestrator.experiment.table import TableKind
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_files import remove_leftovers
from orchestrator.guest.machine import Machine, machine_facts
from orchestrator.plain_text import shown
from orchestrator.probes.kernel_text import KernelText
from orchestrator.probes.symbols import Symbols
from orchestrator.results import stored_profile
from orchestrator.results.contract import UNITS, CellId, CellRecord, Status, valid_result
from orchestrator.results.faults import check_room, storage_faults
from orchestrator.results.parameters import IMPLIED_OPTIONS, KERNEL_RELEASE, USUAL_PARAMETERS
from orchestrator.run.guests import GuestStart, check_cpus, load_kernel_modules, unwatched, wait_for_clocksource
from orchestrator.run.machines import counting, machine_of
from orchestrator.run.plan_check import wrong_points
from orchestrator.steps import step

ArtifactSource = Callable[[str, Mapping[str, object], str, Callable[[Path], None]], Artifact | None]
"""The source of artifacts: ``Cache.obtain``, or a function that only returns existing ones."""


class BenchmarkKind(TableKind):
    """A kind of benchmark, from its tables to its records.

    ``prepare`` and ``measure`` may run in different processes and on different machines: they share artifacts that are
    named by content in the cache.
    """

    def find(self, context: BuildContext, table: Any, obtain: ArtifactSource) -> Any:
        """The table with what only a guest can tell about its cells, kept as artifacts; most kinds need nothing.

        Leaves out what ``obtain`` has no artifact for.
        """
        del context, obtain
        return table

    def refused(self, kernel: Kernel, cells: Sequence[Cell[Any]]) -> Mapping[str, str | None]:
        """Why the kernel does not support a cell, by its id; None where it does.

        The kernel's image, its configuration and its own modules decide that: nothing is built or started.
        """
        del kernel, cells
        return {}

    @abstractmethod
    def prepare(self, context: BuildContext, kernel: Kernel, cells: Sequence[Cell[Any]]) -> Mapping[str, Prepared[Any]]:
        """Fetch and build what the cells of one boot need, by their ids; there are some, and none is ``refused``.

        Raises HostError where nothing can be built.
        """

    @abstractmethod
    def measure(self, session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        """Measure prepared cells in one guest, and yield each record as soon as it is complete.

        Calls ``session.begin`` before each cell's work. A failed record that is not in ``session.guest_still_sound``,
        or an error raised, ends the guest; cells without a record are measured in another one.
        """

    def compare(self, cell: Cell[Any], record: CellRecord, others: Sequence[CellRecord]) -> CellRecord:
        """The record, completed from the records of ``cell.compared_with`` that have numbers.

        Uses no guest. Raises EvidenceError if the comparison proves the record wrong.
        """
        del cell, others
        return record


SetupT = TypeVar("SetupT", covariant=True)


@dataclass(frozen=True)
class Ready(Generic[SetupT]):
    """The cell can be measured: its kind's ``setup``, the modules to load, and notes for the reader."""

    setup: SetupT
    modules: tuple[Module, ...] = ()
    """In the order in which they are loaded."""
    notes: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of the exact content of anything else that the cell needs, by name."""
    sources: Mapping[str, UserSource] = field(default_factory=dict)
    """The user's own files, by role: ``probe``, ``workload``, ``library libmine.so``, ``image``."""
    needs_counter: bool = False
    """Whether only QEMU's counts of instructions can prove the cell."""


@dataclass(frozen=True)
class Refused:
    """The cell has no number for this ``reason``: its kernel cannot have it, or it did not build."""

    status: Status
    reason: str
    modules: tuple[Module, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, UserSource] = field(default_factory=dict)


Prepared = Ready[SetupT] | Refused


def unsupported(reason: str) -> Refused:
    """The kernel's configuration rules the cell out."""
    return Refused("unsupported", reason)


def failed(error: LabError) -> Refused:
    """Something for the cell did not build, or cannot be built for its kernel."""
    return Refused("unsupported" if isinstance(error, UnsupportedError) else "failed", str(error))


@dataclass(frozen=True)
class FolderModule:
    """A module that a user's folder builds: its ``name``, or None for the only one that has the ``parameters``."""

    folder: Path
    name: str | None
    parameters: tuple[str, ...]


OwnModule = ModuleSource | FolderModule | Path
"""What a cell's module is made of, or a built one."""


def own_module(kind: ProbeKind, values: Mapping[str, Value]) -> OwnModule | None:
    """A user's module, if the kind is one; a template is rendered with ``values``. Raises ConfigError, UsageError."""
    if kind.file is None:
        return None
    if kind.file.is_dir():
        return FolderModule(kind.file, kind.member, tuple(kind.parameters))
    return kind.file if kind.file.suffix == ".ko" else render_own(kind.file, values)


def module_outcomes(
    context: BuildContext, kernel: Kernel, wanted: Mapping[str, OwnModule]
) -> Mapping[str, Module | Refused]:
    """The modules of cells, by cell id: built from source, or a user's .ko file; otherwise the reason for none.

    Raises ConfigError for a file that is not a module.
    """
    folders: dict[Path, Mapping[str, Module] | Refused] = {}
    outcomes: dict[str, Module | Refused] = {}
    sources = {id_: one for id_, one in wanted.items() if isinstance(one, ModuleSource)}
    for id_, built in zip(sources, build_modules(context, kernel, list(sources.values())), strict=True):
        outcomes[id_] = failed(built) if isinstance(built, BuildError) else built
    for id_, one in wanted.items():
        if isinstance(one, Path):
            try:
                outcomes[id_] = prebuilt(one, kernel)
            except UnsupportedError as error:
                outcomes[id_] = unsupported(str(error))
        elif isinstance(one, FolderModule):
            if one.folder not in folders:
                try:
                    folders[one.folder] = folder_modules(context, kernel, one.folder, {})
                except (BuildError, ConfigError) as error:
                    folders[one.folder] = failed(error)
            outcomes[id_] = _member(folders[one.folder], one)
    return outcomes


def _member(modules: Mapping[str, Module] | Refused, one: FolderModule) -> Module | Refused:
    if isinstance(modules, Refused):
        return modules
    try:
        *needed, module = with_needed(modules, one.folder, one.name, one.parameters)
    except UsageError as error:
        return failed(error)
    return replace(module, needed=tuple(needed))


def template_outcome(context: BuildContext, kernel: Kernel, template: str, smp: int) -> Prepared[Module]:
    """A module of ``kmods`` that all cells of a boot share, on a machine with ``smp`` CPUs."""
    (module,) = build_modules(context, kernel, [render(template, {})])
    if isinstance(module, BuildError):
        return failed(module)
    return Ready(module, (module,), (*smp_note(kernel, smp), *compiler_note(kernel, module)))


def with_parameters(module: Module, given: Mapping[str, str]) -> Module | Refused:
    """A user's module with load parameters; refused if it lacks one of them."""
    try:
        check_parameter_names(module, given)
    except UsageError as error:
        return Refused("failed", str(error), (module,))
    return replace(module, parameters=given)


def user_sources(kind: ProbeKind, module: OwnModule | None, image: str | None) -> Mapping[str, UserSource]:
    """The user's parts of a cell's probe and image: a module with its includes, a one-liner, a recipe."""
    sources: dict[str, UserSource] = {}
    if kind.one_liner is not None:
        sources["probe"] = line_source(f"{PREFIX} {kind.one_liner}")
    if isinstance(module, FolderModule):
        sources["probe"] = folder_source(module.folder)
    elif kind.file is not None:
        sources["probe"] = user_source(kind.file, module.origins.values() if isinstance(module, ModuleSource) else [])
    if image is not None and image.endswith(SUFFIX):
        sources["image"] = user_source(Path(image))
    return sources


def smp_note(kernel: Kernel, cpus: int) -> tuple[str, ...]:
    """The note of an SMP kernel on one virtual CPU; empty for any other."""
    if not kernel.smp or cpus != 1:
        return ()
    # Linux 7.3 has no table of lock prefixes any more, and never removes them.
    has_table = kernel.code is None or ".smp_locks" in kernel.code.sections
    return ("an SMP kernel on one virtual CPU" + (", its lock prefixes kept (noreplace-smp)" if has_table else ""),)


def compiler_note(kernel: Kernel, module: Module | None) -> tuple[str, ...]:
    """Notes on a module that was compiled here: by another compiler than its kernel, or with warnings."""
    if module is None or module.sources is None:
        return ()
    other = () if kernel.compiler_note is None else (kernel.compiler_note,)
    return (*other, warning_note(module.name, module.warnings)) if module.warnings else other


def parameters_note(given: Mapping[str, str]) -> tuple[str, ...]:
    """The note of a user's module that is loaded with parameters."""
    return (f"loaded with {written(given)}",) if given else ()


@dataclass(frozen=True)
class BootArtifacts:
    """A boot's kernel and machine, and what was prepared for each cell, by cell id.

    ``kernel_modules`` are the kernel's own modules to load first: files by name, in loading order. ``plugin`` counts
    instructions on a machine without a counter to explain a failure; None if it is made on demand.
    """

    kernel: Kernel
    machine: Machine
    cells: Mapping[str, Prepared[Any]]
    kernel_modules: Mapping[str, Path] = field(default_factory=dict)
    plugin: Path | None = None

    @property
    def keys(self) -> dict[str, str]:
        """Keys of the exact content of everything: kernel, initramfs, image, and for each cell modules and the rest."""
        keys = {"kernel": self.kernel.key, "initramfs": self.machine.initramfs.parent.name}
        if self.kernel.spec.parameters:
            keys["parameters"] = " ".join(self.kernel.spec.parameters)
        if self.machine.root is not None:
            keys["image"] = self.machine.root.key
        if self.machine.counter is not None:
            keys["counting plugin"] = self.machine.counter.file.parent.name
        if self.kernel_modules:
            keys |= {disk.name: disk.file.parent.name for disk in self.machine.data}
            keys["loaded modules"] = ", ".join(self.kernel_modules)  # the disk has all modules of the kernel
        for cell, prepared in self.cells.items():
            keys |= {f"{cell}: {module.name}": module.key for module in prepared.modules}
            keys |= {f"{cell}: {name}": key for name, key in prepared.keys.items()}
        return keys


def prepare(context: BuildContext, kind: BenchmarkKind, boot: Boot) -> BootArtifacts:
    """Fetch and build what a boot needs. Raises HostError and the like if there is no kernel to boot.

    A module that does not build, or a point or kernel module that this kernel lacks, fails only its own cells.
    """
    kernel = ready_kernel(context, boot.spec)
    boot, reasons = checked_cells(kind, kernel, boot)
    machine = machine_of(context, kernel, boot)
    refused = {id_: unsupported(reason) for id_, reason in reasons.items()}
    rest = [cell for cell in boot.cells if cell.id not in refused]
    cells = {**refused, **(kind.prepare(context, kernel, rest) if rest else {})}
    if any(isinstance(one, Ready) and one.needs_counter for one in cells.values()) and not machine.counts_code:
        machine = counting(context, machine)
    return BootArtifacts(kernel, machine, cells, loaded_files(kernel, boot.kernel_modules))


def checked_cells(kind: BenchmarkKind, kernel: Kernel, boot: Boot) -> tuple[Boot, Mapping[str, str]]:
    """The boot, and why the kernel cannot have some of its cells, by cell id. Nothing is built or started for this.

    If the kernel lacks some of the requested kernel modules, the boot is without any.
    """
    missing = missing_module_reason(kernel, boot.kernel_modules)
    if missing is not None:
        return replace(boot, kernel_modules=()), {cell.id: missing for cell in boot.cells}
    wrong = wrong_points(kernel, boot.cells)
    refused = kind.refused(kernel, [cell for cell in boot.cells if cell.id not in wrong])
    return boot, {**wrong, **{id_: reason for id_, reason in refused.items() if reason is not None}}


def without_number(cell: Cell[Any], status: Status, reason: str, release: str | None = None) -> CellRecord:
    """The outcome of a cell without a number, with the reason, and its kernel's release if known."""
    known = {} if release is None else {KERNEL_RELEASE: release}
    return CellRecord(**identity(cell), parameters={**cell.parameters, **known}, status=status, reason=reason)


def identity(cell: Cell[Any]) -> dict[str, Any]:
    """The fields that identify a cell, without its parameters."""
    same = ("id", "table", "cpu", "smp", "probe", "handler", "benchmark", "metric", "clock")
    return {**{name: getattr(cell, name) for name in same}, "kernel": cell.spec.name, "unit": UNITS[cell.clock]}


_NAMED_OPTIONS = 4
"""A record's text has at most 200 characters; lockdep brings twenty options."""


def kernel_facts(kernel: Kernel) -> dict[str, str]:
    """What records say of their kernel."""
    facts: dict[str, str] = {KERNEL_RELEASE: kernel.release}
    if kernel.spec.parameters:
        facts[USUAL_PARAMETERS] = " ".join(machine_facts().kernel_parameters)
    if kernel.implied:
        implied = [f"{option}={value}" for option, value in kernel.implied.items()]
        facts[IMPLIED_OPTIONS] = ", ".join(shown(implied, _NAMED_OPTIONS, "{} more (build kernel lists them)"))
    return facts


def changed(record: CellRecord, **fields: object) -> CellRecord:
    """The record with some fields replaced, validated again. Raises EvidenceError if it violates the contract."""
    with valid_result():
        return CellRecord.model_validate({**dict(record), **fields})


def compared(
    kind: BenchmarkKind, cell: Cell[Any], record: CellRecord, outcomes: Mapping[str, CellRecord]
) -> CellRecord:
    """The record as its kind completes it; a failed one if the comparison proves it wrong.

    ``outcomes`` are records by id, including those of ``cell.compared_with``; records without a number are skipped.
    """
    if record.status != "ok":
        return record
    found = [outcomes[other] for other in cell.compared_with if other in outcomes]
    try:
        return kind.compare(cell, record, [other for other in found if other.status == "ok"])
    except EvidenceError as error:
        return without_number(cell, "failed", str(error))


@dataclass(frozen=True)
class Progress:
    """Something that takes noticeable time begins: a download, a build, a boot; here or on a ``worker`` of a fleet."""

    text: str
    worker: str = ""


@dataclass(frozen=True)
class CellBegan:
    """A cell is being measured."""

    cell: CellId


@dataclass(frozen=True)
class GuestBooted:
    """A guest is about to run: its name, shared with its logs, QEMU's command line, and the content of its work.

    ``restored_from`` is the key of the saved guest that it was restored from; None if it was booted. ``worker`` is the
    fleet's worker that runs it; empty here.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@=,-]{0,249}$")]
    command_line: tuple[str, ...]
    work: Mapping[str, str] = field(default_factory=dict)
    restored_from: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")] | None = None
    worker: str = ""


@dataclass(frozen=True)
class Outcome:
    """A cell has a record; ``is_compared`` if everything that it is compared with was in the same boot."""

    record: CellRecord
    is_compared: bool = False


Event = Progress | CellBegan | GuestBooted | Outcome


EVENTS_FOLDER = "events"
PROFILES_FOLDER = stored_profile.FOLDER


@dataclass(frozen=True)
class BootTask:
    """A boot to do, with those of its cells that have no outcome yet.

    Logs and other files of the boot go into ``directory``, which is its own. With ``keep_events``, recorded events are
    kept there as CSV. With ``fresh``, its guests are booted and never restored. ``guests`` is the number of guests that
    the boot has already had elsewhere, so that names stay unique.
    """

    kind: BenchmarkKind
    boot: Boot
    cells: tuple[Cell[Any], ...]
    directory: Path
    keep_events: bool = False
    fresh: bool = False
    guests: int = 0


@dataclass
class Session:
    """The context of a boot's measurement: its task, its local artifacts, and the receiver of its events.

    ``watch`` is called with each guest before it runs.
    """

    task: BootTask
    artifacts: BootArtifacts
    context: BuildContext
    emit: Callable[[Event], None]
    watch: Callable[[Guest], None] = unwatched
    begun: list[str] = field(default_factory=list)
    records: dict[str, CellRecord] = field(default_factory=dict)
    """The cells measured in this boot so far, by id."""
    guest_still_sound: set[str] = field(default_factory=set)
    """Failed cells that are proved to have left their guest intact."""
    switched: int = 0
    """Static branches that kernels have switched by themselves between cells of this boot so far."""

    def __post_init__(self) -> None:
        self.context = replace(self.context, say=self.report)

    def report(self, text: str) -> None:
        self.emit(Progress(text))

    def begin(self, cell: Cell[Any]) -> None:
        self.begun.append(cell.id)
        self.emit(CellBegan(cell.id))

    def setup(self, cell: Cell[Any]) -> Ready[Any]:
        prepared = self.artifacts.cells[cell.id]
        assert isinstance(prepared, Ready)
        return prepared

    def events_file(self, cell: Cell[Any]) -> Path | None:
        """The file for a recording cell's events, if they are kept; the only special character of ids is a slash."""
        if not self.task.keep_events:
            return None
        return self.task.directory / EVENTS_FOLDER / f"{cell.id.replace('/', '.')}.csv"

    def profile_file(self, cell: Cell[Any]) -> Path | None:
        return self._profile_file(cell.id) if cell.profile else None

    def end(self, outcome: Outcome) -> None:
        """Emit a cell's outcome, and remove the profile if the cell failed after writing it."""
        if outcome.record.profile is None:
            file = self._profile_file(outcome.record.id)
            with storage_faults(file):
                file.unlink(missing_ok=True)
                stored_profile.plain_file(file).unlink(missing_ok=True)
        with step(f"store {outcome.record.id}"):
            self.emit(outcome)

    def _profile_file(self, cell_id: str) -> Path:
        return self.task.directory / PROFILES_FOLDER / stored_profile.file_name(cell_id)

    def guest_name(self) -> str:
        """The name of the boot's next guest and of its logs; those of earlier guests are kept."""
        machine = f"{self.task.boot.cpu}-{self.task.boot.spec.name}"
        names = (f"guest{number}-{machine}" for number in count(self.task.guests + 1))
        return next(name for name in names if not (self.task.directory / f"{name}.console").exists())


def run_boot(session: Session) -> None:
    """Give every cell of the session's task an outcome, in as many guests as failures make necessary.

    This is the failure policy of all kinds of benchmark. A failed cell ends its guest, so that nothing it left behind
    is measured, unless it is ``guest_still_sound``: proved to have left nothing. The cells after it get a fresh guest.
    An error fails the cells that had begun, or all if none had: without a guest there is nothing to measure in, and as
    the exact clock repeats everything, so would a second try. A QEMU that was killed fails one cell only. HostError and
    UsageError end the run and are raised, as does a full disk whatever failed because of it.
    """
    task = session.task
    release = session.artifacts.kernel.release
    task.directory.mkdir(parents=True, exist_ok=True)
    remove_leftovers(task.directory)
    waiting: list[Cell[Any]] = []
    for cell in task.cells:
        prepared = session.artifacts.cells[cell.id]
        if isinstance(prepared, Refused):
            session.emit(Outcome(without_number(cell, prepared.status, prepared.reason, release)))
        else:
            waiting.append(cell)
    while waiting:
        ended = _in_one_guest(session, waiting)
        if not ended:
            # Another guest would end the same.
            for cell in waiting:
                reason = f"benchmark kind '{task.kind.name}' measured its cells and made no record"
                session.emit(Outcome(without_number(cell, "failed", reason, release)))
            return
        waiting = [cell for cell in waiting if cell.id not in ended]


def _in_one_guest(session: Session, cells: Sequence[Cell[Any]]) -> set[str]:
    """Measure cells until one fails or none is left; returns the ids of those with an outcome."""
    session.begun.clear()
    ended: set[str] = set()
    try:
        with closing(session.task.kind.measure(session, cells)) as records:
            for measured in records:
                check_room(session.task.directory)
                session.records[measured.id] = measured
                cell = next(cell for cell in session.task.cells if cell.id == measured.id)
                is_compared = all(other in session.records for other in cell.compared_with)
                if is_compared:  # everything it is compared with was measured in this boot
                    session.records[cell.id] = compared(session.task.kind, cell, measured, session.records)
                outcome = Outcome(session.records[cell.id], is_compared)
                ended.add(measured.id)
                session.end(outcome)
                if outcome.record.status == "failed" and measured.id not in session.guest_still_sound:
                    break
    except LabError as error:
        if isinstance(error, HostError | UsageError):
            raise
        refusal = failed(error)
        check_room(session.task.directory)
        concerned = [cell for cell in cells if cell.id in session.begun and cell.id not in ended]
        if not concerned:
            # Unsupported is a property of a cell's work; a guest that does not boot has failed.
            concerned = [cell for cell in cells if cell.id not in ended]
            refusal = replace(refusal, status="failed")
            if isinstance(error, GuestExit) and error.status == -signal.SIGKILL:
                concerned = concerned[:1]
        for cell in concerned:
            ended.add(cell.id)
            session.end(Outcome(without_number(cell, refusal.status, refusal.reason, session.artifacts.kernel.release)))
    return ended


@dataclass(frozen=True)
class ReadyGuest:
    """A running guest and what was read from it once for all its cells."""

    guest: Guest
    artifacts: BootArtifacts
    symbols: Symbols


@contextmanager
def ready_guest(
    context: BuildContext,
    artifacts: BootArtifacts,
    directory: Path,
    name: str,
    *,
    fresh: bool = False,
    watch: Callable[[Guest], None] = unwatched,
) -> Iterator[ReadyGuest]:
    """Start a guest for measuring as ``GuestStart`` does, and load its kernel modules; it is killed at the end.

    Raises GuestError, or EvidenceError for a guest that fails the checks.
    """
    with GuestStart(context, artifacts.machine, directory, name, watch).guest(fresh=fresh) as guest:
        if guest.restored_from is None:  # a restored one was checked already
            check_cpus(guest)
            wait_for_clocksource(guest)
        load_kernel_modules(guest, artifacts.kernel_modules)
        yield ReadyGuest(guest, artifacts, Symbols.at_start(guest, artifacts.kernel_modules))


TaskT = TypeVar("TaskT")


def measure_in_one_guest(
    session: Session, cells: Sequence[Cell[TaskT]], measure_cell: Callable[[ReadyGuest, Cell[TaskT]], CellRecord]
) -> Generator[CellRecord, None, None]:
    """Yield the records of cells measured one after the other in one guest, which is killed at the end.

    Each cell must leave the kernel's text unchanged. This includes cells that CPU, kernel or module turn out not to
    support, or whose calls never enter the probed function: they do not end the guest.
    """
    boot, name = session.task.boot, session.guest_name()
    fresh, release = session.task.fresh, session.artifacts.kernel.release
    session.report(f"starting {boot.spec.name} on {boot.cpu}")
    with ready_guest(
        session.context, session.artifacts, session.task.directory, name, fresh=fresh, watch=session.watch
    ) as ready:
        session.emit(GuestBooted(name, ready.guest.command_line, restored_from=ready.guest.restored_from))
        text = KernelText(ready.guest, ready.symbols)
        for cell in cells:
            session.begin(cell)
            try:
                with step(f"measure {cell.id}"):
                    record = measure_cell(ready, cell)
            except UnsupportedError as error:
                record = without_number(cell, "unsupported", str(error), release)
            except NotEntered as error:
                record = without_number(cell, "failed", str(error), release)
                # An EvidenceError of the following comparison is raised, and ends the guest.
                session.guest_still_sound.add(cell.id)
            with step("compare the kernel's text"), valid_result():
                unchanged = text.unchanged()
                session.switched += len(unchanged.switched)
            yield changed(record, text=unchanged) if record.status == "ok" else record
