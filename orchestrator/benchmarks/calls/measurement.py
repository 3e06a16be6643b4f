# SPDX-License-Identifier: GPL-2.0-only
"""Measure and prove one cell of calls: arm the probe, observe it, time calls, count hits, disarm, and observe again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.call_results import difference_note, outcome_parameters, phrase, watched_parameters
from orchestrator.benchmarks.calls.cell_work import (
    MOST_PASSES,
    Armed,
    CallCounts,
    CellContext,
    Entries,
    GuestCache,
    HitCounts,
    PointObservations,
    armed_probe,
)
from orchestrator.benchmarks.calls.counted_programs import plain_runs, probed_runs
from orchestrator.benchmarks.calls.counting_pass import check_live, count_hits
from orchestrator.benchmarks.calls.full_buffers import full_facts, varying_full_facts, when_full
from orchestrator.benchmarks.calls.preparation import CallSetup
from orchestrator.benchmarks.calls.program_failures import DisturbedError
from orchestrator.benchmarks.calls.samples import (
    Figures,
    Measurement,
    exact_baseline,
    exact_figures,
    other_state,
    paired_figures,
    together,
)
from orchestrator.benchmarks.calls.varying_calls import varying_figures
from orchestrator.catalog.probes import Extra, is_recording
from orchestrator.errors import (
    EvidenceError,
    LabError,
    NeverAtPlace,
    NoProfile,
    NotEntered,
    OtherMechanism,
    PlaceRefused,
    UnsupportedError,
)
from orchestrator.experiment.table import FEWEST_WALL_REPEATS
from orchestrator.plain_text import shown
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.evidence import check_untouched, mechanism_seen, observe
from orchestrator.probes.loading import RefusedError
from orchestrator.probes.placement import NO_JUMP, why_not_optimised
from orchestrator.probes.point import ProbePoint, find_entry, find_place
from orchestrator.probes.traced_functions import GUARDED_KPROBES_HANDLER
from orchestrator.probes.user_point import UserPoint, observe_program
from orchestrator.profile.code.instruction_classes import executed_classes
from orchestrator.profile.counted.call_order import ORDERED_CALLS
from orchestrator.profile.counted.counter import Counter as ProfileCounter
from orchestrator.profile.counted.counter import stored
from orchestrator.profile.counted.places import Places, titled
from orchestrator.profile.counted.turns import read_turns, turns_of
from orchestrator.profile.stored.instructions_by_purpose import by_purpose
from orchestrator.profile.stored.profile_files import plain_file
from orchestrator.results.contract import CellRecord, Evidence, ExecutedClasses, centre_of, valid_result
from orchestrator.results.parameters import (
    ABOUT_HITS,
    ACCELERATOR,
    CONTENDED,
    CONTENDED_LINES,
    ENTERED,
    ENTRY,
    MOVED,
    MOVED_BY,
    ON_EACH_CPU,
    PLAIN,
)
from orchestrator.results.statistics import mean
from orchestrator.run.benchmark_kind import Ready
from orchestrator.run.cell_deadline import CellDeadline
from orchestrator.run.cell_records import identity, kernel_facts
from orchestrator.run.guest_checks import CLOCKSOURCE, check_clocksource, permitted_taint
from orchestrator.run.ready_guest import ReadyGuest
from orchestrator.steps import step

# Extras: what a hit of a kprobe costs besides its handler, which is the kernel's aggregator and a post-handler.
#
# ``register_kprobe()`` puts an aggregator before every kprobe that could become a jump, also where
# ``debug.kprobes-optimization`` is off (``try_to_optimize_kprobe()`` in kernel/kprobes.c of 6.1). The kernel boosts a
# kprobe without a post-handler. The documents of 2005 measured neither: kernels had no aggregator for a single kprobe.

_WHAT: Mapping[Extra, str] = {
    "aggregator": "the aggregator that the kernel puts before a kprobe that could become a jump (OPTPROBES)",
    "post_handler": "the post-handler that keeps it single-stepped, and what calls it",
}


def extra_sizes(
    attachment: Attachment, value: float, timed: Callable[[], Sequence[float]], hits: int
) -> Mapping[Extra, float]:
    """Instructions a hit of each extra: the saving when it is disabled, where a call costs ``value`` with all of them.

    The post-handler is disabled first, so that the aggregator's call of it counts as the post-handler's. An extra that
    costs nothing is left out: the post-handler of a jprobe is never called. Raises EvidenceError where samples differ,
    or a call costs more without an extra.
    """
    sizes: dict[Extra, float] = {}
    for extra in attachment.extras():
        attachment.disable(extra)
        samples = timed()
        rest = samples[0]
        if set(samples) != {rest} or rest > value:
            raise EvidenceError(
                f"a call costs {value:g} instructions, and without its {extra} {' or '.join(f'{s:g}' for s in samples)}"
            )
        if rest < value:
            sizes[extra] = (value - rest) / hits
        value = rest
    return sizes


def measure_call(
    ready: ReadyGuest,
    cell: CallCell,
    prepared: Ready[CallSetup],
    events: Path | None = None,
    profile: Path | None = None,
    cache: GuestCache | None = None,
) -> CellRecord:
    """Measure a cell and prove it. On the exact clock the comparison with the baseline adds the overhead later.

    Recorded events are written to the file ``events``, the profile to the file ``profile``, if they are given.
    ``cache`` has results of earlier cells of this guest. Raises EvidenceError when a proof fails, NotEntered among them
    where the guest can still be used; GuestError when the guest fails, UnsupportedError when CPU, kernel or module do
    not support the cell.
    """
    setup, mark, kernel = prepared.setup, ready.guest.console.length(), ready.artifacts.kernel
    point: ProbePoint | None = setup.in_program
    if point is None:
        find = find_entry if cell.point is None or cell.point.offset is None else find_place
        probe_point = find(ready.guest, ready.symbols, setup.symbol, setup.offset)
        point = replace(probe_point, is_called_directly=cell.point is None)
    workload = setup.workload
    if isinstance(point, UserPoint) and isinstance(workload, Calls):
        # Since Linux 6.13 a uretprobe's entry moves a timer, to another place of its wheel after some of the ticks
        # (prepare_uretprobe() of kernel/events/uprobes.c): 222 instructions on Debian's 7.3. So may a user's program.
        live_at = f"{point.file_offset}:{point.file}" if cell.task.kind.mechanism == "call" else None
        at_return = cell.task.kind.at_return or cell.task.kind.has_own_programs
        workload = replace(workload, depends_on_ticks=at_return, live_at=live_at)
    kind = cell.task.kind.on(kernel.release, kernel.spec.arch).fetching(cell.handler, kernel.spec.arch)
    if kind.has_own_programs and isinstance(point, UserPoint):
        kind = kind.model_copy(update={"site": "program"})  # of a user's programs only the point says that
    work = CellContext(
        ready=ready,
        cell=cell,
        setup=setup,
        workload=workload,
        kind=kind,
        point=point,
        deadline=CellDeadline(cell.time_limit),
        cache=cache or GuestCache(),
        profile=profile,
    )
    work.workload.prepare(ready.guest)
    try:
        figures, proof = _measured(work, events)
    except RefusedError as error:
        # The refusal itself may verify a capability.
        is_refused = cell.point_discovered or (_is_asked(work) and error.reason.startswith(f"{setup.symbol}+"))
        if work.kind.capability is None and not is_refused:
            raise
        raise NeverAtPlace(error.reason) from None
    except PlaceRefused as error:
        hint = _other_name(work) if "no type information" in "".join(error.detail) else ""
        refused = NeverAtPlace if _is_asked(work) else PlaceRefused
        raise refused(error.what, detail=error.detail, hint=hint) from None
    except OtherMechanism as error:
        raise _explained(work, error) from None
    except NotEntered:
        ready.guest.check_console(mark)
        permitted_taint(ready.guest)
        raise
    # Last, because tracing a process changes the state of the guest.
    proof, notes = _watched(work, proof)
    ready.guest.check_console(mark)
    return _record(work, figures, proof, (*prepared.notes, *notes))


def _measured(work: CellContext, events: Path | None) -> tuple[Figures, PointObservations]:
    if work.cell.takes_turns:
        return _in_turns(work, events)
    if work.kind.mechanism == "none":
        return _baseline(work)
    if work.counted is not None:
        return probed_runs(work, work.counted)
    return _paired(work, events) if work.exact is None else _exact(work, work.exact, events)


def _other_name(work: CellContext) -> str:
    """A hint: the function of a system call without arguments has three names, and BTF has it by one of them."""
    if isinstance(work.point, UserPoint):
        return ""
    symbols, symbol = work.ready.symbols, work.setup.symbol
    names = sorted(symbols.names(symbols.address(symbol)) - {symbol})
    return f"BTF may have it by another of its names: points: [{names[0]}]" if names else ""


def _watched(work: CellContext, proof: PointObservations) -> tuple[PointObservations, Sequence[str]]:
    try:
        results = work.cache.once(
            "results", work.cell, lambda: work.workload.watch(work.ready.guest, time_limit=work.deadline.left())
        )
    except EvidenceError as error:
        if work.cell.task.expected is not None:
            raise
        return proof, [f"what the system calls of workload() return is not known: {error.what}"]
    return replace(proof, watched=results), ()


def _is_asked(work: CellContext) -> bool:
    """Whether the cell tests if its place can be probed: an instruction that is named, or a point that the lab found.

    A function that an experiment names must be probeable at its entry, and so must the benchmark's own.
    """
    is_labs = work.kind.file is None and not work.kind.has_own_programs and work.setup.in_program is None
    point = work.cell.point
    return work.cell.point_discovered or (is_labs and point is not None and point.offset is not None)


def _explained(work: CellContext, error: OtherMechanism) -> LabError:
    """What the kernel did instead, and why it did not optimise a kprobe: an answer where the cell was to test that."""
    if work.kind.mechanism not in ("jump", "detour"):
        return (NeverAtPlace if _is_asked(work) else OtherMechanism)(error.what, hint=error.hint)
    reason = why_not_optimised(work.ready.guest, work.point)
    if reason is not None:
        refused = UnsupportedError if work.cell.point_discovered else OtherMechanism
        return refused(f"{error.what}; {reason}", hint=error.hint)
    # Also at a function's entry: what a jump may replace is the kernel's decision, and no fault.
    return NeverAtPlace(NO_JUMP, detail=[error.what], hint=error.hint)


def _baseline(work: CellContext) -> tuple[Figures, PointObservations]:
    timed_in, counts = None, CallCounts()
    if work.counted is not None:
        figures, profile = plain_runs(work, work.counted)
        counts = CallCounts(profile)
    elif work.exact is not None:
        # A profile is of calls that this cell timed itself.
        baseline = work.cache.baseline(work.cell) if work.profile is None else None
        if baseline is None:
            measured = _timed(work)
            if measured.varies:
                varying = _varying(work, measured.batch)
                measured = together([_timed(_of_round(varying, number)) for number in range(_rounds(varying))])
            figures = exact_baseline(measured)
            counts = _counted(work, measured, None)
            work.cache.keep_baseline(work.cell, figures, counts.executed)
        else:
            timed_in, figures, executed = baseline
            counts = CallCounts(executed=executed)
            check_clocksource(work.ready.guest)
    else:
        figures = paired_figures([_timed(work) for _ in range(work.cell.repeats)], [], work.cell.clock)
    return figures, replace(_untouched(work, figures.calls), timed_in=timed_in, counts=counts)


def _untouched(work: CellContext, calls: int) -> PointObservations:
    guest, point = work.ready.guest, work.point
    seen = observe_program(guest, point) if isinstance(point, UserPoint) else observe(guest, point)
    check_untouched(point, seen, "after the timed calls")
    return PointObservations(point, seen, calls)


def _in_turns(work: CellContext, events: Path | None) -> tuple[Figures, PointObservations]:
    """Figures of calls on all CPUs in turns, with the lines that move between them among the facts."""
    if work.kind.mechanism == "none":
        measured, facts = take_turns(work)
        return exact_baseline(measured), replace(_untouched(work, measured.calls), facts=facts)
    with armed_probe(work) as armed:
        measured, facts = take_turns(work)
        armed.check_same("while the calls were counted")
        proof = _proof(work, armed, events, CallCounts())
        return exact_figures(measured), replace(proof, facts={**proof.facts, **facts})


def _title(places: Places, address: int) -> str:
    return titled(places.owner(address).function)


def take_turns(work: CellContext) -> tuple[Measurement, Mapping[str, str | int | float]]:
    """The instructions of a call, as the mean of all CPUs, and what the record says of the CPUs.

    Raises EvidenceError unless all samples are equal: on each CPU, and in each place where lines move.
    """
    guest, workload, cpus = work.ready.guest, work.workload, work.cell.smp
    assert isinstance(workload, Calls)
    counter = ProfileCounter(guest, work.ready.symbols, work.setup.module)
    with step("count calls in turns"):
        # A tick of QEMU's that changes from one CPU to the next, ten a second, may fall into a call.
        for _ in range(MOST_PASSES):
            mark = counter.mark()
            entry, batches = workload.take_turns(
                guest, cpus=cpus, repeats=max(2, work.cell.repeats), time_limit=work.deadline.left()
            )
            with counter.evaluating():
                title = partial(_title, counter.places(workload.program))
                samples = turns_of(read_turns(guest.counts_file, mark), batches, cpus, title)
            if all(sample == samples[0] for sample in samples):
                break
        else:
            raise EvidenceError(
                "samples of calls in turns differ: calls must cost the same each time", detail=[*map(str, samples)]
            )
    check_clocksource(guest)
    values = tuple(mean(sample.instructions) for sample in samples)
    measured = Measurement(
        samples=values,
        nanoseconds=values,
        entry=entry,
        calls=batches[-1].calls,
        batches=len(samples),
        disturbed=sum(batche.disturbed for batche in batches[1:]),
        number=workload.number,
    )
    turns = samples[0]
    moved_by = ", ".join(f"{name} {moved:.10g}" for name, moved in turns.by_place.items())
    return measured, {
        ON_EACH_CPU: phrase(", ".join(f"{instruction:.10g}" for instruction in turns.instructions)),
        MOVED: turns.moved,
        CONTENDED: turns.contended,
        CONTENDED_LINES: turns.lines,
        **({MOVED_BY: phrase(moved_by)} if moved_by else {}),
    }


def _exact(work: CellContext, workload: Calls, events: Path | None) -> tuple[Figures, PointObservations]:
    """Figures of equal samples; of interleaved ones where calls with or without the probe differ from each other."""
    baseline = work.cache.baseline(work.cell)
    if baseline is not None and len(set(baseline.figures.samples)) > 1:
        return _paired(_varying(work, baseline.figures.batch), events)
    original = work
    with armed_probe(work) as armed:
        work = _read_between(work, armed.attachment)
        workload = work.exact or workload
        renew = armed.attachment.renewal()
        if renew is not None:
            workload = replace(workload, renew=renew)
            work = replace(work, workload=workload)
        measured = _timed_between(work, armed)
        if not measured.varies:
            proof = _proof(work, armed, events, _counted(work, measured, armed))
            check_live(work, measured.live)
            if proof.extras:
                # Last, because an extra stays disabled.
                sizes = extra_sizes(
                    armed.attachment,
                    measured.samples[0],
                    lambda: workload.measure_cheaper(work.ready.guest, measured, time_limit=work.deadline.left()),
                    workload.hits,
                )
                count_hits(work, armed.attachment, before=proof.counted)
                armed.check_same("while what a hit passes was measured")
                proof = replace(proof, extra_sizes=sizes)
            full = full_facts(work, armed, proof.counted, measured)
            return exact_figures(measured), replace(proof, facts={**proof.facts, **full})
    return _paired(_varying(original, measured.batch), events)


def _read_between(work: CellContext, attachment: Attachment) -> CellContext:
    """The same with the process that reads what the calls' hits write, and in batches that its buffer has room for."""
    workload = work.workload
    if not isinstance(workload, Calls):
        return work

    def call(calls: int) -> None:
        workload.call(work.ready.guest, calls, caller=None, time_limit=work.deadline.left())

    return replace(work, workload=replace(workload, reader=attachment.reader(call)))


def _counted(work: CellContext, measured: Measurement, armed: Armed | None) -> CallCounts:
    """The calls made again, and counted. Calls that differ from each other have no classes: their mean is another."""
    counts_classes = work.cell.counts_classes and not measured.varies and work.ready.guest.machine.counter is not None
    module = None if armed is None else armed.attachment.entered_module
    is_profiled = work.profile is not None or module is not None
    if not (is_profiled or counts_classes) or not isinstance(work.workload, Calls):
        return CallCounts()
    counter = ProfileCounter(work.ready.guest, work.ready.symbols, work.setup.module)
    with step("count instructions"):
        if not is_profiled:
            return CallCounts(executed=_classes(work, work.workload, measured, counter))
        try:
            return _profiled(work, work.workload, measured, armed, counter)
        except (NoProfile, DisturbedError) as error:
            if module is not None:  # its hits are proved by what QEMU counts
                raise
            return CallCounts(no_profile=error.what)


def _profiled(
    work: CellContext, workload: Calls, measured: Measurement, armed: Armed | None, counter: ProfileCounter
) -> CallCounts:
    module = None if armed is None else armed.attachment.entered_module
    if "order" in work.cell.profile:
        workload = replace(workload, calls=ORDERED_CALLS)
    # The process may take another path than the timed one, in each of its calls: 1027 instructions in place of 711,
    # seen once of a BPF program at a tracepoint on Linux 7.3.
    for _ in range(MOST_PASSES):
        mark = counter.mark()
        marked = workload.measure_marked(work.ready.guest, measured, time_limit=work.deadline.left())
        try:
            with counter.evaluating():
                profile = counter.profile(
                    mark, marked.timed, cell=work.cell.id, calls=marked.calls, program=workload.program
                )
                executed = None if measured.varies else executed_classes(profile)
                entries = None if module is None else Entries.of(profile.symbols, module, profile.calls)
                if work.profile is not None and "order" in work.cell.profile:
                    counter.timeline(mark, marked.timed, profile, workload.program).write(work.profile)
        except NoProfile:
            if armed is not None and work.kind.has_own_programs:
                armed.attachment.learn(counter.executed(mark), marked.calls)
            raise
        if measured.varies or float(profile.per_call(profile.executed)) == measured.samples[0]:
            break
    if armed is not None and work.kind.has_own_programs:
        armed.attachment.learn(profile.generated, profile.calls)
    if work.profile is None:
        return CallCounts(executed=executed, entries=entries)
    evidence = stored(profile if armed is None else armed.attachment.with_code_lines(profile), work.profile)
    if "purposes" in work.cell.profile:
        mechanism = "none" if armed is None else mechanism_seen(work.kind, armed.attachment.point, armed.seen)
        evidence = evidence.model_copy(update={"purposes": by_purpose(profile, mechanism)})
    return CallCounts(evidence, executed, profile.uneven if measured.varies else (), entries)


def _classes(
    work: CellContext, workload: Calls, measured: Measurement, counter: ProfileCounter
) -> ExecutedClasses | None:
    """The classes that the calls execute; None where the calls that were counted are not like those that were timed."""
    mark = counter.mark()
    with suppress(EvidenceError):
        marked = workload.measure_marked(work.ready.guest, measured, time_limit=work.deadline.left())
        if counter.only_classes:
            classes = counter.classes(mark, marked.timed, calls=marked.calls)
        else:
            named = {"cell": work.cell.id, "program": workload.program}
            classes = executed_classes(counter.profile(mark, marked.timed, calls=marked.calls, **named))
        records = is_recording(work.cell.handler) and work.kind.mechanism != "none"
        return classes if classes.agrees_with(measured.samples[0], is_recording=records) else None
    return None


def _paired(work: CellContext, events: Path | None) -> tuple[Figures, PointObservations]:
    """Samples with and without the probe, interleaved, so that changes on the host or in the kernel affect both."""
    plain, probed, full = [_timed(work)], list[Measurement](), list[Measurement | str]()
    counts, last = CallCounts(), _rounds(work) - 1
    # The counts of QEMU prove hits of modules that do not count, and those of programs in other tasks.
    is_learning = work.kind.has_own_programs and work.profile is not None
    for number in range(last + 1):
        plain_round = _of_round(work, number)
        with armed_probe(work) as armed:
            this = _read_between(plain_round, armed.attachment)
            renew = armed.attachment.renewal() if work.varies else None
            if renew is not None:
                renew()
            probed.append(_timed_between(this, armed))
            if number == last:
                counts = _counted(_read_between(work, armed.attachment), together(probed), armed)
            if number == last or (number == 0 and not is_learning and armed.attachment.entered_module is None):
                proof = _proof(_read_between(work, armed.attachment), armed, events, counts)
            check_live(work, probed[-1].live)
            if work.varies and armed.attachment.has_buffers:
                written = armed.attachment.written_buffers()
                armed.attachment.fill()
                timed, counted = partial(_timed, this), proof.counted if number == last else None
                full.append(when_full(this, armed, timed, counted))
        plain.append(_timed(plain_round))
    counts = _beside_plain(work, plain, counts)
    proof = replace(proof, counts=counts)
    if full:
        proof = replace(proof, facts={**proof.facts, **varying_full_facts(work, written, plain, probed, full)})
    if work.varies:
        figures, baseline = varying_figures(plain, probed), work.cache.baseline(work.cell)
        note = None if baseline is None else other_state(baseline.figures.samples, together(plain).samples)
        return (figures if note is None else replace(figures, notes=(*figures.notes, note))), proof
    return paired_figures(plain, probed, work.cell.clock, centre_of(work.cell.clock, work.cell.metric)), proof


def _beside_plain(work: CellContext, plain: Sequence[Measurement], counts: CallCounts) -> CallCounts:
    """The counts of calls that vary, with the profile of these without the probe; as they are where none is wanted.

    The probed profile stays without its plain one where QEMU cannot count the calls, or the host disturbs them.
    """
    if not work.varies or counts.profile is None or work.profile is None:
        return counts
    compared = replace(work.cell, id=next(iter(work.cell.compared_with), work.cell.id))
    counted = _counted(replace(work, cell=compared, profile=plain_file(work.profile)), together(plain), None)
    if counted.profile is None:
        return counts._replace(no_plain_profile=counted.no_profile)
    return counts._replace(profile=counts.profile.model_copy(update={"plain": counted.profile.sha256}))


def _varying(work: CellContext, batch: int) -> CellContext:
    """The same of calls that vary, in batches of at most so many calls: in larger ones, each may have an interrupt."""
    assert isinstance(work.workload, Calls)
    return replace(work, varies=True, workload=replace(work.workload, largest_batch=batch))


_LENGTHS, _SHORTER = 6, 50


def _of_round(work: CellContext, number: int) -> CellContext:
    """The same with the calls of this round: up to a tenth fewer where calls vary.

    In samples of one length, what every N-th call does may be equally often, or never: they would look like an exact
    count.
    """
    workload = work.workload
    if not work.varies or not isinstance(workload, Calls):
        return work
    fewer = number % _LENGTHS * -(-workload.single // _SHORTER)
    return replace(work, workload=replace(workload, calls=max(1, workload.single - fewer)))


def _rounds(work: CellContext) -> int:
    # A table of programs or of the wall clock has enough repeats; that calls vary shows only here.
    return max(work.cell.repeats, FEWEST_WALL_REPEATS) if work.varies else work.cell.repeats


def _timed_between(work: CellContext, armed: Armed) -> Measurement:
    try:
        measured = _timed(work)
    except EvidenceError:
        # A changed probe makes samples differ: its error is the cause, this one the effect. So does a map that has
        # become full meanwhile, which the counting pass finds.
        armed.check_same("while the calls were timed")
        if work.kind.has_own_programs:
            count_hits(work, armed.attachment)
        raise
    armed.check_same("while the calls were timed")
    return measured


def _proof(work: CellContext, armed: Armed, events: Path | None, counts: CallCounts) -> PointObservations:
    entries, module = counts.entries, work.setup.module
    calls, entered = work.workload.counted, list[str]()
    if entries is None or module is None:
        counted = count_hits(work, armed.attachment, events)
    else:
        calls = entries.calls
        counted = HitCounts(calls * work.workload.hits, None, entries.int3, None)
        entered = entries.proved(counted.hits, module, work.ready.guest)
    armed.check_same("while the hits were counted")
    extras = armed.attachment.extras()
    if extras and work.kind.extras == "removed":
        raise EvidenceError(f"while the calls were timed, hits passed the kernel's {extras[0]}")
    if work.kind.mechanism == "int3" and work.kind.optimisation and "aggregator" not in extras:
        raise OtherMechanism(f"for {work.kind.name} it must be a place where the kernel optimises a kprobe")
    return armed.proof(calls, counted, entered=entered, extras=extras, counts=counts)


def _timed(work: CellContext) -> Measurement:
    guest, exact, left = work.ready.guest, work.exact, work.deadline.left()
    ticks = int(work.ready.artifacts.kernel.config["CONFIG_HZ"])
    if work.varies and isinstance(work.workload, Calls):
        measured = work.workload.measure_singly(guest, ticks_per_second=ticks, time_limit=left)
    elif exact is not None:
        measured = exact.measure_exact(guest, repeats=work.cell.repeats, ticks_per_second=ticks, time_limit=left)
    else:
        measured = work.workload.measure_one(guest, ticks_per_second=ticks, time_limit=left)
    check_clocksource(guest)
    return measured


def _record(work: CellContext, figures: Figures, proof: PointObservations, notes: tuple[str, ...]) -> CellRecord:
    cell, point, counted = work.cell, proof.point, proof.counted
    records = is_recording(cell.handler) and work.kind.mechanism != "none"
    with valid_result():
        evidence = Evidence(
            mechanism=mechanism_seen(work.kind, point, proof.seen),
            probe_bytes=(counted.live or proof.seen.live).hex(),
            hits=counted.hits,
            int3=counted.int3,
            calls=proof.calls,
            hits_per_call=proof.hits_per_call or work.workload.hits,
            others=counted.foreign_hits,
            restored=True,
            clocksource=CLOCKSOURCE,
            original_bytes=point.original.hex(),
            address=f"{point.address:#x}",
            symbol=point.name,
            flag=proof.seen.flags or "",
            detour=proof.detour,
            recorded=counted.hits * work.kind.runs if records else None,
            taint=permitted_taint(work.ready.guest),
            batches=figures.batches,
            disturbed=figures.disturbed,
            programs=tuple(proof.programs),
        )
        return CellRecord(
            **identity(cell),
            parameters=_parameters(work, figures, proof),
            status="ok",
            notes=(
                *notes,
                *hit_notes(proof),
                *figures.notes,
                *_profile_notes(proof.counts),
                *difference_note(figures.outcome, counted.results),
            ),
            samples=figures.samples,
            value=figures.value,
            overhead=figures.overhead,
            interval=figures.interval,
            verdict=figures.verdict,
            evidence=evidence,
            profile=proof.counts.profile,
            executed=proof.counts.executed,
            reference=cell.published,
        )


def hit_notes(proof: PointObservations) -> Iterator[str]:
    """Notes on what a hit passes besides its handler, and on what calls or counts the handler."""
    for extra in proof.removed:
        yield f"without {_WHAT[extra]}: the module takes it off the registered kprobe"
    for extra in proof.extras:
        if proof.extra_sizes is None:
            where = "where calls do not vary, clock 'instructions' measures what that costs"
            yield f"a hit passes {_WHAT[extra]}; {where}"
        elif extra in proof.extra_sizes:
            yield f"{proof.extra_sizes[extra]:g} instructions of a hit are {_WHAT[extra]}"
    if proof.seen.called == GUARDED_KPROBES_HANDLER:
        yield "the function tracer guards kprobes against recursion here: ftrace_ops_assist_func() calls their handler"
    if proof.counted.live is not None:
        yield "the first hit of a process is a breakpoint trap, behind which the kernel optimises its uprobe"
    for about_hits in ABOUT_HITS:
        if about_hits in proof.facts:
            yield str(proof.facts[about_hits])
    if proof.entered:
        listed = proof.facts.get("listed")
        where = f"; the kernel lists probes at {listed}" if listed else ""
        yield f"{', '.join(proof.entered)} entered {proof.counted.hits} times in {proof.calls} calls{where}"


def _profile_notes(counts: CallCounts) -> Iterator[str]:
    profile = counts.profile
    if counts.no_profile:
        yield f"no profile: {counts.no_profile}"
    if counts.no_plain_profile:
        yield f"no profile of these calls without the probe: {counts.no_plain_profile}"
    if counts.uneven:
        functions = ", ".join(shown(counts.uneven, 5, "{} more functions"))
        yield f"what only some calls do, or not equally often, is in {functions}"
    if profile is not None and profile.repetitions:
        total, repeated = profile.instructions / profile.calls, profile.repetitions / profile.calls
        yield (
            f"{repeated:.10g} of {total:.10g} instructions are repetitions of string instructions (rep), which a CPU's "
            f"counter leaves out: {total - repeated:.10g} without them"
        )


def _parameters(work: CellContext, figures: Figures, proof: PointObservations) -> dict[str, str | float]:
    return {
        **work.cell.parameters,
        **kernel_facts(work.ready.artifacts.kernel),
        ENTRY: figures.entry,
        "calls": figures.calls,
        **({} if figures.plain is None else {PLAIN: figures.plain}),
        "point": proof.point.name,
        ACCELERATOR: "kvm" if work.ready.artifacts.machine.timing == "kvm" else "tcg",
        **outcome_parameters(figures.outcome, proof.counted.results),
        **watched_parameters(proof.watched),
        **({} if proof.timed_in is None else {"timed_in": proof.timed_in}),
        **proof.facts,
        **({ENTERED: ", ".join(proof.entered)} if proof.entered else {}),
        **{f"{extra}_instructions": size for extra, size in (proof.extra_sizes or {}).items()},
    }
