# SPDX-License-Identifier: GPL-2.0-only
"""Scaling: the cost to register, enable and hit thousands of probes, as in the kprobe cache patch of 2014."""

from __future__ import annotations

import hashlib
import random
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator

from orchestrator.arch import ARCHITECTURES, Arch
from orchestrator.artifacts.boot_files import with_work
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernel_build import MAINLINE_HASH_BITS
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import render
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.benchmarks.scaling.outputs import (
    TARGET,
    MarkedSteps,
    ScalingFigures,
    read_driver,
    read_events,
    read_load,
    read_model,
)
from orchestrator.benchmarks.scaling.rows import LOAD_BENCHMARK, LOOKUPS, kprobe_cache, scaling_row
from orchestrator.catalog.cpus import CacheName, cpu_caches
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import BuildError, EvidenceError, UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.problems import Problem, mismatch
from orchestrator.experiment.table import BenchmarkChoice, BenchmarkEntry, Listing, RowsTable
from orchestrator.guest.guest import at_rest
from orchestrator.paths import data_dir
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, Symbols
from orchestrator.profile.profiled import stored
from orchestrator.results.contract import CellRecord, Evidence, ProfileEvidence, valid_result
from orchestrator.results.statistics import mean
from orchestrator.results.stored_profile import CellProfile
from orchestrator.run.boot import (
    BenchmarkKind,
    Prepared,
    Ready,
    Session,
    compiler_note,
    failed,
    identity,
    smp_note,
    unsupported,
)
from orchestrator.run.guests import CLOCKSOURCE, KernelFunctions, kernel_functions
from orchestrator.run.unattended import Ending, Work, WorkCounts, close, output_of, worked
from orchestrator.steps import step

# The profile of the steps of one row, and what the functions that find a kprobe missed in models of caches.

_CACHES: tuple[CacheName, ...] = ("l1d", "l2")
_Profile = tuple[ProfileEvidence, Mapping[str, int]]
"""The proof, and misses as a cell's parameters: of each cache in all, and of each function."""


def _profiled_steps(counts: WorkCounts, steps: MarkedSteps, cell: str, file: Path) -> _Profile:
    """Write the profile of a row's steps. Raises EvidenceError unless all was counted."""
    last = max(*steps.numbers, steps.again or 0)
    if last >= len(counts.regions):
        raise EvidenceError(f"QEMU has kept {len(counts.regions)} steps, and not step {last}")
    work = counts.counted([counts.regions[number] for number in steps.numbers], steps.ticks)
    again = None if steps.again is None else counts.regions[steps.again]
    profile = counts.profile(work, cell, calls=steps.count, unit=steps.unit, again=again)
    return stored(profile, file, work), dict(_misses(profile))


def _misses(profile: CellProfile) -> Iterator[tuple[str, int]]:
    for cache in _CACHES if profile.caches else ():
        yield f"{cache}_misses", profile.missed.of(cache)
        for name in dict.fromkeys([*LOOKUPS[1:], *kprobe_cache().published.functions]):
            yield f"{cache}_{name}", sum(one.missed.of(cache) for one in profile.symbols if one.name == name)


# The kernel functions that thousands of kprobes are placed on.

_SYMBOL = re.compile(rb"^([0-9a-f]{8,16}) ([tT]) ([A-Za-z0-9_.$]{1,200})$", re.MULTILINE)
_PADDING = b"__pfx_"
_FORBIDDEN = re.compile(rb"^0x([0-9a-f]{8,16})-0x([0-9a-f]{8,16})\s", re.MULTILINE)
_SPARE = 1.1
"""Candidates for each address that is needed: kprobes refuse one function in a hundred."""
_EVENT_SPARE = 1.5
"""The same for events: these also refuse what ftrace must not trace, up to a third of a kernel's functions."""
_SPACING = 16
"""Bytes between a model's addresses within a function: the alignment of the kernel's functions."""
_PARTS = 8


def choose_sites(listing: bytes, blacklist: bytes, count: int, seed: int, spare: float = _SPARE) -> list[int]:
    """Start addresses of ``count`` times ``spare`` of the kernel's own functions, in an order that ``seed`` decides.

    Fewer where the kernel has too few for that, but at least ``count``, else UnsupportedError. ``listing`` is the
    guest's /proc/kallsyms, ``blacklist`` what kprobes must not touch. What is freed after the boot is left out too.
    """
    allowed = _allowed(listing, blacklist, count)
    random.Random(seed).shuffle(allowed)  # noqa: S311 - which functions, not a secret
    return allowed[: int(count * spare)]


def choose_sites_by_name(listing: bytes, blacklist: bytes, count: int, seed: int, spare: float) -> list[int]:
    """The same, in an order that depends on the functions' names alone: kernels that differ little have the same ones.

    What a load passes depends on which functions are probed.
    """
    allowed = _allowed(listing, blacklist, count)
    names = {int(address, 16): name for address, _, name in reversed(_SYMBOL.findall(listing))}
    allowed.sort(key=lambda address: hashlib.sha256(b"%d %s" % (seed, names[address])).digest())
    return allowed[: int(count * spare)]


def _allowed(listing: bytes, blacklist: bytes, count: int) -> list[int]:
    """The addresses of functions that kprobes may touch, of which there must be so many."""
    forbidden = sorted((int(start, 16), int(end, 16)) for start, end in _FORBIDDEN.findall(blacklist))
    starts = [start for start, _ in forbidden]
    # How far the ranges so far reach, since they may overlap: hundreds of them are compared with 40,000 functions.
    reach = [0, *accumulate((end for _, end in forbidden), max)]
    allowed = [address for address in functions(listing) if address >= reach[bisect_right(starts, address)]]
    if len(allowed) < count:
        raise UnsupportedError(f"this kernel has {len(allowed)} functions that take a kprobe, not {count}")
    return allowed


def choose_addresses(listing: bytes, count: int, seed: int) -> list[int]:
    """``count`` addresses of the kernel's text for the model, which puts no probe there.

    They are the starts of functions and, where these are too few, places inside functions.
    """
    known = functions(listing)
    ends = [*known[1:], known[-1]]
    found: list[int] = []
    for part in range(_PARTS):
        found += [
            start + part * _SPACING
            for start, end in zip(known, ends, strict=True)
            if not part or start + part * _SPACING < end
        ]
        if len(found) >= count:
            break
    else:
        raise UnsupportedError(f"this kernel's functions have {len(found)} places, not {count}")
    random.Random(seed).shuffle(found)  # noqa: S311 - as above
    return found[:count]


def functions(listing: bytes) -> list[int]:
    """The addresses of a kernel's own functions, each once, in order: from _stext to _etext.

    Raises EvidenceError where the list has none.
    """
    symbols = [(int(address, 16), name) for address, _, name in _SYMBOL.findall(listing)]
    bounds = {name: address for address, name in symbols if name in (b"_stext", b"_etext")}
    if len(bounds) != 2:
        raise EvidenceError("the guest's kernel does not list the bounds of its text (_stext, _etext)")
    low, high = bounds[b"_stext"], bounds[b"_etext"]
    # CONFIG_CALL_PADDING puts nops before each function, with a symbol, where kprobes refuse to be (since Linux 6.2).
    found = sorted({address for address, name in symbols if low <= address < high and not name.startswith(_PADDING)})
    if not found:
        raise EvidenceError("the guest's kernel lists no functions of its own, or hides their addresses")
    return found


# The files that each script of many probes needs besides its module, and the reader of its output.


@dataclass(frozen=True)
class ScalingWork:
    """Files of the work, by name, and the reader of its output: it takes that and the number of probes."""

    files: Mapping[str, bytes]
    read: Callable[[str, int], ScalingFigures]


def scaling_work(script: str, lists: KernelFunctions, arch: Arch, probes: int, seed: int) -> ScalingWork:
    """The work of a script on ``probes`` probes. Raises UnsupportedError where the kernel has too few functions."""
    if script == "kpcache_model":
        return ScalingWork({"sites": _binary(choose_addresses(lists.symbols, probes, seed), arch)}, read_model)
    events = script in ("kpcache_events", "kpcache_load")
    choose = choose_sites_by_name if script == "kpcache_load" else choose_sites
    sites = choose(lists.symbols, lists.blacklist, probes, seed, _EVENT_SPARE if events else _SPARE)
    if not events:
        return ScalingWork({"sites": _binary(sites, arch)}, read_driver)
    target = Symbols(lists.symbols).address(TARGET[arch])
    sites = [target, *(site for site in sites if site != target)]
    addresses = "".join(f"{site:x}\n" for site in sites)
    files = {"sites": _binary(sites, arch), "addresses": addresses.encode()}
    if script == "kpcache_events":
        return ScalingWork(files, read_events)
    loads = data_dir("images") / "unattended" / "loads"
    return ScalingWork({**files, **{file.name: file.read_bytes() for file in sorted(loads.iterdir())}}, read_load)


def _binary(sites: Sequence[int], arch: Arch) -> bytes:
    word = struct.Struct(ARCHITECTURES[arch].pointer)
    for site in sites:
        if site >> 8 * word.size:
            raise EvidenceError(f"the guest's kernel lists a function at {site:#x}, where {arch} has no memory")
    return b"".join(map(word.pack, sites))


@dataclass(frozen=True)
class ScalingTask:
    """One row of the benchmark (``none`` is its baseline) with ``size`` probes, whose places are chosen by ``seed``."""

    row: str
    size: int
    seed: int

    @property
    def name(self) -> str:
        return BASELINE if self.row == BASELINE else self.row.partition(".")[2]


ScalingCell = Cell[ScalingTask]


_CACHE = "kpcache"
"""The per-CPU object of images/patches/kprobe-cache.patch."""


_Done = tuple[ScalingFigures, Ending, Mapping[str, str | int | bool], Mapping[str, _Profile]]
"""The work's figures, what it has left, facts about it and the kernel, and the profiles by row."""


def measure_rows(session: Session, cells: Sequence[ScalingCell]) -> Generator[CellRecord, None, None]:
    """The records of all rows of one size. Raises EvidenceError, GuestError, UnsupportedError for all of them."""
    for one in cells:
        session.begin(one)
    cell = cells[0]
    task, benchmark, artifacts = cell.task, kprobe_cache().benchmarks[cell.benchmark], session.artifacts
    module, kernel = session.setup(cell).setup, artifacts.kernel
    lists = kernel_functions(session.context, kernel, artifacts.machine, session.watch)
    work = scaling_work(benchmark.script, lists, kernel.spec.arch, task.size, task.seed)
    files = {f"{module.name}.ko": module.file.read_bytes(), **work.files}
    # With ftrace the time to enable a probe grows with their number: a rehearsal would double a long boot.
    rehearse = kernel.config.get("CONFIG_KPROBES_ON_FTRACE") != "y"
    settings = {"probes": task.size, "seed": task.seed, "rehearse": int(rehearse)}
    image = with_work(artifacts.machine.initramfs, benchmark.script, settings, files)

    def write(file: Path) -> None:
        file.write_bytes(image)

    with worked(session, Work(write, f"{task.size} probes", cell.time_limit)) as worker:
        guest = worker.guest
        if functions(guest.get(KALLSYMS, largest=KALLSYMS_MAX)) != functions(lists.symbols):
            raise EvidenceError("the guest's kernel has its functions elsewhere than in the boot that listed them")
        figures = work.read(output_of(guest), task.size)
        counts = None if guest.machine.counter is None else WorkCounts.of(guest, module)
        profiles = {} if counts is None else _profiles(session, cells, counts, figures)
        ending = close(worker)
    facts = {**_kernel_facts(kernel, lists.symbols), **figures.facts}
    yield from [_record(session, one, (figures, ending, facts, profiles)) for one in cells]


def _profiles(
    session: Session, cells: Sequence[ScalingCell], counts: WorkCounts, figures: ScalingFigures
) -> Mapping[str, _Profile]:
    """The profiles of the cells that are to have one, by row; each is of the steps that the row's figures are of."""
    found = {}
    with at_rest(counts.guest):
        for cell in cells:
            file, steps = session.profile_file(cell), figures.marked.get(cell.task.name)
            if file is not None and steps is not None:
                with step(f"profile {cell.id}"):
                    found[cell.task.name] = _profiled_steps(counts, steps, cell.id, file)
    return found


def _kernel_facts(kernel: Kernel, symbols: bytes) -> dict[str, str | int | bool]:
    """The kernel's data structures that find a kprobe."""
    bits = kernel.config.get("CONFIG_KPROBE_HASH_BITS", MAINLINE_HASH_BITS)
    has_cache = kernel.config.get("CONFIG_KPROBE_CACHE") == "y"
    cache = Symbols(symbols).object_size(_CACHE) if has_cache else None
    return {
        "kernel_release": kernel.release,
        "hash_bits": int(bits) if re.fullmatch(r"\d{1,2}", bits) else 0,
        "kprobe_cache": has_cache,
        **({} if cache is None else {"cache_bytes": cache}),
    }


def _record(session: Session, cell: ScalingCell, done: _Done) -> CellRecord:
    figures, ending, facts, profiles = done
    row, is_baseline = cell.task.name, cell.task.row == BASELINE
    samples, proof, baseline = figures.samples[row], figures.proof, mean(figures.samples[BASELINE])
    overhead = mean(samples) - baseline if is_baseline or row in figures.compared else None
    profile, misses = profiles.get(row, (None, {}))
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={**cell.parameters, **facts, **figures.row_facts.get(row, {}), **misses},
            status="ok",
            notes=session.setup(cell).notes,
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
                others=proof.others,
                taint=ending.taint,
                batches=len(samples),
                disturbed=0,
            ),
            text=ending.text,
            profile=profile,
        )


# The table, its cells, and the kind.

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
        benchmark = table.benchmark
        baseline = kprobe_cache().benchmarks[benchmark.name].baseline
        for place, rows in table.places(name):
            for size, row in product(benchmark.sizes or (), rows):
                alone = place.id(BASELINE, "noop", str(size))
                yield table.cell(
                    place,
                    (row, "noop", str(size)),
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
