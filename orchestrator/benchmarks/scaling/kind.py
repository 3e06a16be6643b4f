# SPDX-License-Identifier: GPL-2.0-only
"""Scaling: the cost to register, enable and hit thousands of probes, as in the kprobe cache patch of 2014."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module, build_modules, render
from orchestrator.benchmarks.scaling.measurement import ScalingCell, ScalingTask, measure_rows
from orchestrator.benchmarks.scaling.rows import LOAD_BENCHMARK, kprobe_cache, scaling_row
from orchestrator.catalog.cpus import cpu_caches
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import BuildError
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.problems import Problem, mismatch
from orchestrator.experiment.table import BenchmarkChoice, BenchmarkEntry, Listing, RowsTable, place_id
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import BenchmarkKind, Prepared, Ready, Session, compiler_note, failed, smp_note, unsupported

MOST_PROBES = 50_000
_MOST_SIZES = 20


def checked_sizes(value: object) -> object:
    """A list of up to 20 different hundreds, from 100 to 50 000: probes are registered and enabled in equal steps."""
    known = value if isinstance(value, list | tuple) else ()
    good = all(isinstance(one, int) and not isinstance(one, bool) for one in known) and 1 <= len(known) <= _MOST_SIZES
    if not good or any(not 100 <= one <= MOST_PROBES or one % 100 for one in known) or len(set(known)) != len(known):
        raise mismatch(
            value,
            f"expected a list of up to {_MOST_SIZES} different hundreds from 100 to {MOST_PROBES}, as [1000, 5000]",
        )
    return tuple(known)


FEWEST_BESIDE_LOADS = 1000
"""Events of kpcache-load; it enables a hundred of them one by one."""


class ScalingBenchmark(BenchmarkChoice):
    """Numbers of probes, and which functions they are at."""

    sizes: Annotated[tuple[int, ...], BeforeValidator(checked_sizes)] | None = None
    """Numbers of probes, each with a guest of its own. ``kpcache-load`` has at least 1000."""
    seed: Annotated[int, whole(0, 2**32 - 1)] = 2014
    """Chooses the functions that are probed."""


def _with_sizes(benchmark: ScalingBenchmark) -> ScalingBenchmark:
    return benchmark.model_copy(
        update={"sizes": benchmark.sizes or tuple(kprobe_cache().benchmarks[benchmark.name].sizes)}
    )


class ScalingTable(RowsTable):
    """Machines, kernels, sizes and rows, of which every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols", "caches")

    benchmark: Annotated[ScalingBenchmark, AfterValidator(_with_sizes)]
    profile: Entries[Annotated[ProfilePart, one_of(lambda: ScalingTable.PROFILE_PARTS)]] | None = None
    """What each row says of where its instructions went, in tables of ``kpcache`` and ``kpcache-load``."""

    def conflicts(self) -> Iterator[Problem]:
        """Conflicts between values that are each valid alone."""
        if self.image is not None:
            why = f"benchmark '{self.benchmark.name}' runs in the initramfs, before an image is mounted"
            yield Problem(("image",), f"{why}; leave it out")
        if self.profile and not kprobe_cache().benchmarks[self.benchmark.name].marked:
            why = f"benchmark '{self.benchmark.name}' marks no work that could be counted"
            yield Problem(("profile",), f"found {', '.join(self.profile)}; {why}")
        few = [size for size in self.benchmark.sizes or () if size < FEWEST_BESIDE_LOADS]
        if few and self.benchmark.name == LOAD_BENCHMARK:
            why = f"found {few[0]}; beside a load there are at least {FEWEST_BESIDE_LOADS} events"
            yield Problem(("benchmark", "sizes"), why)
        unknown = [one.cpu for one in self.machines if one.cpu not in cpu_caches()]
        if "caches" in (self.profile or ()) and unknown:
            why = f"the caches of '{unknown[0]}' are not known, only those of {', '.join(cpu_caches())}"
            yield Problem(("profile",), f"found caches; {why}")
        yield from super().conflicts()


_NEEDED = ("CONFIG_KPROBES", "CONFIG_DEBUG_FS", "CONFIG_KALLSYMS")


class ScalingKind(BenchmarkKind):
    """Many probes; one run of the work measures all rows of one size."""

    name = "scaling"
    table = ScalingTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {name: BenchmarkEntry(one.title) for name, one in kprobe_cache().benchmarks.items()}

    def rows(self) -> Mapping[str, str]:
        return {f"{name}.{row}": name for name, one in kprobe_cache().benchmarks.items() for row in one.rows}

    def lists(self) -> Mapping[str, Listing]:
        return {"kpcache": Listing(("name", "what", "each"), _rows)}

    def cells(self, name: str | None, table: ScalingTable) -> Generator[ScalingCell, None, None]:
        """Each machine's and kernel's rows by size, the baseline first."""
        benchmark = table.benchmark
        baseline = kprobe_cache().benchmarks[benchmark.name].baseline
        for machine, kernel, rows in table.places():
            for size, row in product(benchmark.sizes or (), rows):
                alone = place_id(name, machine, kernel, BASELINE, "noop", str(size))
                yield table.cell(
                    *(name, machine, kernel, row, "noop", str(size)),
                    row=row,
                    metric=f"cost per {(scaling_row(row) or baseline).each}",
                    task=ScalingTask(row, size, benchmark.seed),
                    parameters={"probes": size, "seed": benchmark.seed},
                    compared_with=() if row == BASELINE else (alone,),
                )

    def boot_key(self, cell: ScalingCell) -> Hashable:
        """Each size has its own boot: the work leaves memory in another state, which would change the next."""
        return cell.table, cell.benchmark, cell.task.size

    def describe(self, cell: ScalingCell) -> str:
        return f"{cell.task.size} probes, seed {cell.task.seed}"

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[ScalingCell]
    ) -> Mapping[str, Prepared[Module]]:
        """The benchmark's module, for all cells of a boot alike."""
        return dict.fromkeys((cell.id for cell in cells), _prepared(context, kernel, cells[0]))

    def measure(self, session: Session, cells: Sequence[ScalingCell]) -> Generator[CellRecord, None, None]:
        """Do the work once, and read every row from its output."""
        yield from measure_rows(session, cells)


def _prepared(context: BuildContext, kernel: Kernel, cell: ScalingCell) -> Prepared[Module]:
    lacking = next((option for option in _NEEDED if kernel.config.get(option) != "y"), None)
    if lacking is not None:
        return unsupported(f"this kernel was built without {lacking}")
    (module,) = build_modules(context, kernel, [render(kprobe_cache().benchmarks[cell.benchmark].template, {})])
    if isinstance(module, BuildError):
        return failed(module)
    return Ready(module, (module,), (*smp_note(kernel, cell.smp), *compiler_note(kernel, module)))


def _rows() -> Sequence[Sequence[object]]:
    return [(row, title.title, title.each) for row in KIND.rows() if (title := scaling_row(row)) is not None]


KIND = ScalingKind()
