# SPDX-License-Identifier: GPL-2.0-only
"""The result contract: ``report --format json`` prints these models, and the store keeps them.

They refuse contradictory records, so that no number exists without the evidence that it measures what it claims to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isclose
from typing import Annotated, Any, Literal, Self

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
from orchestrator.errors import EvidenceError
from orchestrator.plain_text import cut, plain_text
from orchestrator.results.statistics import mean, median

LONGEST_REASON = 4000
"""Characters kept of a reason; a compiler or a console may print far more."""

CONTRACT: Literal[1] = 1
"""The contract's version. A key that goes or means something else makes a new one; a further key does not."""

Status = Literal["ok", "failed", "skipped", "unsupported"]
Clock = Literal["instructions", "wall"]
Unit = Literal["instructions", "ns"]

UNITS: dict[Clock, Unit] = {"instructions": "instructions", "wall": "ns"}
PER_CALL = "cost per call"
PER_RUN = "cost per run"
PER_LOOP = "cost per loop"
"""Metrics: of calls in batches that nothing fell into, of whole runs with their timer ticks, and of a loop's rounds."""


def centre_of(clock: Clock, metric: str) -> Callable[[Sequence[float]], float]:
    """The function that gives a cell's value: the mean of exact samples, which are equal, or the median of others."""
    return mean if clock == "instructions" and metric != PER_RUN else median


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@-]*$", max_length=200)]
CellId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@=,/-]*$", max_length=400)]
Phrase = Annotated[str, StringConstraints(pattern=r"^[ -~]*$", max_length=200)]
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
# SQLite and most JSON readers hold 64 bits.
Count = Annotated[int, Field(ge=0, lt=2**63)]
Instructions = Annotated[int, Field(gt=-(2**63), lt=2**63)]
"""Executed, without those of an empty batch; a purpose may lack what the empty batch had."""


def _printable(text: object) -> object:
    """Make a sentence safe to store and to print: reasons quote the guest's output, which is untrusted."""
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
    """A part of a result: it never changes, and has no key that this version does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(Record):
    """The proof that a cell measured what its name states."""

    mechanism: Name
    """How the probe point was reached, as its live bytes show: ``none``, ``int3``, ``jump``, ``ftrace``, ``jmp``."""
    probe_bytes: HexBytes
    """The live bytes at the probe point while the timed calls ran."""
    hits: Count
    """How often the handler ran in the counting pass."""
    calls: Count
    """How many calls that pass made."""
    restored: bool
    """Whether the original bytes were back after the module had been unloaded."""
    clocksource: Phrase
    """The guest kernel's clocksource while it was measured."""
    int3: Count | None
    """Breakpoint traps in the counting pass, counted by QEMU; None under KVM, and where others' may be among them."""
    original_bytes: HexBytes
    """The bytes at the probe point before the module was loaded."""
    address: Address
    """The probe point."""
    symbol: Symbol
    """By name: ``__ia32_sys_gettimeofday+0x5``; in the calling program ``program:workload``, ``libc.so.6:malloc``."""
    flag: Phrase
    """The probe's flags in the guest's kprobes/list, or empty."""
    detour: AddressRange | None = None
    """The detour buffer a jump landed in."""
    recorded: Count | None = None
    """Events of the counting pass that were read back and checked; of recording handlers only."""
    taint: Count
    """The guest kernel's taint mask."""
    batches: Count
    """Timed batches that count."""
    disturbed: Count
    """Timed batches that an interrupt fell into and that were repeated."""
    hits_per_call: Count = 1
    """Expected hits of each call."""
    others: Count | None = None
    """Hits by processes other than the one that made the calls; None where they were not counted."""


class WorkEvidence(Record):
    """The proof that each run of a whole-system workload did the same work, with or without a module beside it."""

    mechanism: Name
    """How events were recorded (``int3``, ``jmp``, ``jump``, ``marker``), ``module`` for a user's own, or ``none``."""
    runs: Count
    """Runs that did the same work: the cold one and the warm ones."""
    done: Count
    """The work of each run: objects compiled, packets answered, or 1 for a command that succeeded."""
    digest: HexBytes
    """SHA-256 of each run's result; empty where it has none."""
    restored: bool | None
    """Whether all probe points had their original bytes again; None where the lab had none."""
    clocksource: Phrase
    """The guest kernel's clocksource after the work."""
    taint: Count
    """The guest kernel's taint mask."""
    places: Count = 0
    """Probe points that were armed during all runs."""
    recorded: Count | None = None
    """Events recorded; None without a recorder."""
    lost: Count | None = None
    """Events that occurred and were not recorded."""
    overwritten: Count | None = None
    """Recorded events that later ones have replaced."""

    def contradiction(self, *, baseline: bool, samples: int) -> str | None:
        """Why the evidence contradicts a cell with this number of samples; None where it does not."""
        if baseline != (self.mechanism == "none"):
            return f"a cell with{'out' if baseline else ''} a probe cannot have the mechanism {self.mechanism}"
        if not self.done or self.runs <= samples:
            return f"{self.runs} runs with {self.done} done in each are no evidence for {samples} warm ones"
        if (self.recorded is None) != (self.mechanism in ("none", "module")):
            return "only probes record events"
        if self.recorded is not None and not self.restored:
            return "the original bytes did not come back"
        if self.recorded is not None and not (self.recorded and self.places):
            return f"{self.recorded} events at {self.places} places are no evidence of recording"
        return None


class SwitchedBranch(Record):
    """A static branch in the kernel's text that the kernel switched: between a nop and a jump."""

    place: Symbol
    """Where in the kernel it is."""
    key: Phrase
    """The static key that decides about it, by its name, or by its address on kernels that do not list data."""
    before: HexBytes
    """The bytes before the cell."""
    after: HexBytes
    """The bytes after the cell."""


class TextEvidence(Record):
    """The proof that a cell left the kernel's text as it was; QEMU reads it from outside."""

    digest: HexBytes
    """SHA-256 of the text after the cell: of the kernel (``_stext`` to ``_etext``), then of ``modules``."""
    size: Count
    """Bytes of it."""
    modules: tuple[Phrase, ...] = ()
    """The modules that were loaded before the first cell."""
    switched: tuple[SwitchedBranch, ...] = ()
    """The static branches that differ from the text before the cell."""
    patched: dict[Phrase, Count] | None = None
    """Of earlier runs' guests that worked unattended: what a boot had patched in the image's text, by kind."""


class ProfileEvidence(Record):
    """The proof of a cell's profile, which is a file of its own in the run's folder ``profiles``."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """Of the file."""
    calls: Annotated[int, Field(ge=1, lt=2**63)]
    """The calls that were counted."""
    instructions: Count
    """All that these calls executed, as QEMU counted them one by one."""
    int3: Count
    """Breakpoint instructions among them."""
    repetitions: Count | None = None
    """Repetitions of string instructions (``rep stos``) among them, which a CPU's counter leaves out."""
    purposes: dict[Name, Instructions] | None = None
    """The instructions by what they are for, where that was asked for: see ``catalog.purposes``."""
    ticks: Count | None = None
    """What the clock says of the same work, where that is timed as a whole, with ticks and faults; None of calls."""
    faults: Count = 0
    """How often an instruction may have been counted twice, since a fault's handler was entered, in such work."""
    halts: Count = 0
    """How often the CPU slept in such work, and the clock went on to the next timer."""

    def contradiction(self, samples: Sequence[float], evidence: Evidence | None) -> str | None:
        """Why the profile is not that of a cell with these samples and this evidence; None where it may be."""
        if self.ticks is not None:
            possible = (0 if self.halts else self.ticks) <= self.instructions <= self.ticks + self.faults
            found = f"{self.instructions} instructions, and the clock says {self.ticks}"
            return None if possible else f"the profile has {found}, with {self.faults} faults and {self.halts} halts"
        if evidence is None:
            return "a profile of a whole system has no ticks of the clock"
        if len(set(samples)) == 1 and self.instructions / self.calls != samples[0]:
            found = f"{self.instructions} instructions in {self.calls} calls"
            return f"the profile has {found}, and the samples are {', '.join(f'{one:.10g}' for one in samples[:4])}"
        if evidence.int3 is not None and self.int3 * evidence.calls != evidence.int3 * self.calls:
            traps = f"{evidence.int3} traps in {evidence.calls} calls"
            return f"the profile has {self.int3} int3 in {self.calls} calls, and QEMU took {traps}"
        if self.purposes is not None and sum(self.purposes.values()) != self.instructions:
            return f"the purposes have {sum(self.purposes.values())} instructions, and the profile {self.instructions}"
        return None

    @model_serializer(mode="wrap")
    def _bounds_of_work_only(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        for name in ("ticks", "faults", "halts") if self.ticks is None else ():
            fields.pop(name)
        if self.repetitions is None:
            fields.pop("repetitions")
        return fields


class ReferenceValue(Record):
    """The published figures for the same cell, in their own unit."""

    table: CellId
    """The published table."""
    value: Number | None = None
    """What was published of a call with the probe; null where only the overhead was."""
    overhead: Number
    """The probe's part of the published figure."""
    unit: Name
    """The document's own, such as ``ns``."""


class CellRecord(Record):
    """One cell's outcome: a number with its evidence, or the reason why there is none."""

    id: CellId
    """Names the cell within its run, and the same cell in other runs of the experiment."""
    table: Name | None = None
    """The experiment's table that the cell belongs to, if it has several."""
    cpu: Name
    """The CPU model of the guest."""
    smp: Annotated[int, Field(ge=1, le=1024)]
    """Its virtual CPUs."""
    kernel: Name
    """The kernel, by its name in the experiment; of one of your own, its folder's or file's."""
    probe: Name
    """The kind of probe, a row of the benchmark or a module; ``none`` in a baseline."""
    handler: Name
    """What a hit did: ``noop``, ``count`` or ``record``. In a baseline there was no hit."""
    benchmark: Name
    """The benchmark's name."""
    metric: Phrase
    """What a sample is: ``cost per call``, ``cost per run``, ``cost per loop``, or a metric of the benchmark."""
    clock: Clock
    """What was measured: instructions, or times of the guest's clock."""
    unit: Unit
    """Of samples, value, overhead and interval: ``instructions``, or ``ns``."""
    status: Status
    """``ok`` has a number; ``failed``, ``skipped`` and ``unsupported`` have a reason."""
    reason: Reason | None = None
    """Why there is no number; not there in a cell that is ``ok``."""
    notes: tuple[Reason, ...] = ()
    """Notes on the number: a mechanism re-created by the module, why there is no verdict."""
    samples: tuple[Number, ...] = ()
    """Each repetition's result, in the order of measuring."""
    value: Number | None = None
    """The mean of samples that are counted exactly, else their median."""
    overhead: Number | None = None
    """The value less that of the cell compared with; 0 in a baseline, null without one."""
    interval: Interval | None = None
    """The 95 % interval of the overhead, where samples scatter: its low and its high end.

    Of a baseline whose calls are counted and differ it is how far samples are from the value.
    """
    parameters: dict[Name, Phrase | bool | Count | Number] = {}
    """Further facts that distinguish cells. ``kernel_release`` is printed in place of the kernel's name."""
    verdict: Literal["none"] | None = None
    """``none`` where the difference is too small to decide; a note says why."""
    purposes: dict[Name, Number] = {}
    """The overhead by what it is spent on, where that was asked for; nothing is 0."""
    evidence: Evidence | None = None
    """What proves the mechanism, in a cell that has a number."""
    work: WorkEvidence | None = None
    """In place of ``evidence`` where a whole system's work was measured; not there otherwise."""
    text: TextEvidence | None = None
    """What proves that the kernel's text is as before; not there in records of earlier versions."""
    profile: ProfileEvidence | None = None
    """What proves the cell's profile; not there where none was made."""
    worker: Name | None = None
    """The worker of a fleet that measured the cell; not there where the run's own machine did."""
    reference: ReferenceValue | None = None
    """The published figures of the same cell, where there are some."""

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
            raise ValueError(f"the purposes add up to {spent:.10g}, and the overhead is {self.overhead}")

    def _require_evidence(self) -> None:
        baseline = self.probe == BASELINE
        contradiction = None if self.profile is None else self.profile.contradiction(self.samples, self.evidence)
        if contradiction is None and self.work is not None and self.evidence is None:
            contradiction = self.work.contradiction(baseline=baseline, samples=len(self.samples))
        if contradiction is not None:
            raise ValueError(contradiction)
        if self.work is not None and self.evidence is None:
            return
        if self.evidence is None or self.work is not None:
            raise ValueError("a number is kept only with its evidence, of one kind")
        if baseline != (self.evidence.mechanism == "none"):
            raise ValueError(f"probe {self.probe} cannot have the mechanism {self.evidence.mechanism}")
        if not self.evidence.calls or not self.evidence.probe_bytes:
            raise ValueError("no call was made, or no bytes were read at the probe point")
        if baseline and self.evidence.probe_bytes != self.evidence.original_bytes:
            raise ValueError("without a probe, the bytes at the probe point are not the original ones")
        expected_hits = 0 if baseline else self.evidence.calls * self.evidence.hits_per_call
        if self.evidence.hits != expected_hits:
            raise ValueError(f"{self.evidence.hits} hits in {self.evidence.calls} calls, expected {expected_hits}")
        if not (baseline or self.evidence.restored):
            raise ValueError("the original bytes did not come back")

    @model_serializer(mode="wrap")
    def _only_what_there_is(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        for name in ("reason", "work", "text", "profile", "purposes", "worker"):
            if not fields.get(name):
                fields.pop(name, None)
        return fields


class RunRecord(Record):
    """One run: every cell that has an outcome so far, in the plan's order."""

    contract: Literal[1] = CONTRACT
    """The contract's version; not there in records of earlier versions."""
    run: Name
    """The run's id."""
    experiment: Name
    """The experiment's name."""
    cells: tuple[CellRecord, ...]
    """All cells that have an outcome so far, in the plan's order."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_known_contract(cls, fields: Any) -> Any:
        # Before all else: a newer record has keys that say nothing here.
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
    """Whether no cell failed and at least one has a number.

    A cell that this machine or kernel does not support is no failure; a run of only such cells is one.
    """
    states = {cell.status for cell in record.cells}
    return "failed" not in states and "ok" in states


def json_text(record: RunRecord) -> str:
    """Return the contract as text: stable order, ASCII only, one newline at the end."""
    return json.dumps(record.model_dump(mode="json"), indent=2) + "\n"


def json_schema(of: type[Record] = RunRecord) -> dict[str, Any]:
    """Return the contract, or another record's, as a JSON schema (draft 2020-12), which its text as JSON satisfies."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **of.model_json_schema()}


@contextmanager
def valid_result() -> Iterator[None]:
    """Make a result of what a guest reported; EvidenceError where the type of the result refuses it."""
    try:
        yield
    except ValidationError as error:
        raise EvidenceError("what the guest reported makes no valid result", detail=str(error).splitlines()) from None
