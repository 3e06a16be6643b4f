# SPDX-License-Identifier: GPL-2.0-only
"""One boot of an unattended guest that registers, enables and hits many probes: it measures all of the boot's cells."""

from __future__ import annotations

import hashlib
import random
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from orchestrator.artifacts.boot_files import with_work
from orchestrator.artifacts.kernel_build import MAINLINE_HASH_BITS
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.scaling.outputs import (
    TARGET,
    MarkedSteps,
    ScalingFigures,
    read_driver,
    read_events,
    read_load,
    read_model,
)
from orchestrator.benchmarks.scaling.rows import kprobe_cache, scaling_benchmark
from orchestrator.catalog.cpus import CacheName
from orchestrator.catalog.kernels import Arch
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.guest.guest import at_rest
from orchestrator.paths import data_dir
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, Symbols
from orchestrator.profile.profiled import stored
from orchestrator.results.contract import CellRecord, Evidence, ProfileEvidence, valid_result
from orchestrator.results.statistics import mean
from orchestrator.results.stored_profile import CellProfile
from orchestrator.run.boot import Session, identity
from orchestrator.run.guests import CLOCKSOURCE, KernelFunctions, kernel_functions
from orchestrator.run.unattended import Ending, Work, WorkCounts, close, output_of, worked
from orchestrator.steps import step

# The profile of the steps of one row, and what the functions that find a kprobe missed in models of caches.

LOOKUPS = ("get_kprobe", "get_kprobe_cached", "__get_kprobe")
"""One lookup: the kernel's own function, and those of images/patches/kprobe-cache.patch."""
CACHES: tuple[CacheName, ...] = ("l1d", "l2")


@dataclass(frozen=True)
class StepsProfile:
    """The proof of a profile, and misses as a cell's parameters: of each cache in all, and of each function."""

    proof: ProfileEvidence
    misses: Mapping[str, int]


def profiled_steps(counts: WorkCounts, steps: MarkedSteps, cell: str, file: Path) -> StepsProfile:
    """Write the profile of a row's steps. Raises EvidenceError unless all was counted."""
    last = max(*steps.numbers, steps.again or 0)
    if last >= len(counts.regions):
        raise EvidenceError(f"QEMU has kept {len(counts.regions)} steps, and not step {last}")
    work = counts.counted([counts.regions[number] for number in steps.numbers], steps.ticks)
    again = None if steps.again is None else counts.regions[steps.again]
    profile = counts.profile(work, cell, calls=steps.count, unit=steps.unit, again=again)
    return StepsProfile(stored(profile, file, work), dict(_misses(profile)))


def _misses(profile: CellProfile) -> Iterator[tuple[str, int]]:
    names = [*LOOKUPS[1:], *(name for shares in kprobe_cache().published.misses.values() for name in shares)]
    for cache in CACHES if profile.caches else ():
        yield f"{cache}_misses", profile.missed.of(cache)
        for name in dict.fromkeys(names):
            yield f"{cache}_{name}", sum(one.missed.of(cache) for one in profile.symbols if one.name == name)


# The kernel functions that thousands of kprobes are placed on.

_SYMBOL = re.compile(rb"^([0-9a-f]{8,16}) ([tT]) ([A-Za-z0-9_.$]{1,200})$", re.MULTILINE)
_PADDING = b"__pfx_"
_FORBIDDEN = re.compile(rb"^0x([0-9a-f]{8,16})-0x([0-9a-f]{8,16})\s", re.MULTILINE)
SPARE = 1.1
"""Candidates for each address that is needed: kprobes refuse one function in a hundred."""
EVENT_SPARE = 1.5
"""The same for events: these also refuse what ftrace must not trace, up to a third of a kernel's functions."""
_SPACING = 16
"""Bytes between a model's addresses within a function: the alignment of the kernel's functions."""
_PARTS = 8


def choose_sites(listing: bytes, blacklist: bytes, count: int, seed: int, spare: float = SPARE) -> list[int]:
    """Start addresses of ``count`` times ``spare`` of the kernel's own functions, in an order that ``seed`` decides.

    Fewer where the kernel has too few for that, but at least ``count``.

    ``listing`` is the guest's /proc/kallsyms, ``blacklist`` its list of what kprobes must not touch: functions there
    are left out, and so is what is freed after the boot. Raises UnsupportedError where the kernel has too few.
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

_EVENT_SCRIPTS = ("kpcache_events", "kpcache_load")
_WORDS: Mapping[Arch, str] = {"i386": "<I", "x86_64": "<Q"}


@dataclass(frozen=True)
class ScalingWork:
    """Files of the work, by name, and the reader of its output: it takes that and the number of probes."""

    files: Mapping[str, bytes]
    read: Callable[[str, int], ScalingFigures]


def scaling_work(script: str, lists: KernelFunctions, arch: Arch, probes: int, seed: int) -> ScalingWork:
    """The work of a script on ``probes`` probes. Raises UnsupportedError where the kernel has too few functions."""
    if script == "kpcache_model":
        return ScalingWork({"sites": _binary(choose_addresses(lists.symbols, probes, seed), arch)}, read_model)
    events = script in _EVENT_SCRIPTS
    choose = choose_sites_by_name if script == "kpcache_load" else choose_sites
    sites = choose(lists.symbols, lists.blacklist, probes, seed, EVENT_SPARE if events else SPARE)
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
    word = struct.Struct(_WORDS[arch])
    for site in sites:
        if site >> 8 * word.size:
            raise EvidenceError(f"the guest's kernel lists a function at {site:#x}, where {arch} has no memory")
    return b"".join(map(word.pack, sites))


# What one cell of many probes measures.


@dataclass(frozen=True)
class ScalingTask:
    """One row of the benchmark (``none`` is its baseline) with ``size`` probes, whose places are chosen by ``seed``."""

    row: str
    size: int
    seed: int


ScalingCell = Cell[ScalingTask]


_CACHE = "kpcache"
"""The per-CPU object of images/patches/kprobe-cache.patch."""


@dataclass(frozen=True)
class _Done:
    """The work's figures, what it has left, and facts about the kernel."""

    figures: ScalingFigures
    ending: Ending
    kernel: Mapping[str, str | int | bool]
    profiles: Mapping[str, StepsProfile]


def measure_rows(session: Session, cells: Sequence[ScalingCell]) -> Generator[CellRecord, None, None]:
    """The records of all rows of one size. Raises EvidenceError, GuestError, UnsupportedError for all of them."""
    for cell in cells:
        session.begin(cell)
    done = _work(session, cells)
    records = [_record(cell, done, session.setup(cell).notes) for cell in cells]
    yield from records


def _work(session: Session, cells: Sequence[ScalingCell]) -> _Done:
    cell = cells[0]
    task, benchmark, artifacts = cell.task, scaling_benchmark(cell.benchmark), session.artifacts
    assert benchmark is not None
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
    facts = _kernel_facts(kernel)
    cache = Symbols(lists.symbols).object_size(_CACHE) if facts["kprobe_cache"] else None
    if cache is not None:
        facts["cache_bytes"] = cache
    return _Done(figures, ending, facts, profiles)


def _profiles(
    session: Session, cells: Sequence[ScalingCell], counts: WorkCounts, figures: ScalingFigures
) -> Mapping[str, StepsProfile]:
    """The profiles of the cells that are to have one, by row; each is of the steps that the row's figures are of."""
    found = {}
    with at_rest(counts.guest):
        for cell in cells:
            file, steps = session.profile_file(cell), figures.marked.get(_row(cell))
            if file is not None and steps is not None:
                with step(f"profile {cell.id}"):
                    found[_row(cell)] = profiled_steps(counts, steps, cell.id, file)
    return found


def _row(cell: ScalingCell) -> str:
    """The row's name within its benchmark."""
    return BASELINE if cell.task.row == BASELINE else cell.task.row.partition(".")[2]


def _record(cell: ScalingCell, done: _Done, notes: tuple[str, ...]) -> CellRecord:
    figures = done.figures
    row = _row(cell)
    samples, proof, baseline = figures.samples[row], figures.proof, mean(figures.samples[BASELINE])
    compared = row == BASELINE or row in figures.compared
    overhead = mean(samples) - baseline if compared else None
    live = proof.original if row == BASELINE else proof.live
    profiled = done.profiles.get(row)
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={
                **cell.parameters,
                **done.kernel,
                **figures.facts,
                **figures.row_facts.get(row, {}),
                **({} if profiled is None else profiled.misses),
            },
            status="ok",
            notes=notes,
            samples=samples,
            value=mean(samples),
            overhead=overhead,
            interval=None if overhead is None else (overhead, overhead),
            evidence=Evidence(
                mechanism="none" if row == BASELINE else proof.mechanism,
                probe_bytes=live,
                hits=0 if row == BASELINE else proof.hits,
                int3=None,
                calls=proof.calls,
                restored=True,
                clocksource=CLOCKSOURCE,
                original_bytes=proof.original,
                address=f"{proof.address:#x}",
                symbol=proof.symbol,
                flag="",
                others=proof.others,
                taint=done.ending.taint,
                batches=len(samples),
                disturbed=0,
            ),
            text=done.ending.text,
            profile=None if profiled is None else profiled.proof,
        )


def _kernel_facts(kernel: Kernel) -> dict[str, str | int | bool]:
    """The kernel's data structures that find a kprobe."""
    config = kernel.config
    bits = config.get("CONFIG_KPROBE_HASH_BITS", MAINLINE_HASH_BITS)
    return {
        "kernel_release": kernel.release,
        "hash_bits": int(bits) if re.fullmatch(r"\d{1,2}", bits) else 0,
        "kprobe_cache": config.get("CONFIG_KPROBE_CACHE") == "y",
    }
