# SPDX-License-Identifier: GPL-2.0-only
"""The result contract: ``report --format json`` prints these models, and the store keeps them.

The models reject contradictory records, so that no number exists without the evidence for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isclose
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
    model_validator,
)

from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError, LabError
from orchestrator.plain_text import cut, plain_text
from orchestrator.results.statistics import mean, median

LONGEST_REASON = 4000
"""The most characters kept of a reason; a compiler or a console may print more."""

CONTRACT: Literal[1] = 1
"""The contract's version. Removing or redefining a key needs a new version; adding a key does not."""

CONTRACT_OF_COMPARISONS: Literal[2] = 2
"""The version of what ``compare``, ``series``, ``nightly`` and ``cost`` print for programs.

Version 1 had no number and other words: dearer, cheaper, mended, vanished, appeared, and the key ``beyond``.
"""

Status = Literal["ok", "failed", "skipped", "unsupported"]
Clock = Literal["instructions", "wall"]
Unit = Literal["instructions", "ns"]

UNITS: dict[Clock, Unit] = {"instructions": "instructions", "wall": "ns"}
PER_CALL = "cost per call"
PER_RUN = "cost per run"
PER_LOOP = "cost per loop"
"""Metrics: of calls in batches without an interrupt, of whole runs with their timer ticks, of a loop's rounds."""


def centre_of(clock: Clock, metric: str) -> Callable[[Sequence[float]], float]:
    """The function that computes a cell's value: the mean of exact samples, which are equal, else the median."""
    return mean if clock == "instructions" and metric != PER_RUN else median


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@=,-]*$", max_length=200)]
CellId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@=,/-]*$", max_length=400)]
LONGEST_PHRASE = 200
Phrase = Annotated[str, StringConstraints(pattern=r"^[ -~]*$", max_length=LONGEST_PHRASE)]
HexBytes = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){0,64}$")]
Address = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{1,16}$")]
AddressRange = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{1,16}-0x[0-9a-f]{1,16}$")]
Symbol = Annotated[
    str,
    StringConstraints(
        pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.+-]*:([A-Za-z_][A-Za-z0-9_]*:)?)?[A-Za-z_][A-Za-z0-9_.]*(\+0x[0-9a-f]+)?$",
        max_length=300,
    ),
]
Number = Annotated[float, Field(allow_inf_nan=False)]
# The limit of SQLite and most JSON readers.
Count = Annotated[int, Field(ge=0, lt=2**63)]
Instructions = Annotated[int, Field(gt=-(2**63), lt=2**63)]
"""Executed instructions less those of an empty batch, so the count of a purpose may be negative."""


def _printable(text: object) -> object:
    """Escape and shorten a sentence: reasons quote the guest's output, which is untrusted."""
    if not isinstance(text, str):
        return text
    return cut(plain_text(text.expandtabs()), LONGEST_REASON)


def _ordered(interval: tuple[float, float]) -> tuple[float, float]:
    if interval[0] > interval[1]:
        raise ValueError("an interval's lower end comes first")
    return interval


Reason = Annotated[str, BeforeValidator(_printable), StringConstraints(strip_whitespace=True, min_length=1)]
Interval = Annotated[tuple[Number, Number], AfterValidator(_ordered)]


class Record(BaseModel):
    """A part of a result: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def stored_in(cls, file: Path) -> Self:
        """Read a JSON file. Raises LabError for a missing, damaged or foreign one."""
        try:
            return cls.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            raise LabError("damaged, or written by another version of this program", where=str(file)) from None


class ProgramRuns(Record):
    """A program of a tool, and how often the counted calls ran it."""

    name: Phrase
    """The program's name."""
    attached: Phrase
    """How and where the kernel says that it is attached; empty where it does not say."""
    runs: Count
    """Its runs in the counted calls, by the kernel's own count, less those of a pass without calls."""
    address: Address
    """Where its machine code begins."""
    size: Count
    """Bytes of its machine code."""


class Evidence(Record):
    """The proof that a cell measured the probe it names."""

    mechanism: Name
    """The mechanism that the live bytes at the probe point show: ``none``, ``int3``, ``jump``, ``ftrace``, ``jmp``."""
    probe_bytes: HexBytes
    """The live bytes at the probe point during the timed calls."""
    hits: Count
    """Runs of the handler in the counting pass."""
    calls: Count
    """Calls of the counting pass."""
    restored: bool
    """Whether the original bytes were back after the module was unloaded."""
    clocksource: Phrase
    """The guest kernel's clocksource during the measurement."""
    int3: Count | None
    """Breakpoint traps in the counting pass, counted by QEMU; None under KVM, or if others' traps may be included."""
    original_bytes: HexBytes
    """The bytes at the probe point before the module was loaded."""
    address: Address
    """The address of the probe point."""
    symbol: Symbol
    """The probe point: ``__ia32_sys_gettimeofday+0x5``; in user space ``program:workload``, ``libc.so.6:malloc``."""
    flag: Phrase
    """The probe's flags in the guest's kprobes/list, or empty."""
    detour: AddressRange | None = None
    """The detour buffer that a jump leads to."""
    recorded: Count | None = None
    """Events of the counting pass that were read back and checked; of recording handlers only."""
    taint: Count
    """The guest kernel's taint mask."""
    batches: Count
    """Timed batches that were used."""
    disturbed: Count
    """Timed batches that were repeated because of an interrupt."""
    hits_per_call: Count = 1
    """Expected hits per call."""
    others: Count | None = None
    """Hits by other processes than the calling one; None if they were not counted."""
    programs: tuple[ProgramRuns, ...] = ()
    """The programs of a tool, each with its runs; of a tool each call is a hit. Empty for other probes."""


class WorkEvidence(Record):
    """The proof that each run of a whole-system workload did the same work, with or without a module."""

    mechanism: Name
    """How events were recorded (``int3``, ``jmp``, ``jump``, ``marker``), ``module`` for a user's, or ``none``."""
    runs: Count
    """Runs of the same work: one cold run and the warm runs."""
    done: Count
    """The work of each run: objects compiled, packets answered, or 1 for a successful command."""
    digest: HexBytes
    """SHA-256 of each run's result; empty without one."""
    restored: bool | None
    """Whether the original bytes were back at all probe points; None without probe points."""
    clocksource: Phrase
    """The guest kernel's clocksource after the work."""
    taint: Count
    """The guest kernel's taint mask."""
    places: Count = 0
    """Probe points armed during all runs."""
    recorded: Count | None = None
    """Events recorded; None without a recorder."""
    lost: Count | None = None
    """Events that were not recorded."""
    overwritten: Count | None = None
    """Recorded events that later ones overwrote."""

    def contradiction(self, *, baseline: bool, samples: int) -> str | None:
        """Why the evidence contradicts a cell with this number of samples, or None."""
        if baseline != (self.mechanism == "none"):
            return f"a cell with{'out' if baseline else ''} a probe cannot have the mechanism {self.mechanism}"
        if not self.done or self.runs <= samples:
            return f"{self.runs} runs with {self.done} done in each are no evidence for {samples} warm ones"
        if (self.recorded is None) != (self.mechanism in ("none", "module")):
            return "only probes record events"
        if self.recorded is not None and not self.restored:
            return "the original bytes were not restored"
        if self.recorded is not None and not (self.recorded and self.places):
            return f"{self.recorded} events at {self.places} places are no evidence of recording"
        return None


class SwitchedBranch(Record):
    """A static branch in the kernel's text that the kernel switched between a nop and a jump."""

    place: Symbol
    """Its place in the kernel."""
    key: Phrase
    """Its static key: the name, or the address on kernels that do not list data symbols."""
    before: HexBytes
    """The bytes before the cell."""
    after: HexBytes
    """The bytes after the cell."""


class TextEvidence(Record):
    """The proof that a cell left the kernel's text unchanged, as read by QEMU."""

    digest: HexBytes
    """SHA-256 of the text after the cell: of the kernel (``_stext`` to ``_etext``), then of ``modules``."""
    size: Count
    """The size of the text in bytes."""
    modules: tuple[Phrase, ...] = ()
    """The modules loaded before the first cell."""
    switched: tuple[SwitchedBranch, ...] = ()
    """The static branches that the kernel switched during the cell."""
    patched: dict[Phrase, Count] | None = None
    """Only in runs of earlier versions, of unattended guests: patches of the image's text at boot, by type."""


PartKind = Literal["user", "call", "exception", "interrupt", "kernel"]
BACKGROUND: tuple[PartKind, ...] = ("interrupt", "kernel")
"""What happens while a program runs: it is not among its samples."""
MOST_COUNTED_RUNS = 15
"""Runs of a program that are counted: the counts of all go into a file of bounded size. Their number is odd."""


class RunPart(Record):
    """A part of a program's run: by what entered the kernel for it, or what ran in user space."""

    kind: PartKind
    """``call`` is a system call, ``kernel`` what none entered: kernel threads, and processes that begin."""
    name: Phrase = ""
    """The system call's name, or the exception's."""
    calls: Count
    """How often it was begun; 0 in user space."""
    instructions: Count
    """The instructions of the median run."""
    runs: tuple[Count, ...]
    """The instructions of each run."""
    plain: tuple[Count, ...] = ()
    """With a probe, the instructions of each run without it, right before and right after these."""


class ProfileEvidence(Record):
    """The proof of a cell's profile, which is a file in the run's folder ``profiles``."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """The digest of the file."""
    calls: Annotated[int, Field(ge=1, lt=2**63)]
    """The counted calls."""
    instructions: Count
    """The instructions of these calls, as QEMU counted them one by one."""
    int3: Count
    """Breakpoint instructions among them."""
    repetitions: Count | None = None
    """Repetitions of string instructions (``rep stos``) among them, which a CPU's counter leaves out."""
    purposes: dict[Name, Instructions] | None = None
    """The instructions by purpose (see ``catalog.words.purposes``), if requested."""
    plain: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    """The digest of another file, if calls vary: the calls without the probe, counted in turn with these."""
    parts: tuple[RunPart, ...] = ()
    """The median run of a program by what entered the kernel; those of the program itself add up to the value."""
    ticks: Count | None = None
    """The instructions of the same work by the clock, of whole systems, which include timer ticks and faults."""
    faults: Count = 0
    """Faults in a whole system's work, each of which may have counted an instruction twice."""
    halts: Count = 0
    """Halts of the CPU in a whole system's work, after which the clock jumps to the next timer."""

    def contradiction(self, samples: Sequence[float], evidence: Evidence | None) -> str | None:
        """Why the profile contradicts a cell with these samples and this evidence, or None."""
        if self.ticks is not None:
            possible = (0 if self.halts else self.ticks) <= self.instructions <= self.ticks + self.faults
            counted = f"{self.instructions} instructions, the clock {self.ticks}"
            if not possible:
                return f"the profile has {counted}, with {self.faults} faults and {self.halts} halts"
            program_runs = [part.runs for part in self.parts if part.kind not in BACKGROUND]
            sums = [float(sum(run)) for run in zip(*program_runs, strict=True)] if self.parts else [*samples]
            return None if sums == [*samples] else f"the parts of the runs add up to {sums[:4]}, not to the samples"
        if evidence is None:
            return "a profile of a whole system lacks the clock's count"
        if len(set(samples)) == 1 and self.instructions / self.calls != samples[0]:
            counted = f"{self.instructions} instructions in {self.calls} calls"
            given = ", ".join(f"{sample:.10g}" for sample in samples[:4])
            return f"the profile has {counted}, but the samples are {given}"
        if evidence.int3 is not None and self.int3 * evidence.calls != evidence.int3 * self.calls:
            traps = f"{evidence.int3} traps in {evidence.calls} calls"
            return f"the profile has {self.int3} int3 in {self.calls} calls, but QEMU took {traps}"
        if self.purposes is not None and sum(self.purposes.values()) != self.instructions:
            return f"the purposes have {sum(self.purposes.values())} instructions, but the profile {self.instructions}"
        return None

    @model_serializer(mode="wrap")
    def _bounds_of_work_only(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        for name in ("ticks", "faults", "halts") if self.ticks is None else ():
            fields.pop(name)
        for name in ("repetitions", "plain"):
            if fields[name] is None:
                fields.pop(name)
        if not self.parts:
            fields.pop("parts")
        return fields


_UNEVEN = 0.002
"""Fraction of a call by which passes that record may differ; a page costs some 200 instructions."""


InstructionClass = Literal[
    "int3",
    "other traps",
    "iret",
    "system calls",
    "sysret",
    "calls",
    "returns",
    "popf",
    "pushf",
    "rdtsc",
    "locked",
]
"""Instructions that take far longer than others; ``images/plugin/classes.c`` knows them by their bytes."""


class ExecutedClasses(Record):
    """What calls executed, by class of instructions: modelled time is computed from it (``orchestrator.model``)."""

    calls: Annotated[int, Field(ge=1, lt=2**63)]
    """The counted calls."""
    instructions: Count
    """All their instructions."""
    classes: dict[InstructionClass, Count]
    """How many of them are of each class; most are of none."""

    @model_validator(mode="after")
    def _each_class(self) -> Self:
        if self.classes.keys() != {*get_args(InstructionClass)}:
            raise ValueError(f"expected each class: {', '.join(get_args(InstructionClass))}")
        return self

    def agrees_with(self, sample: float, *, is_recording: bool) -> bool:
        """Whether calls of this cost were counted; how many events begin a page of their buffer may differ a little."""
        return abs(self.instructions / self.calls - sample) <= (_UNEVEN * sample if is_recording else 0.0)

    def contradiction(self, samples: Sequence[float], evidence: Evidence | None) -> str | None:
        """Why the counts contradict a cell with these samples and this evidence, or None."""
        is_recording = evidence is not None and evidence.recorded is not None
        if len(set(samples)) == 1 and not self.agrees_with(samples[0], is_recording=is_recording):
            return f"{self.instructions} instructions were counted in {self.calls} calls of {samples[0]:.10g}"
        traps = None if evidence is None else evidence.int3
        int3 = self.classes.get("int3", 0)
        if evidence is not None and traps is not None and int3 * evidence.calls != traps * self.calls:
            return f"{int3} int3 were counted in {self.calls} calls, but QEMU took {traps} in {evidence.calls} calls"
        return None


class ReferenceValue(Record):
    """The published figures for the same cell."""

    table: CellId
    """The published table."""
    value: Number | None = None
    """The published cost of a call with the probe; null if only the overhead was published."""
    overhead: Number
    """The published overhead of the probe."""
    unit: Name
    """The document's unit, such as ``ns``."""


class CellRecord(Record):
    """One cell's outcome: a number with its evidence, or the reason why there is none."""

    id: CellId
    """The cell's id within its run, and in other runs of the experiment."""
    table: Name | None = None
    """The cell's table, in an experiment with several."""
    cpu: Name
    """The CPU model of the guest."""
    smp: Annotated[int, Field(ge=1, le=1024)]
    """The guest's virtual CPUs."""
    kernel: Name
    """The kernel's name in the experiment, or a name derived from the path of your own kernel."""
    probe: Name
    """The probe, a row of the benchmark or a module; ``none`` in a baseline."""
    handler: Name
    """The action of a hit: ``noop``, ``count`` or ``record``. In a baseline there was no hit."""
    benchmark: Name
    """The benchmark's name."""
    metric: Phrase
    """The metric of a sample: ``cost per call``, ``cost per run``, ``cost per loop``, or one of the benchmark's."""
    clock: Clock
    """The clock: counted instructions, or times of the guest's clock."""
    unit: Unit
    """The unit of samples, value, overhead and interval: ``instructions``, or ``ns``."""
    status: Status
    """``ok`` has a number; ``failed``, ``skipped`` and ``unsupported`` have a reason."""
    reason: Reason | None = None
    """Why there is no number; absent if the status is ``ok``."""
    notes: tuple[Reason, ...] = ()
    """Notes on the number, such as a mechanism re-created by the module, or why there is no verdict."""
    samples: tuple[Number, ...] = ()
    """The result of each repetition, in the order of measurement."""
    value: Number | None = None
    """The mean of exactly counted samples, else their median."""
    overhead: Number | None = None
    """The value less the baseline's; 0 in a baseline, null without one."""
    interval: Interval | None = None
    """The 95 % interval of the overhead as its low and high end, if samples scatter.

    For a baseline of counted calls that scatter, the largest deviation of its samples.
    """
    parameters: dict[Name, Phrase | bool | Count | Number] = {}
    """Further facts that distinguish cells. ``kernel_release`` is printed in place of the kernel's name."""
    verdict: Literal["none"] | None = None
    """``none`` if the difference is too small to decide; a note says why."""
    purposes: dict[Name, Number] = {}
    """The overhead by purpose, if requested; a purpose that is absent costs 0."""
    evidence: Evidence | None = None
    """The proof of the mechanism, in a cell with a number."""
    work: WorkEvidence | None = None
    """The proof of a whole system's work, in place of ``evidence``; absent otherwise."""
    text: TextEvidence | None = None
    """The proof that the kernel's text is unchanged; absent in records of earlier versions."""
    profile: ProfileEvidence | None = None
    """The proof of the cell's profile; absent without one."""
    executed: ExecutedClasses | None = None
    """What modelled time is computed from; absent where nothing was counted."""
    worker: Name | None = None
    """The worker of a fleet that measured the cell; absent without a fleet."""
    reference: ReferenceValue | None = None
    """The published figures of the same cell, if any."""

    @property
    def calls_vary(self) -> bool:
        """Whether the cell's calls differ from each other on the exact clock."""
        return self.clock == "instructions" and self.metric == PER_CALL and len(set(self.samples)) > 1

    @property
    def first_line(self) -> str:
        return (self.reason or self.status).splitlines()[0]

    @model_validator(mode="after")
    def _unit_of_the_clock(self) -> Self:
        if self.unit != UNITS[self.clock]:
            raise ValueError(f"clock {self.clock} counts {UNITS[self.clock]}, not {self.unit}")
        return self

    @model_validator(mode="after")
    def _a_number_or_a_reason(self) -> Self:
        if self.status == "ok":
            self._require_number()
            self._require_evidence()
        elif self.reason is None:
            raise ValueError(f"a cell that is {self.status} needs a reason")
        elif self.samples or self.purposes or (self.value, self.overhead, self.interval) != (None, None, None):
            raise ValueError(f"a cell that is {self.status} carries no samples, value, overhead or interval")
        return self

    def _require_number(self) -> None:
        if self.reason is not None:
            raise ValueError("a cell that is ok has no reason")
        if not self.samples:
            raise ValueError("a cell that is ok has samples")
        centre = centre_of(self.clock, self.metric)
        if self.value != centre(self.samples):
            raise ValueError(f"value {self.value} is not the {centre.__name__} of the samples, {centre(self.samples)}")
        if self.verdict is not None and not self.notes:
            raise ValueError("a cell without a verdict needs a note with the reason")
        spent = sum(self.purposes.values())
        if self.purposes and not isclose(spent, self.overhead or 0.0, rel_tol=1e-9):
            raise ValueError(f"the purposes add up to {spent:.10g}, but the overhead is {self.overhead}")

    def _require_evidence(self) -> None:
        baseline = self.probe == BASELINE
        counts = [evidence for evidence in (self.profile, self.executed) if evidence is not None]
        wrong = (count.contradiction(self.samples, self.evidence) for count in counts)
        contradiction = next((why for why in wrong if why is not None), None)
        if contradiction is None and self.work is not None and self.evidence is None:
            contradiction = self.work.contradiction(baseline=baseline, samples=len(self.samples))
        if contradiction is not None:
            raise ValueError(contradiction)
        if self.work is not None and self.evidence is None:
            return
        if self.evidence is None or self.work is not None:
            raise ValueError("a number needs either the evidence of a probe or that of a whole system's work")
        if baseline != (self.evidence.mechanism == "none"):
            raise ValueError(f"probe {self.probe} cannot have the mechanism {self.evidence.mechanism}")
        if not self.evidence.calls or not self.evidence.probe_bytes:
            raise ValueError("no call was made, or no bytes were read at the probe point")
        if baseline and self.evidence.probe_bytes != self.evidence.original_bytes:
            raise ValueError("without a probe, the bytes at the probe point differ from the original ones")
        expected_hits = 0 if baseline else self.evidence.calls * self.evidence.hits_per_call
        if self.evidence.hits != expected_hits:
            raise ValueError(f"{self.evidence.hits} hits in {self.evidence.calls} calls, expected {expected_hits}")
        if not (baseline or self.evidence.restored):
            raise ValueError("the original bytes were not restored")

    @model_serializer(mode="wrap")
    def _only_what_there_is(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        for name in ("reason", "work", "text", "profile", "executed", "purposes", "worker"):
            if not fields.get(name):
                fields.pop(name, None)
        return fields


class RunRecord(Record):
    """One run and its cells."""

    contract: Literal[1] = CONTRACT
    """The contract's version; absent in records of earlier versions."""
    run: Name
    """The run's id."""
    experiment: Name
    """The experiment's name."""
    cells: tuple[CellRecord, ...]
    """The cells with an outcome so far, in the plan's order."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_known_contract(cls, fields: Any) -> Any:
        # First of all: a newer record has unknown keys.
        version = fields.get("contract") if isinstance(fields, dict) else None
        if isinstance(version, int) and version > CONTRACT:
            raise ValueError(f"a newer version of this program wrote it: contract {version}, known up to {CONTRACT}")
        return fields

    @model_validator(mode="after")
    def _each_cell_once(self) -> Self:
        if len({cell.id for cell in self.cells}) != len(self.cells):
            raise ValueError("two cells have the same id")
        return self


def all_ok(record: RunRecord) -> bool:
    """Whether no cell failed and at least one has a number; an unsupported cell is not a failure."""
    states = {cell.status for cell in record.cells}
    return "failed" not in states and "ok" in states


def json_text(record: RunRecord) -> str:
    """The contract as JSON: stable order, ASCII only, one newline at the end."""
    return json.dumps(record.model_dump(mode="json"), indent=2) + "\n"


@contextmanager
def valid_result() -> Iterator[None]:
    """Turn a ValidationError of a result made from a guest's report into an EvidenceError."""
    try:
        yield
    except ValidationError as error:
        first, *further = error.errors(include_url=False)
        if first["type"] == "value_error" and not further:  # a contradiction that this module found
            raise EvidenceError(str(first["ctx"]["error"])) from None
        raise EvidenceError("the guest's report is not a valid result", detail=str(error).splitlines()) from None
