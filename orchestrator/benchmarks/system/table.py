# SPDX-License-Identifier: GPL-2.0-only
"""A table of whole-system workloads, run with and without probes or modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, model_validator

from orchestrator.benchmarks.system.published import published_systems
from orchestrator.benchmarks.system.workloads import SystemWorkload, system_workload, system_workloads
from orchestrator.catalog import user_probe
from orchestrator.catalog.events import standard_events
from orchestrator.catalog.given_parameters import split_path
from orchestrator.catalog.images import image as image_recipe
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.profile_parts import ProfilePart
from orchestrator.catalog.recorders import recorder_kinds
from orchestrator.catalog.spelling import choices_sentence
from orchestrator.catalog.user_disk import is_user_disk
from orchestrator.errors import ConfigError
from orchestrator.experiment.file import fields
from orchestrator.experiment.file.fields import Entries, one_of, whole
from orchestrator.experiment.file.problems import Problem, conflict, mismatch, refused, wrong
from orchestrator.experiment.machine import Machine, kernel_conflicts
from orchestrator.experiment.table import FEWEST_WALL_REPEATS, BenchmarkChoice, Row, Table

_MOST_ARGUMENTS = 64
_LONGEST_ARGUMENT = 1000


def _command(value: object) -> object:
    """A list of 1 to 64 texts: a program of the image by its absolute path, and its arguments.

    A text has up to 1000 printable characters.
    """
    good = isinstance(value, list | tuple) and 1 <= len(value) <= _MOST_ARGUMENTS
    texts = value if isinstance(value, list | tuple) else ()
    if not good or not all(isinstance(text, str) and text.isascii() and text.isprintable() for text in texts):
        raise mismatch(value, "expected a program of the image and its arguments, as [/usr/bin/gzip, -k, file]")
    if any(len(text) > _LONGEST_ARGUMENT for text in texts):
        raise wrong(f"an argument has at most {_LONGEST_ARGUMENT} characters")
    if not str(texts[0]).startswith("/"):
        raise wrong(f"found {texts[0]!r}; a program of the image is named by its absolute path, as /usr/bin/gzip")
    return tuple(texts)


class SystemBenchmark(BenchmarkChoice):
    """What is run in each boot: a workload, once cold and then several times warm."""

    scope: Annotated[str, one_of(lambda: system_workloads().scopes)] | None = None
    """How much a ``kernel-build`` compiles: ``./lab list scopes``."""
    packets: Annotated[int, whole(1, 10_000_000)] | None = None
    """Packets of a run of ``ping-flood``."""
    command: Annotated[tuple[str, ...], BeforeValidator(_command)] | None = None
    """What ``command`` runs; required there."""
    repeats: Annotated[int, whole(1, 50)] | None = None
    """Warm runs in each boot. With clock ``wall`` at least 6."""
    seed: Annotated[int, whole(0, 2**32 - 1)] = 2005
    """Begins the guest's random numbers."""
    aa_boots: Annotated[int, whole(1, 9)] = 1
    """Further boots of the baseline, with other random numbers and another phase of the timer.

    Their difference (A/A) bounds the smallest difference that can be resolved: below it nothing has a verdict.
    """
    events: Entries[Annotated[str, one_of(standard_events)]] | None = None
    """The standard kernel events that probes record; all of ``./lab list events`` by default."""

    @property
    def spec(self) -> SystemWorkload:
        """The workload's facts."""
        spec = system_workload(self.name)
        assert spec is not None
        return spec

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        problems = list(self._problems())
        if problems:
            raise conflict(problems)
        return self

    def _problems(self) -> Iterator[Problem]:
        owner = {"scope": "kernel-build", "packets": "ping-flood", "command": "command"}
        for key, name in owner.items():
            if getattr(self, key) is not None and self.name != name:
                yield Problem((key,), f"'{self.name}' has no such key; leave it out")
        if self.name == "command" and self.command is None:
            yield Problem(("command",), "missing; name the program of the image to run, as [/usr/bin/gzip, -k, file]")


def _with_defaults(benchmark: SystemBenchmark, info: ValidationInfo) -> SystemBenchmark:
    usual = system_workloads()
    runs = FEWEST_WALL_REPEATS if info.data.get("clock") == "wall" else usual.runs
    update: dict[str, Any] = {"repeats": benchmark.repeats or runs}
    if benchmark.name == "kernel-build":
        update["scope"] = benchmark.scope or usual.scope
    if benchmark.name == "ping-flood":
        update["packets"] = benchmark.packets or usual.packets
    return benchmark.model_copy(update=update)


def _probe(value: object, info: ValidationInfo) -> object:
    """``none``, a kind of probe that records events, or the path of a module of your own, which is just loaded."""
    name = fields.probe(value, info)
    if isinstance(name, str) and user_probe.is_path(name):
        path, _ = split_path(name)
        try:
            user_probe.find_module(path)
        except ConfigError as error:
            raise refused(error) from None
        return name
    if isinstance(name, str) and name not in (BASELINE, *recorder_kinds()):
        allowed = choices_sentence(name, [BASELINE, *recorder_kinds()])
        raise mismatch(value, f"{allowed}; or a path: ./mine.c, a module of your own")
    return name


def _with_room(machines: tuple[Machine, ...], info: ValidationInfo) -> tuple[Machine, ...]:
    """Give machines without a ``memory`` as much as the workload needs."""
    benchmark = info.data.get("benchmark")  # None where the benchmark itself is invalid
    if benchmark is None:
        return machines
    memory = f"{benchmark.spec.memory_mib}M"
    return tuple(
        one if "memory" in one.model_fields_set else one.model_copy(update={"memory": memory}) for one in machines
    )


class SystemTable(Table):
    """Machines, kernels and probes or modules, of which every combination runs a whole-system workload.

    All are compared with the first kernel without a probe. Probes record standard kernel events during the runs; a
    user's module is only loaded.
    """

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols",)

    benchmark: Annotated[SystemBenchmark, AfterValidator(_with_defaults)]
    reference: Annotated[str, one_of(published_systems)] | None = None
    machines: Annotated[Entries[Machine], AfterValidator(_with_room)]
    probes: Entries[Annotated[Row, BeforeValidator(_probe)]] = (BASELINE,)
    time_limit: Annotated[int, whole(1, 86_400, "seconds")] | None = None
    """Seconds of the host, in which a processor could be had, without any progress. The amount of work decides it."""
    profile: Entries[Annotated[ProfilePart, one_of(lambda: SystemTable.PROFILE_PARTS)]] | None = None
    """What each cell says of where its instructions went, and how many were the instrumentation's own."""

    def conflicts(self) -> Iterator[Problem]:
        """Conflicts between values that are each valid alone."""
        yield from super().conflicts()
        benchmark, least = self.benchmark, self.benchmark.spec.memory_mib
        for index, machine in enumerate(self.machines):
            if machine.memory_mib < least:
                why = f"'{benchmark.name}' works in memory alone and needs {least}M"
                yield Problem(("machines", index, "memory"), f"found {machine.memory}; {why}")
            for probe, kernel in self.kernel_for.items():
                yield from kernel_conflicts(kernel, machine, ("kernel_for", probe), ("machines",))
        repeats = benchmark.repeats or 0
        if self.clock == "wall" and repeats < FEWEST_WALL_REPEATS:
            why = f"the scatter of runs needs at least {FEWEST_WALL_REPEATS} of them"
            yield Problem(("benchmark", "repeats"), f"found {repeats}; clock 'wall' needs more: {why}")
        archs = {kernel_spec(kernel).arch for kernel in self.all_kernels}
        if len(archs) > 1:
            what = f"found kernels for {' and '.join(sorted(archs))}: they run other programs, and are no comparison"
            yield Problem(("kernels",), f"{what}; give each a table of its own")
        for probe in self.kernel_for:
            if probe == BASELINE or probe not in self.probes:
                yield Problem(("kernel_for", probe), "it is not among the probes that record")
        if self.reference is not None and published_systems()[self.reference].benchmark != benchmark.name:
            other = published_systems()[self.reference].benchmark
            yield Problem(("reference",), f"found '{self.reference}', which is of '{other}', not of '{benchmark.name}'")
        if self.profile and self.clock == "wall":
            what = "clock 'wall' counts no instructions, so nothing could prove a profile"
            yield Problem(("profile",), f"found {', '.join(self.profile)}; {what}")
        yield from self._image_conflicts()

    def _image_conflicts(self) -> Iterator[Problem]:
        if self.image is None:
            return
        if is_user_disk(self.image):
            yield Problem(("image",), "a workload works in memory, where a disk of your own cannot be: name a recipe")
            return
        arch = image_recipe(self.image).arch
        for kernel in self.all_kernels:
            spec = kernel_spec(kernel)
            if spec.arch != arch:
                yield Problem(
                    ("image",), f"image '{self.image}' is for {arch}, and kernel '{spec.name}' for {spec.arch}"
                )
