# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment file may say, and how it is loaded."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from orchestrator.catalog.benchmarks import Entry, benchmarks
from orchestrator.catalog.cpus import cpu, cpus
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import Handler, probes
from orchestrator.catalog.reference import reference_tables
from orchestrator.catalog.spelling import choices_sentence, nearest
from orchestrator.experiment.overrides import Origins, apply_overrides
from orchestrator.experiment.problems import Problem, config_error, conflict, mismatch, problems_of, shown, wrong
from orchestrator.experiment.source import KeyPath, read_source

Clock = Literal["instructions"]
QemuCpuNames = Callable[[], Collection[str]]

DEFAULT_MEMORY = "256M"
MAX_ENTRIES = 1000

_MIB = {"M": 1, "G": 1024}
_MEMORY = re.compile(r"([1-9][0-9]{0,5})([MG])")
_MEMORY_BOUNDS = (64, 4096)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_QEMU_CPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

ItemT = TypeVar("ItemT", bound=Hashable)


def _one_of(choices: Callable[[], Iterable[str]]) -> BeforeValidator:
    def check(value: object) -> object:
        allowed = list(choices())
        if value not in allowed:
            raise mismatch(value, choices_sentence(str(value), allowed))
        return value

    return BeforeValidator(check)


def _comparable_tables() -> list[str]:
    """The published tables of handlers that there are."""
    known = {handler for probe in probes().values() for handler in probe.handlers}
    return [name for name, table in reference_tables().items() if table.handler in known]


def _whole(low: int, high: int) -> BeforeValidator:
    def check(value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise mismatch(value, f"expected a whole number from {low} to {high}")
        return value

    return BeforeValidator(check)


def _name(value: object) -> object:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise mismatch(value, "expected at most 64 small letters, digits and hyphens, as text")
    return value


def _description(value: object) -> object:
    if value is not None and not (isinstance(value, str) and len(value) <= 1000):
        raise mismatch(value, "expected text of at most 1000 characters")
    if isinstance(value, str) and not value.replace("\n", "").isprintable():
        raise mismatch(value, "expected text without control characters")
    return value


def _memory(value: object) -> object:
    parts = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    mib = int(parts[1]) * _MIB[parts[2]] if parts else 0
    if not _MEMORY_BOUNDS[0] <= mib <= _MEMORY_BOUNDS[1]:
        raise mismatch(value, "expected a size from 64M to 4G, such as 256M or 1G")
    return f"{mib}M"  # one spelling, so that 1G and 1024M are the same machine


def _cpu(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        raise mismatch(value, "expected a CPU's name; put one that is a number in quotes")
    if value in cpus():
        return value
    ask_qemu: QemuCpuNames | None = info.context
    qemu_names = ask_qemu() if ask_qemu else ()
    if value in qemu_names and _QEMU_CPU.fullmatch(value):
        return value
    guess = nearest(value, cpus()) or nearest(value, qemu_names)
    question = f"; did you mean '{guess}'?" if guess else ""
    raise mismatch(value, f"allowed: {', '.join(cpus())}, or a CPU model of QEMU's own{question}")


def _entries(value: object) -> object:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_ENTRIES:
        found = f"{len(value)} entries" if isinstance(value, list | tuple) else shown(value)
        raise wrong(f"found {found}; expected a list of 1 to {MAX_ENTRIES} entries")
    return tuple(value)  # YAML gives lists, a frozen model keeps tuples


def _distinct(items: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    first = {item: index for index, item in reversed(list(enumerate(items)))}
    twice = [index for index, item in enumerate(items) if first[item] != index]
    if twice:
        raise conflict([Problem((index,), "the same entry is here twice") for index in twice])
    return items


Entries = Annotated[tuple[ItemT, ...], BeforeValidator(_entries), AfterValidator(_distinct)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Machine(_Strict):
    """A CPU model, how many of it, and memory (MiB with an ``M``)."""

    cpu: Annotated[str, BeforeValidator(_cpu)]
    smp: Annotated[int, _whole(1, 16)] = 1
    memory: Annotated[str, BeforeValidator(_memory)] = DEFAULT_MEMORY

    @property
    def memory_mib(self) -> int:
        """The guest's memory in MiB."""
        return int(self.memory.removesuffix("M"))


class Benchmark(_Strict):
    """What each cell runs: ``repeats`` batches of ``calls`` calls, entering the kernel by ``entry``."""

    name: Annotated[str, _one_of(benchmarks)]
    calls: Annotated[int, _whole(1, 1_000_000)] = 5000
    repeats: Annotated[int, _whole(1, 100)] = 4
    entry: Annotated[Entry, _one_of(lambda: get_args(Entry))] = "auto"


class Experiment(_Strict):
    """An experiment: a matrix of machines, kernels, probes and handlers, and what is measured in each cell.

    ``time_limit`` is in seconds of the host's time for one cell.
    """

    name: Annotated[str, BeforeValidator(_name)]
    description: Annotated[str | None, BeforeValidator(_description)] = None
    reference: Annotated[str, _one_of(_comparable_tables)] | None = None
    clock: Annotated[Clock, _one_of(lambda: get_args(Clock))] = "instructions"
    kernels: Entries[Annotated[str, _one_of(kernels)]]
    machines: Entries[Machine]
    probes: Entries[Annotated[str, _one_of(probes)]]
    handlers: Entries[Annotated[Handler, _one_of(lambda: get_args(Handler))]] = ("noop",)
    benchmark: Benchmark
    time_limit: Annotated[int, _whole(1, 86_400)] = 120

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        problems = list(self._conflicts())
        if problems:
            raise conflict(problems)
        return self

    def _conflicts(self) -> Iterator[Problem]:
        for index, machine in enumerate(self.machines):
            if self.clock == "instructions" and machine.smp != 1:
                why = "QEMU counts instructions exactly with one virtual CPU only, and a second never comes up"
                yield Problem(("machines", index, "smp"), f"found {machine.smp}; clock 'instructions' needs 1: {why}")
            for kernel in self.kernels:
                objection = kernels()[kernel].objection(cpu(machine.cpu))
                if objection:
                    yield Problem(("machines", index, "cpu"), objection, other=("kernels",))

    def resolved_yaml(self) -> str:
        """Return the experiment as YAML with every default written out; it loads as an equal experiment."""
        plain = self.model_dump(mode="json")
        return yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)

    def digest(self) -> str:
        """Return the SHA-256 of the resolved experiment, in hex: equal experiments have equal digests."""
        return hashlib.sha256(self.resolved_yaml().encode()).hexdigest()


def _keys_at(path: KeyPath) -> Sequence[str]:
    models: dict[KeyPath, type[BaseModel]] = {(): Experiment, ("machines",): Machine, ("benchmark",): Benchmark}
    return list(models[tuple(step for step in path if isinstance(step, str))].model_fields)


def load_experiment(
    path: Path, overrides: Sequence[str] = (), qemu_cpu_names: QemuCpuNames | None = None
) -> Experiment:
    """Load an experiment file, apply ``KEY=VALUE`` overrides, and check everything.

    ``qemu_cpu_names`` is asked for QEMU's own CPU models only when the catalogue has not the one named.
    Raises ConfigError, which lists all that is wrong: place, key, what was found, what is allowed.
    """
    source = read_source(path)
    origins = Origins({key: f"{path}:{line}" for key, line in source.lines.items()})
    data = apply_overrides(source.data, overrides, origins)
    try:
        return Experiment.model_validate(data, context=qemu_cpu_names)
    except ValidationError as error:
        raise config_error(problems_of(error, _keys_at), origins, str(path)) from None
