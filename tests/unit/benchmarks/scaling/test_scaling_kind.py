# SPDX-License-Identifier: GPL-2.0-only
"""Do thousands of kprobes go only where they may, the same ones for the same seed?"""

from __future__ import annotations

import pytest
from drawn_charts import bar_charts, curve_charts
from hypothesis import given
from hypothesis import strategies as st
from record_builders import failed, many_probes, run
from report_text import check_golden_table, printed

from orchestrator.benchmarks.scaling.kind import choose_sites, choose_sites_by_name, functions
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.results.contract import RunRecord

START, END = 0xC1000000, 0xC1010000


FUNCTIONS = list(range(START, END, 0x100))


def listing(addresses: list[int], extra: str = "") -> bytes:
    lines = [f"{START:08x} T _stext", f"{END:08x} T _etext"]
    lines += [f"{address:08x} t function_{address:x}" for address in addresses]
    return ("\n".join(lines) + "\n" + extra).encode()


@given(st.integers(1, len(FUNCTIONS)), st.integers(0, 2**32 - 1))
def test_a_seed_chooses_the_same_functions_each_time_and_each_once(count: int, seed: int) -> None:
    chosen = choose_sites(listing(FUNCTIONS), b"", count, seed)
    assert chosen == choose_sites(listing(FUNCTIONS), b"", count, seed)
    assert len(set(chosen)) == len(chosen) >= count
    assert set(chosen) <= set(FUNCTIONS)


@given(st.sets(st.sampled_from(FUNCTIONS), max_size=100), st.integers(0, 100))
def test_blacklisted_functions_are_left_out(forbidden: set[int], seed: int) -> None:
    ranges = "".join(f"0x{address:08x}-0x{address + 0x100:08x}\tfunction_{address:x}\n" for address in forbidden)
    chosen = choose_sites(listing(FUNCTIONS), ranges.encode(), len(FUNCTIONS) - len(forbidden), seed)
    assert not forbidden & set(chosen)


def test_ranges_of_the_blacklist_may_overlap_and_lie_within_each_other() -> None:
    ranges = [(0, 9), (1, 2), (3, 12), (20, 21), (20, 24), (22, 23)]
    text = "".join(f"{START + a * 0x100:#010x}-{START + b * 0x100:#010x}\tname\n" for a, b in ranges)
    left = [address for number, address in enumerate(FUNCTIONS) if not (number < 12 or 20 <= number < 24)]
    assert sorted(choose_sites(listing(FUNCTIONS), text.encode(), len(left), 1)) == left


def test_modules_data_weak_symbols_and_what_is_freed_are_no_functions_of_the_kernel() -> None:
    others = "".join(
        f"{address:08x} {kind} {name}\n"
        for address, kind, name in [
            (START + 0x40, "d", "data"),
            (START + 0x50, "W", "weak"),
            (END + 0x40, "t", "freed_after_boot"),
            (START + 0x60, "t", "of_a_module\t[module]"),
            (START + 0xF0, "t", "__pfx_function_c1000100"),
            (START + 0x100, "T", "another_name_for_a_function"),
        ]
    )
    assert functions(listing(FUNCTIONS, others)) == FUNCTIONS


def test_too_few_functions_are_reported() -> None:
    with pytest.raises(UnsupportedError, match="this kernel has 256 functions that take a kprobe, not 257"):
        choose_sites(listing(FUNCTIONS), b"", 257, 1)


@given(st.binary(max_size=300))
def test_arbitrary_listings_are_parsed_or_refused(noise: bytes) -> None:
    with pytest.raises(EvidenceError):
        functions(noise)


def test_hidden_addresses_are_reported() -> None:
    with pytest.raises(EvidenceError, match="hides their addresses"):
        functions(b"00000000 T _stext\n00000000 T _etext\n00000000 t function\n")


def test_kernels_that_differ_little_have_the_same_functions_probed() -> None:
    """Another kernel has its functions elsewhere, and one more."""
    names = [f"f{number}" for number in range(100)]

    def chosen(start: int, functions: list[str]) -> list[str]:
        places = {name: start + 16 * number for number, name in enumerate(functions)}
        bounds = {"_stext": start - 16, "_etext": start + 0x10000}
        listing = "".join(f"{at:08x} T {name}\n" for name, at in {**bounds, **places}.items()).encode()
        found = choose_sites_by_name(listing, b"", 50, 2014, 1.0)
        return [name for address in found for name, at in places.items() if at == address]

    one, other = chosen(0xC1000010, names), chosen(0xC2000010, ["new", *names])
    assert len(one) >= len(names) // 2 - 1
    # The new one takes the place of one of them at most.
    assert [name for name in other if name != "new"] == one[: len(set(other) - {"new"})]


# Tables and curves of thousands of kprobes.

KPCACHE_CELL = ("id", "table", "kernel", "probe", "benchmark", "metric", "parameters")


RUNS: dict[str, RunRecord] = {
    "many_probes": run(*many_probes()),
    "many_probes_with_failures": run(
        *(probe for probe in many_probes() if probe.table == "hash6"),
        *(
            failed("none", "the guest hangs", **{name: getattr(probe, name) for name in KPCACHE_CELL})
            for probe in many_probes()
            if probe.kernel == "lab-i386-smp-kpcache"
        ),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_scaling_table_is_as_in_the_golden_file(name: str) -> None:
    check_golden_table(name, RUNS[name])


def test_thousands_of_kprobes_are_curves_over_their_number() -> None:
    drawn = curve_charts(run(*many_probes()))
    assert {"kpcache-register", "kpcache-enable", "kpcache-hit"} <= set(drawn)
    totals, steps = drawn["kpcache-register"].panes
    assert (totals.logarithmic, steps.logarithmic) == (True, False)
    # One size is no curve.
    assert [curve.name for curve in totals.curves] == ["lab-i386-smp-hash12", "lab-i386-smp-kpcache"]
    assert [x for x, _ in totals.curves[0].points] == [1000, 5000]
    assert [x for x, _ in steps.curves[0].points] == list(range(500, 5001, 500))
    assert totals.curves[1].points[-1][1] == pytest.approx(6.0034, rel=1e-4)
    assert steps.curves[1].points[-1] == totals.curves[0].points[-1]
    later, first = drawn["kpcache-hit"].panes
    assert [later.curves[1].points[1][1], first.curves[1].points[1][1]] == [363.078125, 396.740625]
    assert bar_charts(run(*many_probes())) == {}


def test_a_baseline_alone_has_a_plain_table() -> None:
    (baseline, *_) = [probe for probe in many_probes() if probe.benchmark == "kpcache" and probe.probe == "none"]
    assert any(line.startswith(baseline.id) for line in printed(run(baseline)).splitlines())
