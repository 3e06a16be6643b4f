# SPDX-License-Identifier: GPL-2.0-only
"""Is the catalogue complete, consistent with itself, and true to the documents?"""

from __future__ import annotations

import re
import string
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.arch import Arch
from orchestrator.benchmarks.calls.benchmarks import ENTRIES, benchmarks
from orchestrator.catalog.cpus import CacheGeometry, cpu, cpu_caches, cpus, qemu_cpu
from orchestrator.catalog.data import nearest, unknown
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import BASELINE, probe_kind, probes, published_column
from orchestrator.catalog.published_tables import ReferenceTable, reference_table, reference_tables
from orchestrator.catalog.system_calls import system_calls
from orchestrator.errors import ConfigError
from orchestrator.paths import data_file

PUBLISHED_AVERAGES = {
    "list4": (262, 1326.75, 1875.5, 290),
    "list5": (230, 1246.25, 1808, 260.25),
    "list6": (2230.25, 4001.25, 2862.75, 2254.5),
    "list7": (2514, 4705.5, 3295.75, 2399),
    "list11": (261, 1430, 1970.5, 375, 330),
    "list12": (231.25, 1332.75, 1897.25, 338, 296),
    "list13": (2255.5, 2716.5, 2905.25, 2327.5, 2316.25),
    "list14": (2333.75, 3053.25, 3274.5, 2392.25, 2435.25),
}
PUBLISHED_OVERHEADS = {
    "list4": (0, 1064.75, 1613.5, 28),
    "list5": (0, 1016.25, 1578, 30.25),
    "list6": (0, 1771, 632.5, 24.25),
    "list7": (0, 2191.5, 781.75, -115),
    "list11": (0, 1169, 1709.5, 114, 69),
    "list12": (0, 1101.5, 1666, 106.75, 64.75),
    "list13": (0, 461, 649.75, 72, 60.75),
    "list14": (0, 719.5, 940.75, 58.5, 101.5),
}


def test_the_named_cpus_are_there() -> None:
    assert list(cpus()) == ["pentium4", "athlon", "athlon64", "pentium-m", "xeon-e5410", "core-i7-1165g7"]


def test_cpu_model_ids_are_those_of_qemu_s_option() -> None:
    for model in cpus().values():
        assert model.identity is not None
        assert f"family={model.identity.cpu_family}," in model.qemu
        assert f"model={model.identity.model}," in model.qemu
        assert f"stepping={model.identity.stepping}," in model.qemu
        assert f"model-id={model.identity.model_name}" in model.qemu


def test_catalogue_entries_cannot_be_changed() -> None:
    model = cpus()["pentium4"]
    for field in ("name", "qemu"):
        with pytest.raises(ValidationError):
            setattr(model, field, "host")
    assert isinstance(cpus(), MappingProxyType)


@pytest.mark.parametrize(
    ("name", "pae", "long_mode"),
    [("486-v1", False, False), ("qemu32", True, False), ("Haswell-noTSX-v2", True, True), ("max", True, True)],
)
def test_qemu_s_own_models_know_their_width(name: str, pae: bool, long_mode: bool) -> None:
    model = qemu_cpu(name)
    assert (model.qemu, model.identity, model.pae, model.long_mode) == (name, None, pae, long_mode)


def test_the_catalogue_comes_before_qemu_s_own_models() -> None:
    assert cpu("athlon").identity is not None
    assert cpu("core2duo").identity is None


@pytest.mark.parametrize(
    ("kernel", "cpu_name", "why_not"),
    [
        ("debian-amd64", "pentium4", "kernel 'debian-amd64' is 64-bit and CPU 'pentium4' is 32-bit"),
        ("debian-amd64", "athlon64", None),
        ("debian-686", "pentium-m", None),
        ("debian-686", "pentium", None),
        ("debian-686", "486", "kernel 'debian-686' needs an i586 CPU and CPU '486' is an i486"),
        ("debian-686", "base", "kernel 'debian-686' needs an i586 CPU and CPU 'base' is an i486"),
        ("lab-i386-up", "pentium-v1", "kernel 'lab-i386-up' needs an i686 CPU and CPU 'pentium-v1' is an i586"),
        ("lab-i386-smp-hash6", "pentium2", None),
    ],
)
def test_kernels_refuse_cpus_with_a_reason(kernel: str, cpu_name: str, why_not: str | None) -> None:
    assert kernels()[kernel].unsupported_reason(cpu(cpu_name)) == why_not


def test_a_kernel_that_needs_pae_refuses_with_that_reason() -> None:
    kernel = kernels()["debian-686"].model_copy(update={"needs_pae": True})
    assert kernel.unsupported_reason(cpu("pentium-m")) == "kernel 'debian-686' needs PAE and CPU 'pentium-m' has none"


def test_benchmarks_have_a_symbol_for_every_way_in() -> None:
    for benchmark in benchmarks().values():
        for arch, symbols in benchmark.symbols.items():
            assert set(symbols) == set(ENTRIES[arch])
        assert not benchmark.symbols or set(benchmark.symbols) == set(ENTRIES)
        assert benchmark.call is None or benchmark.call in system_calls()


def test_system_calls_have_each_architecture_s_numbers() -> None:
    call = system_calls()["gettimeofday"]
    assert (call.number("i386", "auto"), call.number("x86_64", "syscall")) == (78, 96)
    assert call.number("x86_64", "int80") == 78
    assert system_calls()["socketcall"].number("x86_64", "auto") is None
    table = data_file("images/guest/system_calls.tbl").read_text()
    assert len(re.findall(r"^(?:\d+|-)\t(?:\d+|-)\t\w+$", table, re.MULTILINE)) == len(system_calls())
    for arch in ("i386", "x86_64"):
        numbers = [number for call in system_calls().values() if (number := call.number(arch, "auto")) is not None]
        assert len(set(numbers)) == len(numbers) > 300


@pytest.mark.parametrize(("arch", "header"), [("i386", "unistd_32.h"), ("x86_64", "unistd_64.h")])
def test_system_calls_have_the_numbers_of_the_kernel_s_headers(arch: Arch, header: str) -> None:
    """Those of the host, which may be of an older kernel."""
    file = Path("/usr/include/x86_64-linux-gnu/asm") / header
    if not file.exists():
        pytest.skip("the host has no linux-libc-dev")
    defined = dict(re.findall(r"^#define __NR_(\w+) (\d+)$", file.read_text(), re.MULTILINE))
    assert len(defined) > 300
    assert {name: str(system_calls()[name].number(arch, "auto")) for name in defined} == defined


def test_all_but_the_baseline_are_armed_by_one_thing() -> None:
    for kind in probes().values():
        means = [each for each in (kind.template, kind.event, kind.program) if each is not None]
        assert len(means) == (0 if kind.name == BASELINE else 1), kind.name


def test_a_tracepoint_s_kinds_have_other_tracepoints_by_name() -> None:
    kind = probe_kind("trace-event.sched.sched_switch")
    assert (kind.name, kind.title, kind.event) == (
        "trace-event.sched.sched_switch",
        "event at sched.sched_switch",
        "trace",
    )
    assert kind.tracepoint == "sched.sched_switch"
    assert probe_kind("bpf-raw-tracepoint.sched_switch").title == "BPF on the tracepoint sched_switch"
    assert probe_kind("tracepoint.sys_exit").mechanism == "tracepoint"


@pytest.mark.parametrize(
    "name",
    [
        "trace-event.sched_switch",
        "tracepoint.sched.sched_switch",
        "tracepoint.",
        "tracepoint.sys exit",
        "trace-event.sched.sched_switch.x",
        "trace-event..x",
        "kprobe.sys_exit",
        "none.sys_exit",
        "tracepoint.\u00e9",
    ],
)
def test_only_a_tracepoint_s_name_makes_such_a_kind(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^unknown probe"):
        probe_kind(name)


@pytest.mark.parametrize(
    ("release", "arch", "int3"),
    [
        ("6.1.0-50-686", "i386", 2),
        ("6.1.0-56-amd64", "x86_64", 2),
        ("6.12.117-lab", "i386", 2),
        ("6.12.1", "x86_64", 1),
    ],
)
def test_a_uretprobe_takes_fewer_traps_where_it_returns_by_a_system_call(release: str, arch: Arch, int3: int) -> None:
    assert probes()["uretprobe-event"].on(release, arch).int3_per_hit == int3
    assert probes()["kprobe"].on(release, arch) is probes()["kprobe"]


def test_these_may_be_optimised() -> None:
    assert [kind.name for kind in probes().values() if kind.optimisation] == [
        "kprobe-optimized",
        "kprobe-detour",
        "kprobe-fallback",
        "kretprobe-optimized",
        "kprobe-event-optimized",
        "bpf-kprobe-optimized",
    ]


def test_all_published_tables_are_there() -> None:
    mail = {"jump-optimization-2009/x86-32", "jump-optimization-2009/x86-64"}
    found = {name for name in reference_tables() if name.startswith(("djprobe-2005", "jump-optimization-2009"))}
    assert {f"djprobe-2005/{name}" for name in PUBLISHED_AVERAGES} | mail == found


@pytest.mark.parametrize("name", PUBLISHED_AVERAGES)
def test_averages_and_overheads_are_the_published_ones(name: str) -> None:
    table = reference_table(f"djprobe-2005/{name}")
    assert tuple(table.average(column) for column in table.samples) == PUBLISHED_AVERAGES[name]
    assert tuple(table.overhead(column) for column in table.samples) == PUBLISHED_OVERHEADS[name]
    assert all(len(samples) == 4 for samples in table.samples.values())
    assert table.cpu in cpus()


def test_published_columns_are_probes_columns() -> None:
    columns = {kind.column for kind in probes().values()}
    for name in ("list4", "list5", "list6", "list7"):
        assert set(reference_table(f"djprobe-2005/{name}").samples) <= columns


FIELDS = {
    "id": "document/table",
    "title": "a table",
    "figure": "a figure",
    "document": "a document",
    "unit": "ns",
    "layout": "mail",
    "compared_with": "kprobe",
    "processor": "a processor",
    "kernel": "6.1",
    "handler": "noop",
}


def table_of(**fields: object) -> ReferenceTable:
    return ReferenceTable.model_validate({**FIELDS, **fields})


@pytest.mark.parametrize(("unit", "nanoseconds"), [("M/s", 1e3), ("k/s", 1e6), ("calls in 10 s", 1e10)])
@given(rate=st.floats(1e-3, 1e6), loop=st.floats(1e-3, 1e6))
def test_a_rate_is_a_time_less_the_empty_loop(unit: str, nanoseconds: float, rate: float, loop: float) -> None:
    table = table_of(rate_unit=unit, base="empty", rates={"empty": [loop, 0.1], "kprobe": rate})
    assert table.columns == ("kprobe",)
    assert table.average("kprobe") == pytest.approx(nanoseconds / rate)
    assert table.overhead("kprobe") == pytest.approx(nanoseconds / rate - nanoseconds / loop)
    with_loop = table_of(rate_unit=unit, rates={"kprobe": [rate, 0.0]})
    assert with_loop.overhead("kprobe") == with_loop.average("kprobe") == pytest.approx(nanoseconds / rate)


@pytest.mark.parametrize(
    ("table", "column", "nanoseconds"),
    [
        ("trampoline-jmp-2025/jumped-to", "bpf-fentry", 3.5),
        ("trampoline-jmp-2025/jumped-to", "bpf-fexit", 4.9),
        ("trampoline-jmp-2025/jumped-to", "bpf-kretprobe", 39.7),
        ("trampoline-2019/no-mitigations", "bpf-kretprobe", 168.5),
        ("objpool-2023/objpool", "kretprobe-ftrace", 175.1),
        ("getpid-2006/sys-getpid", "kprobe", 498 / 2.16),
        ("kprobes-rst/optimized-x86-64", "kprobe+optimized", 60),
    ],
)
def test_published_figures_as_times(table: str, column: str, nanoseconds: float) -> None:
    assert reference_table(table).nanoseconds(column) == pytest.approx(nanoseconds, abs=0.05)


def test_a_rate_is_shown_as_published() -> None:
    assert reference_table("trampoline-jmp-2025/called").rate("bpf-fexit") == "80.544 ± 0.045"
    assert reference_table("objpool-2023/objpool").rate("kretprobe-ftrace") == "23926730"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "either samples, overheads or rates"),
        ({"samples": {"baseline": [1.0]}, "rates": {"kprobe": 1.0}, "rate_unit": "M/s"}, "either samples, overheads"),
        ({"rates": {"kprobe": 1.0}}, "rates are in M/s, k/s, calls in 10 s"),
        ({"rates": {"kprobe": 1.0}, "rate_unit": "M/s", "unit": "us"}, "their unit of time is ns"),
        ({"rates": {"kprobe": 0.0}, "rate_unit": "M/s"}, "a rate is above zero"),
        ({"rates": {"kprobe": [1.0]}, "rate_unit": "M/s"}, "at least 2 items"),
        ({"rates": {"kprobe": 1.0}, "rate_unit": "M/s", "base": "loop"}, "there is no rate of the base, loop"),
        ({"overheads": {"kprobe": 1.0}, "unit": "cycles"}, "cycles need mhz"),
    ],
)
def test_a_wrong_published_table_is_refused(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        table_of(**fields)


def test_published_columns_of_the_later_documents_are_probes() -> None:
    documents = {"raw-tracepoint-2018", "trampoline-2019", "objpool-2023", "fprobe-fgraph-2024", "trampoline-jmp-2025"}
    for table in reference_tables().values():
        assert table.cpu is None or table.cpu in cpus()
        if table.document_id in documents:
            assert [published_column(column) for column in table.columns] == list(table.columns)
        if table.layout == "mail":
            assert table.compared_with in table.columns


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown reference table 'djprobe-2005/list55'; .*did you mean 'dj.*list5'"):
        reference_table("djprobe-2005/list55")
    with pytest.raises(ConfigError, match="unknown column of djprobe-2005/list5 'lkst'; allowed: baseline, "):
        reference_table("djprobe-2005/list5").average("lkst")


def test_spelling() -> None:
    assert nearest("PENTUM4", cpus()) == "pentium4"
    assert nearest("zzz", cpus()) is None
    assert unknown("CPU", "foo", ["foa", "bar"]) == "unknown CPU 'foo'; allowed: foa, bar; did you mean 'foa'?"
    assert unknown("CPU", "zzz", ["foa", "bar"]) == "unknown CPU 'zzz'; allowed: foa, bar"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("xeon", "xeon-e5410"),  # the beginning of a name, less than half of it
        ("Xeon-E", "xeon-e5410"),
        ("athlon6", "athlon64"),
        ("athl", "athlon"),  # of two names the shorter
        ("5410", "xeon-e5410"),  # the end of one
        ("tium-", "pentium-m"),
        ("penitum4", "pentium4"),  # no part of any: a misspelling
        ("4", None),  # too short to be an abbreviation
    ],
)
def test_a_part_of_a_name_suggests_the_name(word: str, meant: str | None) -> None:
    assert nearest(word, ["pentium4", "athlon", "athlon64", "pentium-m", "xeon-e5410"]) == meant


def test_a_name_is_nearest_to_itself_whatever_else_begins_with_it() -> None:
    assert nearest("KPROBE", ["kprobe-optimized", "kprobe"]) == "kprobe"


@given(st.text(), st.lists(st.text(string.ascii_letters, min_size=1)))
def test_nearest_is_always_a_choice(word: str, choices: list[str]) -> None:
    assert nearest(word, choices) in [None, *choices]


@given(st.sampled_from(sorted(cpus())), st.integers(0, 20))
def test_one_dropped_letter_is_recognised(name: str, at: int) -> None:
    position = at % len(name)
    assert nearest(name[:position] + name[position + 1 :], [name, "something else"]) == name


def test_each_named_cpu_has_caches_with_a_source() -> None:
    assert list(cpu_caches()) == [name for name in cpus() if name in cpu_caches()]
    assert set(cpus()) == set(cpu_caches())
    for caches in cpu_caches().values():
        assert all(cache.source for cache in caches.all.values())
    assert cpu_caches()["pentium4"].l1d.size == 8 << 10
    assert cpu_caches()["xeon-e5410"].dtlb.as_cache.size == 1 << 20


def test_a_cache_is_made_of_whole_sets() -> None:
    with pytest.raises(ValidationError, match="do not divide into sets of 24 lines"):
        CacheGeometry(size=4 << 20, ways=24, line=64, source="none")
