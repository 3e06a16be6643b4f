# SPDX-License-Identifier: GPL-2.0-only
"""Result records for tests: the quickstart's cells as a real run has them.

Processes that tests start import this file, and not hypothesis, which takes longer: see ``drawn_records``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.benchmarks.calls.benchmarks import capability_grants
from orchestrator.benchmarks.markers.rows import marker_benchmarks
from orchestrator.catalog.probes import probes, published_column
from orchestrator.catalog.published_tables import reference_table
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.statistics import median

RUN_ID = "20261121-014502-quickstart-1f3a"
UNATTENDED = Path(__file__).with_name("unattended")
LIST5 = "djprobe-2005/list5"
ENTRY_BYTES = "8b44240453"
COUNTS = {"none": 409.0, "kprobe": 1036.0, "jprobe": 1689.0, "djprobe": 462.0}
PROOFS: dict[str, dict[str, Any]] = {
    "none": {"mechanism": "none", "probe_bytes": ENTRY_BYTES, "hits": 0, "int3": 0},
    "kprobe": {"mechanism": "int3", "probe_bytes": "cc44240453", "int3": 10000},
    "jprobe": {"mechanism": "int3", "probe_bytes": "cc44240453", "int3": 15000},
    "djprobe": {"mechanism": "jmp", "probe_bytes": "e9e6c5b20a", "int3": 0, "detour": "0xcbbc0000-0xcbbc0040"},
}


def evidence(probe: str, **changes: Any) -> dict[str, Any]:
    """Build the evidence of a cell of the quickstart."""
    return {
        "hits": 5000,
        "calls": 5000,
        "restored": True,
        "clocksource": "tsc",
        "original_bytes": ENTRY_BYTES,
        "address": "0xc1093a15",
        "symbol": "__ia32_sys_gettimeofday+0x5",
        "flag": "",
        "taint": 0 if probe == "none" else 12288,
        "batches": 4,
        "disturbed": 0,
        **PROOFS[probe],
        **changes,
    }


def reference(probe: str, table: str = LIST5) -> dict[str, Any]:
    """Build the published figures for a probe."""
    published = reference_table(table)
    column = "baseline" if probe == "none" else probe
    value, overhead = published.average(column), published.overhead(column)
    return {"table": table, "value": value, "overhead": overhead, "unit": published.unit}


def fields(probe: str, /, **changes: Any) -> dict[str, Any]:
    """Build the fields of a valid cell of the quickstart, then apply ``changes``."""
    count = COUNTS[probe]
    overhead = count - COUNTS["none"]
    return {
        "id": f"pentium4/debian-686/{probe}/noop",
        "cpu": "pentium4",
        "smp": 1,
        "kernel": "debian-686",
        "probe": probe,
        "handler": "noop",
        "benchmark": "gtodbench",
        "metric": "cost per call",
        "clock": "instructions",
        "unit": "instructions",
        "status": "ok",
        "samples": [count] * 4,
        "value": count,
        "overhead": overhead,
        "interval": [overhead, overhead],
        "evidence": evidence(probe),
        **changes,
    }


def cell(probe: str, /, **changes: Any) -> CellRecord:
    """Build a valid cell of the quickstart."""
    return CellRecord.model_validate(fields(probe, **changes))


def failed(probe: str, reason: str, /, **changes: Any) -> CellRecord:
    """Build a cell of the quickstart that failed."""
    nothing: dict[str, Any] = {"samples": [], "value": None, "overhead": None, "interval": None, "evidence": None}
    return cell(probe, **{**nothing, "status": "failed", "reason": reason, **changes})


def capabilities(*names: str, refused: bool = True) -> list[CellRecord]:
    """Build what a guest shows of List 15: all of it, or of these; ``refused`` where the document grants nothing."""
    cells = []
    for name, (probe, _, grant) in capability_grants().items():
        if names and name not in names:
            continue
        identity = f"pentium4/debian-686/{name}/noop"
        if grant.shown == "refusal" and refused:
            reason = "__ia32_sys_gettimeofday+0x6: not a function entry"
            cells.append(failed(probe, reason, status="unsupported", probe=name, id=identity))
        else:
            places = {"places_taken": 59, "places": 60} if name.endswith(".anywhere") else {}
            if name == "kprobe.anywhere":
                places |= {"sampled_taken": 390, "sampled": 393, "sampled_functions": 50}
            notes = [grant.note] if grant.note else []
            cells.append(cell(probe, probe=name, id=identity, parameters=places, notes=notes))
    return cells


def many_probes() -> list[CellRecord]:
    """Read what a run with up to 5000 kprobes, and with the model of their cache, came to."""
    return list(RunRecord.model_validate_json((UNATTENDED / "kpcache_run.json").read_bytes()).cells)


def whole_system(kernel: str, probe: str = "none", /, *, real: float, base: float, **changes: Any) -> CellRecord:
    """Build a cell of a kernel build that took ``real`` instructions, with a baseline of ``base``."""
    again = changes.pop("again", 0)
    recorded = changes.pop("recorded", None)
    parameters = {
        "user": 0.9 * real,
        "system": 0.1 * real,
        "cold": real + 1e9,
        "scope": "locking",
        "resolvable": 2.1e6,
        "ticks_per_second": 100,
    }
    work = {
        "mechanism": {"none": "none", "hook": "marker", "kprobe": "int3"}.get(probe, "module"),
        "runs": 4,
        "done": 19,
        "digest": "5e" * 32,
        "restored": None,
        "clocksource": "tsc",
        "taint": 0,
    }
    if recorded is not None:
        work |= {"restored": True, "places": 12, "recorded": recorded, "lost": 0, "overwritten": recorded // 2}
        parameters |= {"events_a_run": recorded / 8, "ring_slots": 4096}
    return CellRecord.model_validate(
        {
            **fields("none"),
            "id": "/".join([kernel, probe, *([f"again{again}"] if again else [])]),
            "kernel": kernel,
            "probe": probe,
            "handler": "record" if recorded is not None else "noop",
            "benchmark": "kernel-build",
            "metric": "cost per run",
            "samples": [real] * 3,
            "value": real,
            "overhead": real - base,
            "interval": [real - base - 2.1e6, real - base + 2.1e6],
            "parameters": {**parameters, **({"again": again} if again else {})},
            "evidence": None,
            "work": work,
            **changes,
        }
    )


def recorded_build() -> list[CellRecord]:
    """Build what recording the standard events during a kernel build comes to."""
    base, table = 7_826_123_456.0, "djprobe-2005/whole-system"
    published = {"table": table, "overhead": 3.0, "unit": "percent"}
    no_verdict = {"verdict": "none", "notes": ["no verdict: the difference of 1000000 instructions is too small"]}
    return [
        whole_system("lab-i386-up", real=base, base=base, interval=[0, 0]),
        whole_system("lab-i386-up", real=base + 1.4e6, base=base, again=1),
        whole_system("lab-i386-up-markers", real=base + 3e7, base=base),
        whole_system(
            "lab-i386-up-markers", "hook", real=base + 4e7, base=base, recorded=1_600_000, reference=published
        ),
        whole_system("lab-i386-up", "kprobe", real=base + 4e8, base=base, recorded=1_600_008, reference=published),
        whole_system("lab-i386-up", "mine.c", real=base + 1e6, base=base, **no_verdict),
        failed(
            "none",
            "the guest hangs",
            id="djprobe",
            kernel="lab-i386-up",
            probe="djprobe",
            benchmark="kernel-build",
            metric="cost per run",
            parameters={"scope": "locking"},
        ),
    ]


def marked_build() -> list[CellRecord]:
    """Build what a kernel with markers comes to beside the same one without."""
    base, table = 7_826_123_456.0, "markers-2006/kernel-build"
    kernel = "lab-i386-smp-preempt"
    return [
        whole_system(
            kernel,
            real=base,
            base=base,
            interval=[0, 0],
            reference={"table": table, "value": 482.443, "overhead": 0.0, "unit": "s"},
        ),
        whole_system(kernel, real=base - 1.4e6, base=base, again=1),
        whole_system(
            f"{kernel}-markers",
            real=base + 9e6,
            base=base,
            reference={"table": table, "value": 481.635, "overhead": -0.808, "unit": "s"},
        ),
    ]


def marker_loops(**values: float | None) -> list[CellRecord]:
    """Build what a guest shows of the markers document's loops; None for one that its kernel cannot have."""
    cells = []
    for name, value in values.items():
        row_name = name.replace("_", "-")
        row = marker_benchmarks().rows[row_name]
        probe = "none" if row_name == "empty" else f"marker.{row_name}"
        fields_of_row = {
            "id": f"pentium4/lab-i386-up/{probe}/noop",
            "kernel": "lab-i386-up",
            "probe": probe,
            "benchmark": "markers",
            "metric": "cost per loop",
        }
        if value is None:
            cells.append(
                failed("none", "this kernel has no preemption to disable", status="unsupported", **fields_of_row)
            )
            continue
        proof = evidence(
            "none",
            mechanism="none" if probe == "none" else row.place,
            symbol=f"lab_markers.{row.loop}",
            calls=1000,
            hits=1000 if row.counting else 0,
            hits_per_call=1 if row.counting else 0,
        )
        overhead = value - (values["empty"] or 0.0)
        numbers = {"samples": [value] * 2, "value": value, "overhead": overhead, "interval": (overhead, overhead)}
        cells.append(cell("none", **fields_of_row, **numbers, evidence=proof, parameters={"rounds": row.rounds}))
    return cells


def mixed_marker_loops() -> list[CellRecord]:
    """Build loops of two kernels, one of them with fewer rounds, and one of a row that the catalogue no longer has."""
    home = marker_loops(empty=2.0, empty_optimized=5.0, varargs_preemptible=14.0)
    fewer = home[1].model_copy(update={"parameters": {"rounds": 1000}})
    guests = [
        loop.model_copy(update={"kernel": "lab-i386-smp-preempt", "id": loop.id.replace("up", "smp-preempt")})
        for loop in marker_loops(empty=3.0, varargs=16.0)
    ]
    noted = guests[1].model_copy(update={"notes": ("an SMP kernel on one virtual CPU",)})
    lost = home[2].model_copy(update={"probe": "marker.lost", "id": "pentium4/lab-i386-up/marker.lost/noop"})
    return [home[0], fewer, home[2], guests[0], noted, lost]


def run(*cells: CellRecord) -> RunRecord:
    """Build a run of these cells."""
    return RunRecord(run=RUN_ID, experiment="quickstart", cells=cells)


MAIL_COUNTS = {
    "x86-32": {
        "none": 362.0,
        "kprobe": 1002.0,
        "kprobe-boosted": 695.0,
        "kprobe-optimized": 459.0,
        "kretprobe": 1260.0,
        "kretprobe-boosted": 930.0,
        "kretprobe-optimized": 704.0,
        "kprobe-detour": 690.0,
        "kprobe-fallback": 1010.0,
    },
    "x86-64": {
        "none": 352.0,
        "kprobe": 884.0,
        "kprobe-boosted": 610.0,
        "kprobe-optimized": 451.0,
        "kretprobe": 1093.0,
        "kretprobe-boosted": 821.0,
        "kretprobe-optimized": 662.0,
        "kprobe-detour": 605.0,
        "kprobe-fallback": 890.0,
    },
}
RECORDED = {"none": 380.0, "kprobe": 1090.0, "jprobe": 1725.0, "djprobe": 509.0, "hook": 452.0}
CPUS = {"list4": "pentium4", "list5": "pentium4", "list6": "athlon64", "list7": "pentium-m"}
ONE_OF_SMP = "an SMP kernel on one virtual CPU, its lock prefixes kept (noreplace-smp)"
STEPPED = "single-stepped because of a post-handler; without one this kernel boosts kprobes"


def any_evidence(probe: str, **changes: Any) -> dict[str, Any]:
    """Build the evidence of any kind of probe, as the catalogue requires it."""
    kind = probes()[probe]
    if probe == "none":
        return evidence("none", **changes)
    first_byte = {"int3": "cc", "detour": "cc"}.get(kind.mechanism, "e9")
    return {
        **evidence("djprobe"),
        "mechanism": kind.mechanism,
        "probe_bytes": f"{first_byte}44240453",
        "hits": 1000,
        "calls": 1000,
        "int3": 1000 * (kind.int3_per_hit or 0),
        "detour": "0xcbbc0000-0xcbbc0040" if kind.mechanism in ("jump", "jmp", "detour") else None,
        **changes,
    }


def published(probe: str, table: str) -> dict[str, Any] | None:
    """Build the published figures for a probe, None where there are none."""
    column, document = published_column(probe), reference_table(table)
    if column is None or column not in document.columns:
        return None
    return {
        "table": table,
        "value": document.average(column),
        "overhead": document.overhead(column),
        "unit": document.unit,
    }


def table_cell(table: str, probe: str, count: float, baseline: float, **changes: Any) -> CellRecord:
    """Build an exact cell of the experiment's table that is compared with the published one ``table``."""
    name = table.rpartition("/")[2]
    kernel = changes.get("kernel", "lab-i386-up")
    return CellRecord.model_validate(
        {
            **fields("none"),
            "id": f"{name}/{kernel}/{probe}",
            "table": name,
            "probe": probe,
            "kernel": kernel,
            "samples": [count] * 4,
            "value": count,
            "overhead": count - baseline,
            "interval": [count - baseline] * 2,
            "parameters": {"kernel_release": f"6.1.176-{kernel.removeprefix('lab-')}", "accelerator": "tcg"},
            "evidence": any_evidence(probe),
            "reference": published(probe, table),
            **changes,
        }
    )


def noop_list(name: str) -> list[CellRecord]:
    """Build a list without recording of the 2005 document."""
    more: dict[str, Any] = {"cpu": CPUS[name]}
    if name == "list4":
        more |= {"kernel": "lab-i386-smp", "notes": [ONE_OF_SMP]}
    counts = {**COUNTS, "kprobe": 1049.0}
    return [
        table_cell(f"djprobe-2005/{name}", probe, count, counts["none"], **{**more, **_stepped(probe, more)})
        for probe, count in counts.items()
    ]


def _stepped(probe: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"notes": [*more.get("notes", []), STEPPED]} if probe == "kprobe" else {}


def recording_list(name: str) -> list[CellRecord]:
    """Build a list with recording of the 2005 document."""
    return [
        table_cell(
            f"djprobe-2005/{name}",
            probe,
            count,
            RECORDED["none"],
            cpu={"list13": "athlon64", "list14": "pentium-m"}.get(name, "pentium4"),
            kernel="lab-i386-smp-hook" if name == "list11" else "lab-i386-up-hook",
            handler="record",
            evidence=any_evidence(probe, recorded=None if probe == "none" else 1000),
        )
        for probe, count in RECORDED.items()
    ]


def mail_table(name: str) -> list[CellRecord]:
    """Build a table of the 2009 mail: the plain kretprobe is of another kernel, with its own baseline."""
    home = "lab-i386-smp" if name == "x86-32" else "lab-x86_64-smp"
    counts = MAIL_COUNTS[name]
    sizes = {"probe_bytes_plain": 96, "probe_bytes_extra": 215}
    common: dict[str, Any] = {"cpu": "xeon-e5410", "notes": [ONE_OF_SMP]}
    table = f"jump-optimization-2009/{name}"
    built = []
    for probe, count in counts.items():
        more = {**common, "kernel": home}
        if probe == "kprobe-optimized":
            more["parameters"] = {"accelerator": "tcg", **sizes}
        if probe != "kretprobe":
            built.append(table_cell(table, probe, count, counts["none"], **{**more, **_stepped(probe, more)}))
    other = counts["none"] + 9
    for probe, count in {"none": other, "kretprobe": counts["kretprobe"]}.items():
        built.append(table_cell(table, probe, count, other, **{**common, "kernel": f"{home}-preempt"}))
    return built


def jumped_to(place: tuple[str, str], /, **counts: float) -> list[CellRecord]:
    """Build the cells of BPF programs, by their names' ends, in a table of the document on trampolines on a kernel."""
    table, kernel = place
    name, common = f"trampoline-jmp-2025/{table}", {"kernel": kernel, "handler": "count", "cpu": "xeon-e5410"}
    probed = [
        table_cell(name, f"bpf-{end.replace('_', '-')}", 420 + count, 420, **common) for end, count in counts.items()
    ]
    return [table_cell(name, "none", 420, 420, **common), *probed]


def wall_list(accelerator: str = "tcg") -> list[CellRecord]:
    """Build a list by the wall clock, where drift hides what a djprobe costs."""
    drift = "no verdict: the baseline drifted by 96 ns between samples, and the probe's effect is 41 ns"
    samples = {
        "none": [1402.125, 1388.5, 1420.0, 1397.75, 1405.5, 1399.25],
        "kprobe": [3921.5, 3902.0, 3977.25, 3940.875, 3915.0, 3933.5],
        "djprobe": [1431.5, 1480.25, 1437.0, 1449.75, 1429.25, 1444.5],
    }
    overheads: dict[str, Any] = {
        "none": (0.0, [0.0, 0.0]),
        "kprobe": (2527.25, [2499.5, 2571.0]),
        "djprobe": (41.25, [-12.5, 88.0]),
    }
    return [
        table_cell(
            "djprobe-2005/list4",
            probe,
            0.0,
            0.0,
            kernel="lab-i386-smp",
            smp=2,
            clock="wall",
            unit="ns",
            samples=taken,
            value=median(taken),
            overhead=overheads[probe][0],
            interval=overheads[probe][1],
            parameters={"kernel_release": "6.1.176-i386-smp", "accelerator": accelerator},
            verdict="none" if probe == "djprobe" else None,
            notes=[drift] if probe == "djprobe" else [],
        )
        for probe, taken in samples.items()
    ]
