# SPDX-License-Identifier: GPL-2.0-only
"""Does QEMU count each instruction of a call, and change none?"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from command_line import QUICKSTART, CommandLine
from experiment_boot import boot_of_calls
from gettimeofday import gettimeofday

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.machine_code import decoded
from orchestrator.errors import EvidenceError, HostError
from orchestrator.experiment.plan import Boot
from orchestrator.guest.machine import CountingPlugin
from orchestrator.paths import cache_dir, data_dir
from orchestrator.profile.counted.counts import read_regions
from orchestrator.profile.counted.timed_samples import sample_of
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.profile.stored.profile_files import load_profile
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootTask, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellRecorded, Event, GuestBooted
from orchestrator.run.boot_preparation import prepare
from orchestrator.run.ready_guest import ready_guest

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

PROBES = ["none", "kprobe", "jprobe", "djprobe"]
COUNTED = ("symbols", "classes", "stacks", "purposes")
PLAIN = ["none", "kprobe"]


@pytest.fixture(scope="module")
def context() -> BuildContext:
    """The user's cache."""
    return BuildContext(Cache(cache_dir()))


def boot(kernel: str = "lab-i386-up", *profile: str, cpu: str = "pentium4", **table: Any) -> Boot:
    """The probes of the quickstart on a kernel."""
    keys: dict[str, object] = {
        "kernels": [kernel],
        "machines": [{"cpu": cpu}],
        "benchmark": {"name": "gtodbench", "calls": 100, "repeats": 2},
        "probes": PROBES,
    }
    return boot_of_calls(**{**keys, **({"profile": list(profile)} if profile else {}), **table})


class Done:
    """A boot that was done: its events, its records by probe, and their profiles; of one ``row`` only where named."""

    def __init__(
        self, context: BuildContext, wanted_boot: Boot, directory: Path, *, fresh: bool = False, row: str | None = None
    ) -> None:
        from orchestrator.benchmarks.registry import kinds

        self.directory = directory
        self.events: list[Event] = []
        artifacts = prepare(context, kinds().named(wanted_boot.kind), wanted_boot)
        cells = tuple(cell for cell in wanted_boot.cells if row in (None, cell.probe))
        task = BootTask(kinds().named(wanted_boot.kind), wanted_boot, cells, directory, fresh=fresh)
        run_boot(Session(task, artifacts, context, self.events.append))

    @property
    def records(self) -> dict[str, CellRecord]:
        return {event.record.probe: event.record for event in self.events if isinstance(event, CellRecorded)}

    @property
    def values(self) -> dict[str, float | str | None]:
        return {probe: record.value or record.reason for probe, record in self.records.items()}

    @cached_property
    def profiles(self) -> dict[str, CellProfile]:
        return {probe: load_profile(self.directory, record) for probe, record in self.records.items()}

    @property
    def restored_from(self) -> list[str | None]:
        return [event.restored_from for event in self.events if isinstance(event, GuestBooted)]


@pytest.fixture(scope="module")
def counted(context: BuildContext, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The quickstart's probes with details, and one that returns: several tests look at this one boot."""
    wanted_boot = boot("lab-i386-up", *COUNTED, probes=[*PROBES, "kretprobe-boosted"])
    return Done(context, wanted_boot, tmp_path_factory.mktemp("counted"))


def proof(record: CellRecord) -> tuple[object, ...]:
    """What was measured, and what proves it."""
    assert record.evidence is not None
    return record.status, record.samples, record.evidence.hits, record.evidence.int3


def by_symbol(profile: CellProfile) -> dict[str, float]:
    return {symbol.title: symbol.executed / profile.calls for symbol in profile.symbols}


def test_the_sum_over_all_symbols_is_the_value_and_nothing_else_changes(
    context: BuildContext, counted: Done, tmp_path: Path
) -> None:
    """Both guests were restored from one saved guest: what counts in QEMU is no part of what is saved."""
    plain = Done(context, boot(probes=PLAIN), tmp_path / "plain")
    exact = {probe: counted.values[probe] for probe in PROBES}
    assert exact == {"none": 360, "kprobe": 889, "jprobe": 1661, "djprobe": 399}
    assert plain.values == {probe: exact[probe] for probe in PLAIN}
    assert counted.restored_from == plain.restored_from != [None]
    assert [record.profile for record in plain.records.values()] == [None] * len(PLAIN)
    for probe, profile in counted.profiles.items():
        record = counted.records[probe]
        assert profile.executed == profile.calls * (record.value or 0)
        assert record.profile is not None
        assert record.evidence is not None
        assert record.profile.int3 / profile.calls == (record.evidence.int3 or 0) / record.evidence.calls
    int3 = {probe: cell.profile.int3 // cell.profile.calls for probe, cell in counted.records.items() if cell.profile}
    assert int3 == {"none": 0, "kprobe": 2, "jprobe": 3, "djprobe": 0, "kretprobe-boosted": 1}


def test_each_instruction_is_where_it_belongs(counted: Done) -> None:
    profiles = counted.profiles
    symbols = {probe: by_symbol(profile) for probe, profile in profiles.items()}
    assert not [name for name in symbols["none"] if "[" in name or "int3" in name or "slot" in name]
    assert symbols["kprobe"]["kprobe_int3_handler"] == 109
    assert symbols["kprobe"]["kprobe_func [lab_kprobe]"] == 2
    # The probed instruction, executed where kprobes keeps a copy of it; and the jump back.
    assert symbols["kprobe"]["kprobe's slot"] == 2
    assert symbols["djprobe"]["djprobe_func [lab_djprobe]"] == 1
    assert symbols["djprobe"]["djprobe_detours [lab_djprobe]"] > 0
    assert {symbols[probe]["callbench"] for probe in PROBES} == {13}
    places = {(symbol.name, symbol.place) for symbol in profiles["kprobe"].symbols}
    assert {("callbench", "user"), ("get_kprobe", "kernel"), ("kprobe_func", "module")} <= places


def test_loads_stores_and_taken_branches_are_those_of_the_instructions(counted: Done) -> None:
    """QEMU 7.2 mistakes loads for stores where a plugin asks for one of them."""
    profile = counted.profiles["none"]
    expected = {"push": (0, 1), "pop": (1, 0), "ret": (1, 0)}
    seen = set()
    for instruction in profile.instructions:
        decoding = next(decoded(bytes.fromhex(instruction.code), 0, 4), None)
        if decoding is not None and decoding.name in expected:
            seen.add(decoding.name)
            loads, stores = expected[decoding.name]
            assert (instruction.loads, instruction.stores) == (
                loads * instruction.executed,
                stores * instruction.executed,
            ), instruction
        if decoding is not None and decoding.name in ("ret", "jmp", "call"):
            assert instruction.taken == instruction.executed, instruction
        if decoding is not None and decoding.name in ("push", "mov", "add"):
            assert instruction.taken == 0, instruction
    assert seen == set(expected)


def test_two_boots_execute_the_same_instructions(context: BuildContext, counted: Done, tmp_path: Path) -> None:
    """One was restored and the other booted, one with details and the other without."""
    booted = Done(context, boot("lab-i386-up", "symbols", probes=PLAIN), tmp_path, fresh=True)
    assert counted.restored_from != [None] == booted.restored_from
    for probe in PLAIN:
        assert proof(counted.records[probe]) == proof(booted.records[probe])
        first, second = counted.profiles[probe], booted.profiles[probe]
        assert [symbol.title for symbol in first.symbols] == [symbol.title for symbol in second.symbols]
        assert [(instruction.offset, instruction.code, instruction.executed) for instruction in first.instructions] == [
            (instruction.offset, instruction.code, instruction.executed) for instruction in second.instructions
        ]
        assert first.has_details
        assert not second.has_details


def test_stacks_lead_to_each_instruction(counted: Done) -> None:
    """Through system calls, traps, retpolines, string instructions, and a handler that is left for another function."""
    for probe, profile in counted.profiles.items():
        folded = {stack.names: stack.executed for stack in profile.stacks}
        assert sum(folded.values()) == profile.executed
        called = "callbench;entry_SYSENTER_32;do_SYSENTER_32;do_fast_syscall_32;__do_fast_syscall_32;ia32_sys_call"
        assert folded["callbench"] == 13 * profile.calls
        entered = [stack for stack in folded if stack.startswith(f"{called};__ia32_sys_gettimeofday")]
        traps = [stack for stack in entered if "asm_exc_int3;" in stack]
        assert bool(traps) == (probe in ("kprobe", "jprobe", "kretprobe-boosted"))
        lookups = [stack for stack in folded if stack.endswith(";kprobe_int3_handler;get_kprobe")]
        assert bool(lookups) == bool(traps)
        # Each call ends where it began: nothing is left on the stack for the next one.
        assert max(stack.count(";") for stack in folded) < 16


KINDS = ["kprobe", "kprobe-boosted", "kprobe-optimized", "kretprobe-boosted", "jprobe", "djprobe", "tracepoint"]
LARGEST = {
    "kprobe": "trap",
    "kprobe-boosted": "trap",
    "kprobe-optimized": "detour",
    "kretprobe-boosted": "return",
    "jprobe": "dispatch",
    "djprobe": "detour",
    "tracepoint": "dispatch",
}


def test_the_purposes_of_each_probe_add_up_to_its_overhead(counted: Done) -> None:
    check_purposes(counted.records)


@pytest.mark.nightly("the purposes of each kind of probe: half a minute")
@pytest.mark.parametrize(
    ("kernel", "cpu"),
    [
        ("lab-i386-up", "pentium4"),
        pytest.param("lab-x86_64-smp", "xeon-e5410", marks=pytest.mark.kernels("lab-x86_64-smp")),
    ],
)
def test_the_purposes_of_every_kind_add_up(context: BuildContext, tmp_path: Path, kernel: str, cpu: str) -> None:
    records = Done(context, boot(kernel, "purposes", cpu=cpu, probes=["none", *KINDS]), tmp_path).records
    assert set(records) == {"none", *KINDS}
    check_purposes(records)


def check_purposes(records: dict[str, CellRecord]) -> None:
    assert not records["none"].purposes
    for probe in records.keys() - {"none"}:
        spent = records[probe].purposes
        assert sum(spent.values()) == records[probe].overhead, records[probe].reason
        largest = max(spent, key=lambda name: spent[name])
        assert largest == LARGEST[probe], spent
        # Nothing of note is left without a purpose: a jprobe copies the stack with memcpy().
        assert abs(spent.get("other", 0)) <= 20, spent
        assert spent["handler"] > 0


def test_caches_miss_the_same_in_two_guests(context: BuildContext, tmp_path: Path) -> None:
    """All that a call touches stays in the caches of a Pentium 4; what a handler records is a new line each time.

    Where a record's line is, and so what it evicts, depends on how many were written before: on batches that an
    interrupt fell into. So the second guest does not record.
    """
    cells: list[dict[str, CellProfile]] = []
    for handlers in (["noop", "record"], ["noop"]):
        wanted_boot = boot("lab-i386-up", "caches", probes=["kprobe"], handlers=handlers)
        done = Done(context, wanted_boot, tmp_path / str(len(handlers)), row="kprobe")
        records = [event.record for event in done.events if isinstance(event, CellRecorded)]
        values = {"noop": 889, "record": 964}
        assert [record.value or record.reason for record in records] == [values[handler] for handler in handlers]
        cells.append({record.handler: load_profile(done.directory, record) for record in records})
    for profile in cells[0].values():
        assert {cache.name: cache.accesses for cache in profile.caches}["itlb"] == profile.executed
    quiet, recorded = cells[0]["noop"], cells[0]["record"]
    assert [(cache.misses, cache.repeated) for cache in quiet.caches] == [(0, 0)] * 5
    assert quiet == cells[1]["noop"]
    missed = {symbol.title: symbol.missed.l2 / recorded.calls for symbol in recorded.symbols if symbol.missed.l2}
    assert missed == {"kprobe_record [lab_kprobe]": 1}


EVERY_PART = ("symbols", "stacks", "purposes", "classes", "caches")


@pytest.mark.parametrize(
    ("kernel", "cpu", "probes"),
    [
        # The path of an int3 has instructions there that cross into another page: they count once.
        ("debian-amd64", "xeon-e5410", ["none", "kprobe"]),
        *(
            pytest.param(kernel, cpu, ["none", "kprobe", "kprobe-optimized", *more], marks=pytest.mark.nightly(why))
            for why in ["every part of a profile on four kernels: a minute"]
            for kernel, cpu, more in [
                ("debian-amd64@6.12", "xeon-e5410", ["bpf-fentry"]),
                ("debian-amd64", "xeon-e5410", ["bpf-fentry"]),
                ("debian-686", "pentium4", []),
                ("debian-686-pae", "pentium4", []),
            ]
        ),
    ],
)
def test_every_part_of_a_profile(
    context: BuildContext, tmp_path: Path, kernel: str, cpu: str, probes: list[str]
) -> None:
    done = Done(context, boot(kernel, *EVERY_PART, cpu=cpu, probes=probes), tmp_path)
    for probe, profile in done.profiles.items():
        record = done.records[probe]
        assert record.status == "ok", record.reason
        assert (
            profile.executed == profile.calls * (record.value or 0) == sum(stack.executed for stack in profile.stacks)
        )
        assert profile.has_details
        assert {cache.name for cache in profile.caches} == {"l1i", "l1d", "l2", "itlb", "dtlb"}
        assert sum(record.purposes.values()) == record.overhead
        assert profile.arch == ("x86_64" if "amd64" in kernel else "i386")
        # Each call ends where it began: nothing is left on the stack for the next one.
        assert max(stack.names.count(";") for stack in profile.stacks) < 24
        traps = [stack.entered or 0 for stack in profile.stacks if stack.names.endswith(";asm_exc_int3")]
        assert sum(traps) == sum(
            instruction.executed for instruction in profile.instructions if instruction.code == "cc"
        )
        assert all(stack.entered for stack in profile.stacks if stack.names.endswith((";ksys_read", "_gettimeofday")))
    assert set(done.profiles) == set(probes)


CROSSING = """\
#include "workload.h"
__asm__(".text\\n.p2align 12\\n.skip 4094\\ncrosses: mov $1, %eax\\n"
	".skip 4090, 0x90\\ncall 1f\\nret\\n1: ret\\n");
void crosses(void);
static char page[512];
static void fill(unsigned long times)
{
	void *to = page;

	__asm__ volatile("rep stosb" : "+D"(to), "+c"(times) : "a"(0) : "memory");
}
void workload(void)
{
	crosses();
	fill(512);
	fill(0);
	sys0(SYS_getpid);
}
"""


def test_a_function_of_the_users(context: BuildContext, tmp_path: Path) -> None:
    """Of 512 repetitions, in code whose instructions cross into other pages."""
    file = tmp_path / "getpid.c"
    file.write_text(CROSSING)
    wanted_boot = boot(
        "lab-i386-up",
        "symbols",
        "stacks",
        points=["__ia32_sys_getpid"],
        probes=["none"],
        benchmark={"name": "workload", "file": str(file), "calls": 100, "repeats": 2},
    )
    done = Done(context, wanted_boot, tmp_path / "run")
    record, profile = done.records["none"], done.profiles["none"]
    assert record.status == "ok", record.reason
    assert "workload" in by_symbol(profile)
    # A 32-bit kernel copies its entry stack with rep movsb where it switches stacks.
    symbol_profile, calls = next(symbol for symbol in profile.symbols if symbol.name == "workload"), profile.calls
    assert symbol_profile.repetitions == 512 * calls <= profile.repetitions
    assert record.profile is not None
    assert record.profile.repetitions == profile.repetitions
    value, repeated = record.value or 0, profile.repetitions / calls
    (note,) = (one for one in record.notes if "repetitions" in one)
    assert note.startswith(f"{repeated:g} of {value:g} instructions are repetitions")
    assert note.endswith(f"{value - repeated:g} without them")


def test_a_module_of_the_users_and_a_workload_of_his(context: BuildContext, tmp_path: Path) -> None:
    """What his module executes is the handler, but for what the lab's own modules have in common with it."""
    workload = Path(__file__).with_name("workloads") / "getting.c"
    module = tmp_path / "mine.c.j2"
    shutil.copy(data_dir("kmods") / "templates" / "kprobe.c.j2", module)
    wanted_boot = boot(
        "lab-i386-up",
        "symbols",
        "purposes",
        points=["__ia32_sys_getppid"],
        probes=["none", str(module)],
        benchmark={"name": "workload", "file": str(workload), "calls": 100, "hits": 2, "repeats": 2},
    )
    done = Done(context, wanted_boot, tmp_path / "run")
    mine = done.records["mine.c.j2"]
    assert mine.status == "ok", mine.reason
    assert by_symbol(done.profiles["mine.c.j2"])["kprobe_func [own_mine]"] == 2 * 2
    assert mine.profile is not None
    assert mine.profile.purposes is not None
    assert mine.profile.purposes["handler"] == 2 * 2 * mine.profile.calls


@pytest.mark.kernels("lab-x86_64-smp")
def test_guests_side_by_side_each_have_their_profiles(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(
        "name: two\nprobes: [none, kprobe]\nbenchmark: {name: gtodbench, calls: 1000}\ntables:\n"
        "  small: {kernels: [lab-i386-up], machines: [{cpu: pentium4}]}\n"
        "  large: {kernels: [lab-x86_64-smp], machines: [{cpu: athlon64}]}\n"
        "  plain: {kernels: [lab-i386-up], machines: [{cpu: pentium4}], clock: wall}\n"
    )
    command = CommandLine(tmp_path)
    arguments = ("--profile", "purposes", "--jobs", "2", "--only", "small", "--only", "large")
    finished = command.run("run", file, *arguments)
    assert finished.returncode == 0, finished.stderr
    assert "no profile of table plain: found purposes; clock 'wall' counts no instructions" in finished.stderr
    content = json.loads(command.run("report", "latest", "--format", "json").stdout)
    spent = {cell["table"]: cell["purposes"] for cell in content["cells"] if cell["probe"] == "kprobe"}
    assert {table: sum(one.values()) for table, one in spent.items()} == {"small": 529, "large": 576}
    assert "entry_SYSCALL_64" in command.run("profile", "latest", "large/athlon64/lab-x86_64-smp/none/noop").stdout


def test_calls_that_fault_have_a_number_and_no_profile_and_say_why(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    table = "kernels: [lab-i386-up]\nmachines: [{cpu: pentium4}]\nprobes: [none, kprobe.fault]\nprofile: [symbols]\n"
    file.write_text(f"name: faults\n{table}benchmark: {{name: gtodbench, calls: 100, repeats: 2}}\n")
    command = CommandLine(tmp_path)
    command.run("run", file)
    cells = command.cells()
    assert {name: (cell.status, cell.profile is None) for name, cell in cells.items()} == {
        "none": ("ok", False),
        "kprobe.fault": ("ok", True),
    }
    assert "one that faults is counted twice, and calls that fault have no profile" in cells["kprobe.fault"].notes[-1]


def test_a_sample_that_the_plugin_did_not_count_whole_is_refused(context: BuildContext, tmp_path: Path) -> None:
    """As where it began too late: then a region is missing, or one has other instructions."""
    from orchestrator.benchmarks.registry import kinds

    wanted_boot = boot("lab-i386-up", "symbols", probes=["none"])
    artifacts = prepare(context, kinds().named(wanted_boot.kind), wanted_boot)
    with ready_guest(context, artifacts, tmp_path, "guest") as ready:
        workload = gettimeofday("i386", "auto", 500)
        measured = workload.measure_exact(ready.guest, repeats=2, ticks_per_second=250, time_limit=60)
        marked = workload.measure_marked(ready.guest, measured, time_limit=60)
        regions = read_regions(ready.guest.counts_file, 0)
    assert sample_of(regions, marked.timed).total == 500 * 360
    with pytest.raises(EvidenceError, match="QEMU counted 1 samples, and 2 were timed"):
        sample_of(regions[1:], marked.timed)
    wrong = replace(marked.timed, empty=marked.timed.empty - 1)
    with pytest.raises(EvidenceError, match="in an empty batch, and the clock"):
        sample_of(regions, wrong)
    changed = [*regions[:-1], regions[-2].less(regions[0], 1)]
    with pytest.raises(EvidenceError, match=r"QEMU counted \d+ instructions in a sample, and the clock"):
        sample_of(changed, marked.timed)


def test_a_plugin_that_qemu_cannot_load_ends_the_guest(context: BuildContext, tmp_path: Path) -> None:
    from orchestrator.benchmarks.registry import kinds

    wanted_boot = boot("lab-i386-up", "symbols", probes=["none"])
    artifacts = prepare(context, kinds().named(wanted_boot.kind), wanted_boot)
    broken = tmp_path / "broken, really.so"
    broken.write_text("no shared object")
    machine = replace(artifacts.machine, counter=CountingPlugin(broken))
    with (
        pytest.raises(HostError, match="QEMU ended"),
        ready_guest(context, replace(artifacts, machine=machine), tmp_path, "guest", fresh=True),
    ):
        pytest.fail("QEMU has loaded what is no plugin")


@pytest.mark.nightly("Debian's kernel: three seconds; a difference on the command line is made every day")
def test_from_the_experiment_to_the_difference(tmp_path: Path) -> None:
    """On the command line, with Debian's kernel: the figures of the quickstart, and where they come from."""
    command = CommandLine(tmp_path)
    finished = command.run("run", QUICKSTART, "--profile", "symbols", "--only", "none", "--only", "kprobe")
    assert finished.returncode == 0, finished.stderr
    assert {probe: cell.value for probe, cell in command.cells().items()} == {"none": 422, "kprobe": 1048}
    profile = command.run("profile", "latest", "kprobe", "--limit", "0")
    assert profile.returncode == 0, profile.stderr
    assert "kprobe_int3_handler" in profile.stdout
    assert "callbench (user space)" in profile.stdout
    (difference,) = json.loads(command.run("diff", "latest:none", "latest:kprobe", "--format", "json").stdout)
    assert difference["change"] == 626
    largest = [(one["symbol"], one["change"]) for one in difference["symbols"][:4]]
    assert largest == [
        ("kprobe_int3_handler", 115),
        ("handle_exception", 94),
        ("handle_exception_return", 70),
        ("exc_int3", 54),
    ]
    assert sum(one["change"] for one in difference["symbols"]) == 626
