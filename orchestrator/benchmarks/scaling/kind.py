# SPDX-License-Identifier: GPL-2.0-only
"""Scaling: the cost of registering, enabling and hitting thousands of probes, as in the kprobe cache patch of 2014."""

from __future__ import annotations

import hashlib
import random
import re
import struct
from bisect import bisect_left
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator

from orchestrator.arch import ARCHITECTURES, Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_config import MAINLINE_HASH_BITS
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.unattended_initramfs import unattended_scripts
from orchestrator.benchmarks.scaling.outputs import (
    TARGET,
    MarkedSteps,
    ScalingFigures,
    read_driver,
    read_events,
    read_load,
)
from orchestrator.benchmarks.scaling.rows import LOAD_BENCHMARK, LOOKUPS, kprobe_cache, scaling_row
from orchestrator.benchmarks.scaling.scaling_parameters import CACHE_BYTES, HASH_BITS, KPROBE_CACHE, PROBES
from orchestrator.catalog.cpus import CacheName
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.problems import Problem, mismatch
from orchestrator.experiment.table import BenchmarkChoice, RowsTable
from orchestrator.experiment.table_kind import BenchmarkEntry, Listing
from orchestrator.guest.pausing import paused
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.counted.counter import Counter, stored
from orchestrator.results.contract import CellRecord, Evidence, ProfileEvidence, valid_result
from orchestrator.results.parameters import SEED
from orchestrator.results.printed_json import Printed
from orchestrator.results.statistics import mean
from orchestrator.run.benchmark_kind import BenchmarkKind, Prepared, Session
from orchestrator.run.cell_records import identity, kernel_facts
from orchestrator.run.guest_checks import CLOCKSOURCE
from orchestrator.run.kernel_functions import KernelFunctions, kernel_functions
from orchestrator.run.unattended import Ending, UnattendedWork, collect_proof, output_of, unattended_guest
from orchestrator.run.user_modules import template_outcome
from orchestrator.steps import step

_Profile = tuple[ProfileEvidence | None, Mapping[str, int]]
"""The proof of a profile, and a record's parameters with the misses of each cache: all of them, and by function."""


def _profiled_steps(counts: Counter, steps: MarkedSteps, cell: str, file: Path) -> _Profile:
    last = max(*steps.numbers, steps.again or 0)
    if last >= len(counts.regions):
        raise EvidenceError(f"QEMU has kept {len(counts.regions)} steps, and not step {last}")
    work = counts.work([counts.regions[number] for number in steps.numbers], steps.ticks)
    again = None if steps.again is None else counts.regions[steps.again]
    profile = counts.profile_work(work, cell, calls=steps.count, unit=steps.unit, again=again)
    caches: tuple[CacheName, ...] = ("l1d", "l2") if profile.caches else ()
    misses = {f"{cache}_misses": profile.missed.of(cache) for cache in caches}
    for cache, name in product(caches, dict.fromkeys([*LOOKUPS[1:], *kprobe_cache().published.functions])):
        misses[f"{cache}_{name}"] = sum(symbol.missed.of(cache) for symbol in profile.symbols if symbol.name == name)
    return stored(profile, file, work), misses


_SYMBOL = re.compile(rb"^([0-9a-f]{8,16}) ([tT]) ([A-Za-z0-9_.$]{1,200})$", re.MULTILINE)
_FORBIDDEN = re.compile(rb"^0x([0-9a-f]{8,16})-0x([0-9a-f]{8,16})\s", re.MULTILINE)
_SPARE = 1.1
"""Candidates for each address, because kprobes refuse one function in a hundred."""
_EVENT_SPARE = 1.5
"""Candidates for each event: events also refuse what ftrace must not trace, up to a third of a kernel's functions."""


def choose_sites(listing: bytes, blacklist: bytes, count: int, seed: int, spare: float = _SPARE) -> list[int]:
    """Start addresses of ``count`` times ``spare`` of the kernel's own functions, in an order that ``seed`` decides.

    There are at least ``count``; UnsupportedError where the kernel has fewer. ``listing`` is the guest's
    /proc/kallsyms, ``blacklist`` the list of what kprobes must not touch. Code that is freed after the boot is left
    out, too.
    """
    allowed = _allowed(listing, blacklist, count)
    random.Random(seed).shuffle(allowed)  # noqa: S311 - which functions, not a secret
    return allowed[: int(count * spare)]


def choose_sites_by_name(listing: bytes, blacklist: bytes, count: int, seed: int, spare: float) -> list[int]:
    """The same, in an order that depends only on the functions' names: similar kernels get the same functions.

    The cost of a load depends on which functions are probed.
    """
    allowed = _allowed(listing, blacklist, count)
    names = {int(address, 16): name for address, _, name in reversed(_SYMBOL.findall(listing))}
    allowed.sort(key=lambda address: hashlib.sha256(b"%d %s" % (seed, names[address])).digest())
    return allowed[: int(count * spare)]


def _allowed(listing: bytes, blacklist: bytes, count: int) -> list[int]:
    addresses, forbidden = functions(listing), set[int]()
    for start, end in _FORBIDDEN.findall(blacklist):  # hundreds of ranges, for 40,000 functions
        forbidden.update(addresses[bisect_left(addresses, int(start, 16)) : bisect_left(addresses, int(end, 16))])
    allowed = [address for address in addresses if address not in forbidden]
    if len(allowed) < count:
        raise UnsupportedError(f"this kernel has {len(allowed)} functions that take a kprobe, not {count}")
    return allowed


def functions(listing: bytes) -> list[int]:
    """The distinct addresses of a kernel's own functions, from _stext to _etext, in order.

    Raises EvidenceError where the list has none.
    """
    symbols = [(int(address, 16), name) for address, _, name in _SYMBOL.findall(listing)]
    bounds = {name: address for address, name in symbols if name in (b"_stext", b"_etext")}
    if len(bounds) != 2:
        raise EvidenceError("the guest's kernel does not list the bounds of its text (_stext, _etext)")
    low, high = bounds[b"_stext"], bounds[b"_etext"]
    # Since Linux 6.2 CONFIG_CALL_PADDING puts nops with a symbol before each function, which kprobes refuse.
    addresses = sorted(
        {address for address, name in symbols if low <= address < high and not name.startswith(b"__pfx_")}
    )
    if not addresses:
        raise EvidenceError("the guest's kernel lists no functions of its own, or hides their addresses")
    return addresses


def scaling_files(
    script: str, lists: KernelFunctions, arch: Arch, probes: int, seed: int
) -> tuple[Mapping[str, bytes | Path], Callable[[str], ScalingFigures]]:
    """The input files of a script for ``probes`` probes, and the parser of its output.

    Raises UnsupportedError where the kernel has too few functions.
    """
    events = script in ("kpcache_events", "kpcache_load")
    choose = choose_sites_by_name if script == "kpcache_load" else choose_sites
    sites = choose(lists.symbols, lists.blacklist, probes, seed, _EVENT_SPARE if events else _SPARE)
    if not events:
        return {"sites": _binary(sites, arch)}, partial(read_driver, probes=probes)
    target = Symbols(lists.symbols).address(TARGET[arch])
    sites = [target, *(site for site in sites if site != target)]
    addresses = "".join(f"{site:x}\n" for site in sites)
    files: dict[str, bytes | Path] = {"sites": _binary(sites, arch), "addresses": addresses.encode()}
    if script == "kpcache_events":
        return files, partial(read_events, probes=probes)
    loads = unattended_scripts() / "loads"
    return {**files, **{file.name: file for file in sorted(loads.iterdir())}}, partial(read_load, probes=probes)


def _binary(sites: Sequence[int], arch: Arch) -> bytes:
    word = struct.Struct(ARCHITECTURES[arch].pointer)
    for site in sites:
        if site >> 8 * word.size:
            raise EvidenceError(f"the guest's kernel lists a function at {site:#x}, where {arch} has no memory")
    return b"".join(map(word.pack, sites))


@dataclass(frozen=True)
class ScalingTask:
    """A row of the benchmark (``none`` is its baseline) with ``size`` probes, whose places ``seed`` chooses."""

    row: str
    size: int
    seed: int

    @property
    def name(self) -> str:
        return BASELINE if self.row == BASELINE else self.row.partition(".")[2]


ScalingCell = Cell[ScalingTask]


def _record(
    cell: ScalingCell,
    notes: Sequence[str],
    figures: ScalingFigures,
    facts: Mapping[str, str | int | bool],
    ending: Ending,
    profiled: _Profile,
) -> CellRecord:
    row, is_baseline, (profile, misses) = cell.task.name, cell.task.row == BASELINE, profiled
    samples, proof, baseline = figures.samples[row], figures.proof, mean(figures.samples[BASELINE])
    overhead = mean(samples) - baseline if is_baseline or row in figures.compared else None
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={**cell.parameters, **facts, **figures.row_facts.get(row, {}), **misses},
            status="ok",
            notes=tuple(notes),
            samples=samples,
            value=mean(samples),
            overhead=overhead,
            interval=None if overhead is None else (overhead, overhead),
            evidence=Evidence(
                mechanism="none" if is_baseline else proof.mechanism,
                probe_bytes=proof.original if is_baseline else proof.live,
                hits=0 if is_baseline else proof.hits,
                int3=None,
                calls=proof.calls,
                restored=True,
                clocksource=CLOCKSOURCE,
                original_bytes=proof.original,
                address=f"{proof.address:#x}",
                symbol=proof.symbol,
                flag="",
                others=proof.foreign_hits,
                taint=ending.taint,
                batches=len(samples),
                disturbed=0,
            ),
            text=ending.text,
            profile=profile,
        )


MOST_PROBES = 50_000
_MOST_SIZES = 20


def checked_sizes(value: object) -> object:
    """A list of up to 20 different hundreds, from 100 to 50 000: probes are registered and enabled in equal steps."""
    known = value if isinstance(value, list | tuple) else ()
    good = (
        all(isinstance(number, int) and not isinstance(number, bool) for number in known)
        and 1 <= len(known) <= _MOST_SIZES
    )
    if (
        not good
        or any(not 100 <= number <= MOST_PROBES or number % 100 for number in known)
        or len(set(known)) != len(known)
    ):
        raise mismatch(
            value,
            f"expected a list of up to {_MOST_SIZES} different hundreds from 100 to {MOST_PROBES}, as [1000, 5000]",
        )
    return tuple(known)


FEWEST_BESIDE_LOADS = 1000
"""Fewest events of kpcache-load, which enables a hundred of them one by one."""


class ScalingBenchmark(BenchmarkChoice):
    """Numbers of probes, and the choice of their functions."""

    sizes: Annotated[tuple[int, ...], BeforeValidator(checked_sizes)] | None = None
    """Numbers of probes, each with a guest of its own. ``kpcache-load`` has at least 1000."""
    seed: Annotated[int, whole(0, 2**32 - 1)] = 2014
    """Chooses the functions that are probed."""


def _with_sizes(benchmark: ScalingBenchmark) -> ScalingBenchmark:
    sizes = benchmark.sizes or tuple(kprobe_cache().benchmarks[benchmark.name].sizes)
    return benchmark.model_copy(update={"sizes": sizes})


class ScalingTable(RowsTable):
    """Machines, kernels, sizes and rows; every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols", "caches")

    benchmark: Annotated[ScalingBenchmark, AfterValidator(_with_sizes)]
    profile: Entries[Annotated[ProfilePart, one_of(lambda: ScalingTable.PROFILE_PARTS)]] | None = None
    """What each row says of where its instructions went, in tables of ``kpcache`` and ``kpcache-load``."""

    def conflicts(self) -> Iterator[Problem]:
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
        yield from super().conflicts()


_NEEDED = ("CONFIG_KPROBES", "CONFIG_DEBUG_FS", "CONFIG_KALLSYMS")


class ListedScalingRow(Printed):
    """A row of the benchmarks of many probes."""

    name: str
    """Its name in experiments."""
    what: str
    """The measured work."""
    each: str
    """The unit of the work, such as a probe."""


class ScalingKind(BenchmarkKind):
    """Many probes; one guest measures all rows of one size."""

    name = "scaling"
    table = ScalingTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {name: BenchmarkEntry(facts.title) for name, facts in kprobe_cache().benchmarks.items()}

    def rows(self) -> Mapping[str, str]:
        return {f"{name}.{row}": name for name, facts in kprobe_cache().benchmarks.items() for row in facts.rows}

    def lists(self) -> Mapping[str, Listing]:
        known = {row: scaling_row(row) for row in self.rows()}
        rows = [(name, row.title, row.each) for name, row in known.items() if row is not None]
        return {"kpcache": Listing(ListedScalingRow, lambda: rows)}

    def cells(self, name: str | None, table: ScalingTable) -> Generator[ScalingCell, None, None]:
        benchmark = table.benchmark
        baseline = kprobe_cache().benchmarks[benchmark.name].baseline
        for place, rows in table.places(name):
            for size, row in product(benchmark.sizes or (), rows):
                alone = place.id(BASELINE, "noop", str(size))
                yield table.cell(
                    place,
                    (row, "noop", str(size)),
                    probe=row,
                    metric=f"cost per {(scaling_row(row) or baseline).each}",
                    task=ScalingTask(row, size, benchmark.seed),
                    parameters={PROBES: size, SEED: benchmark.seed},
                    compared_with=() if row == BASELINE else (alone,),
                )

    def boot_key(self, cell: ScalingCell) -> Hashable:
        """Each size has its own boot, because the work changes the state of the guest's memory."""
        return cell.table, cell.benchmark, cell.task.size

    def describe(self, cell: ScalingCell) -> str:
        return f"{cell.task.size} probes, seed {cell.task.seed}"

    def refused(self, kernel: Kernel, cells: Sequence[ScalingCell]) -> Mapping[str, str | None]:
        lacking = [option for option in _NEEDED if kernel.config.get(option) != "y"]
        reason = f"this kernel was built without {lacking[0]}" if lacking else None
        return dict.fromkeys((cell.id for cell in cells), reason)

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[ScalingCell]
    ) -> Mapping[str, Prepared[Module]]:
        template = kprobe_cache().benchmarks[cells[0].benchmark].template
        return dict.fromkeys((cell.id for cell in cells), template_outcome(context, kernel, template, cells[0].smp))

    def measure(self, session: Session, cells: Sequence[ScalingCell]) -> Generator[CellRecord, None, None]:
        """The records of all rows of one size. Raises EvidenceError, GuestError, UnsupportedError for all cells."""
        for row_cell in cells:
            session.begin(row_cell)
        cell = cells[0]
        task, benchmark, artifacts = cell.task, kprobe_cache().benchmarks[cell.benchmark], session.artifacts
        module, kernel = session.setup(cell).setup, artifacts.kernel
        lists = kernel_functions(session.context, kernel, artifacts.machine, session.watch)
        files, read = scaling_files(benchmark.script, lists, kernel.spec.arch, task.size, task.seed)
        files = {f"{module.name}.ko": module.file, **files}
        # With ftrace enabling a probe takes longer the more there are: a rehearsal would double a long boot.
        rehearse = kernel.config.get("CONFIG_KPROBES_ON_FTRACE") != "y"
        settings = {"probes": task.size, "seed": task.seed, "rehearse": int(rehearse)}
        work = UnattendedWork(benchmark.script, settings, files, read)
        with unattended_guest(session, work, f"{task.size} probes", cell.time_limit) as finished:
            guest = finished.guest
            if functions(Symbols.at_end(guest).listing) != functions(lists.symbols):
                raise EvidenceError("the guest's kernel has its functions elsewhere than in the boot that listed them")
            figures = work.read(output_of(guest))
            profiles = {}
            if guest.machine.counter is not None:
                counts = Counter.after_work(guest, module)
                with paused(guest):
                    for row_cell in cells:
                        file, steps = session.profile_file(row_cell), figures.marked.get(row_cell.task.name)
                        if file is not None and steps is not None:
                            with step(f"profile {row_cell.id}"):
                                profiles[row_cell.task.name] = _profiled_steps(counts, steps, row_cell.id, file)
            ending = collect_proof(finished)
        bits = kernel.config.get("CONFIG_KPROBE_HASH_BITS", MAINLINE_HASH_BITS)
        has_cache = kernel.config.get("CONFIG_KPROBE_CACHE") == "y"
        # The per-CPU object of images/patches/kprobe-cache.patch.
        cache = Symbols(lists.symbols).object_size("kpcache") if has_cache else None
        facts: dict[str, str | int | bool] = {
            **kernel_facts(kernel),
            HASH_BITS: int(bits) if re.fullmatch(r"\d{1,2}", bits) else 0,
            KPROBE_CACHE: has_cache,
            **({} if cache is None else {CACHE_BYTES: cache}),
            **figures.facts,
        }
        for row_cell in cells:
            yield _record(
                row_cell,
                session.setup(row_cell).notes,
                figures,
                facts,
                ending,
                profiles.get(row_cell.task.name, (None, {})),
            )


KIND = ScalingKind()
