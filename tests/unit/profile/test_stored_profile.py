# SPDX-License-Identifier: GPL-2.0-only
"""Is a stored profile the one that was proved, and is the difference between two the whole difference?"""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from record_builders import cell, run

from orchestrator.errors import LabError, UsageError
from orchestrator.profile.stored.cell_profile import (
    CacheProfile,
    CellProfile,
    CodeLine,
    InstructionCount,
    InstructionMisses,
    Misses,
    SymbolProfile,
    stem,
)
from orchestrator.profile.stored.profile_difference import SymbolDifference, difference, paired
from orchestrator.profile.stored.profile_files import (
    FOLDER,
    file_name,
    load_pair,
    load_profile,
    plain_file,
    write_profile,
)
from orchestrator.results.cell_filters import cells_named
from orchestrator.results.contract import CellRecord

SHA = "0" * 64


def symbol(name: str, executed: int, *, module: str | None = None, address: int = 0) -> SymbolProfile:
    place: Any = "kernel" if module is None else "module"
    return SymbolProfile(
        name=name, place=place, module=module, address=address, instructions=(InstructionCount(0, "55", executed),)
    )


def profile(*symbols: SymbolProfile, calls: int = 10, of: str = "kprobe") -> CellProfile:
    return CellProfile(
        cell=f"pentium4/debian-686/{of}/noop", arch="i386", calls=calls, has_details=False, symbols=symbols
    )


def profiled(probe: str, **changes: Any) -> CellRecord:
    """A record of the quickstart with a profile: 1036 instructions a call and two int3 for a kprobe."""
    proof = {"sha256": SHA, "calls": 10, "instructions": 10360, "int3": 20, **changes}
    return cell(probe, profile=proof)


def test_beside_its_own_baseline_a_cell_has_the_calls_without_the_probe_in_turn(tmp_path: Path) -> None:
    """In another run, and beside another probe, the profiles are those of the two cells."""
    runs = tmp_path / "first", tmp_path / "second"
    in_baseline, in_turn, with_probe = (profile(symbol("f", count)) for count in (4090, 4100, 10360))
    figures = {"samples": [1036.0, 1037.0], "value": 1036.5}
    for folder in runs:
        files = [folder / FOLDER / file_name(cell(probe).id) for probe in ("none", "kprobe")]
        folder.mkdir()
        digests = [
            write_profile(cell_profile, file)
            for cell_profile, file in zip((in_baseline, with_probe), files, strict=True)
        ]
        digests.append(write_profile(in_turn, plain_file(files[1])))
    proof = {"sha256": digests[0], "calls": 10, "instructions": 4090, "int3": 0}
    plain = cell("none", profile=proof)
    probed = cell("kprobe", profile={**proof, "sha256": digests[1], "int3": 20, "plain": digests[2]}, **figures)
    assert CellRecord.model_validate_json(probed.model_dump_json()) == probed
    assert load_pair((runs[0], plain), (runs[0], probed)) == (in_turn, with_probe)
    assert load_pair((runs[1], plain), (runs[0], probed)) == (in_baseline, with_probe)
    assert load_pair((runs[0], probed), (runs[0], probed)) == (with_probe, with_probe)
    other_table = plain.model_copy(update={"table": "other"})
    assert load_pair((runs[0], other_table), (runs[0], probed)) == (in_baseline, with_probe)
    plain_file(runs[0] / FOLDER / file_name(probed.id)).write_bytes(b"changed")
    with pytest.raises(LabError, match="differs from the recorded one"):
        load_pair((runs[0], plain), (runs[0], probed))


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = profile(symbol("get_kprobe", 10350), symbol("kprobe_func", 10, module="lab_kprobe"))
    file = tmp_path / FOLDER / file_name(written.cell)
    digest = write_profile(written, file)
    assert file.name == "pentium4.debian-686.kprobe.noop.json.gz"
    assert load_profile(tmp_path, profiled("kprobe", sha256=digest)) == written
    assert write_profile(written, tmp_path / "again") == digest
    assert b"code_lines" not in gzip.decompress(file.read_bytes())  # nor in profiles of earlier versions


def test_lines_of_generated_code_are_read_as_they_were_written(tmp_path: Path) -> None:
    lines = (CodeLine(1 << 63, 12, "/x.c", "add();"), CodeLine((1 << 63) + 8))
    written = profile(symbol("f", 1)).model_copy(update={"code_lines": lines})
    digest = write_profile(written, tmp_path / FOLDER / file_name(written.cell))
    assert load_profile(tmp_path, profiled("kprobe", sha256=digest)) == written


CACHES = tuple(
    CacheProfile(name=name, size=8192, ways=4, line=64, accesses=accesses, misses=misses, repeated=misses)
    for name, accesses, misses in (
        ("l1i", 100, 0),
        ("l1d", 50, 7),
        ("l2", 7, 4),
        ("itlb", 100, 0),
        ("dtlb", 50, 1),
    )
)


def test_functions_that_not_all_calls_execute_alike_are_told() -> None:
    cell_profile = profile(symbol("vfs_open", 70), symbol("allocate_slab", 13), symbol("dput", 68), calls=10)
    assert cell_profile.uneven == ["allocate_slab", "dput"]
    assert profile(symbol("vfs_open", 70), calls=10).uneven == []


def missing(**changes: Any) -> CellProfile:
    """A profile whose first symbol misses in caches."""
    misses = (InstructionMisses(0, "55", Misses(0, 3, 4, 4, 0, 1)),)
    cell_profile = profile(symbol("get_kprobe", 10350).model_copy(update={"misses": misses}), symbol("other", 10))
    return CellProfile.model_validate({**cell_profile.model_dump(), "caches": CACHES, **changes})


def test_misses_are_stored(tmp_path: Path) -> None:
    written = missing()
    digest = write_profile(written, tmp_path / FOLDER / file_name(written.cell))
    read = load_profile(tmp_path, profiled("kprobe", sha256=digest))
    assert read == written
    assert read.missed == Misses(0, 3, 4, 4, 0, 1)
    assert [symbol_profile.missed.of("l1d") for symbol_profile in read.symbols] == [7, 0]
    assert [cache.hits for cache in read.caches] == [100, 43, 3, 100, 49]


def test_a_profile_from_before_there_were_caches_is_read() -> None:
    old = profile(symbol("get_kprobe", 10350)).model_dump(exclude={"caches": True, "symbols": {"__all__": {"misses"}}})
    assert "misses" not in old["symbols"][0]
    assert CellProfile.model_validate(old).missed == Misses()


@pytest.mark.parametrize(
    ("cache", "changes", "why"),
    [
        (1, {"misses": 8}, "l1d missed 8 times, and the symbols 7 times"),
        (2, {"accesses": 8}, "level 2 has other accesses than level 1 has misses"),
        (4, {"accesses": 0}, "dtlb missed 1 of 0 accesses"),
    ],
)
def test_caches_that_contradict_the_symbols_are_refused(cache: int, changes: dict[str, int], why: str) -> None:
    changed = [cache_profile.model_dump() for cache_profile in CACHES]
    changed[cache].update(changes)
    with pytest.raises(ValidationError, match=why):
        missing(caches=changed)


def test_another_file_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    write_profile(profile(symbol("f", 1)), tmp_path / FOLDER / file_name("pentium4/debian-686/kprobe/noop"))
    with pytest.raises(LabError, match="differs from the recorded one"):
        load_profile(tmp_path, profiled("kprobe"))


def test_a_profile_that_is_not_there_yet_says_when_it_is(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is missing") as error:
        load_profile(tmp_path, profiled("kprobe"))
    assert "--resume" in error.value.hint


def test_a_cell_without_a_profile_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no profile") as error:
        load_profile(tmp_path, cell("kprobe"))
    assert "--profile symbols" in error.value.hint


def test_what_unpacks_to_something_else_is_damaged(tmp_path: Path) -> None:
    import hashlib

    content = gzip.compress(b'{"cell": 1}')
    file = tmp_path / FOLDER / file_name("pentium4/debian-686/kprobe/noop")
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(LabError, match="damaged"):
        load_profile(tmp_path, profiled("kprobe", sha256=hashlib.sha256(content).hexdigest()))


def test_a_record_keeps_the_proof_of_its_profile() -> None:
    record = profiled("kprobe")
    assert CellRecord.model_validate_json(record.model_dump_json()) == record
    assert "profile" not in cell("kprobe").model_dump()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"instructions": 10361}, "the profile has 10361 instructions in 10 calls, but the samples are 1036"),
        ({"int3": 19}, "the profile has 19 int3 in 10 calls, but QEMU took 10000 traps in 5000 calls"),
    ],
)
def test_a_profile_that_is_not_the_cells_fails_it(changes: dict[str, int], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        profiled("kprobe", **changes)


def test_a_difference_has_the_largest_change_first_and_counts_equal_ones() -> None:
    before = profile(symbol("same", 50), symbol("less", 90), symbol("gone", 20), of="none")
    after = profile(
        symbol("same", 100, address=0x40), symbol("less", 100), symbol("new", 700, module="lab_kprobe"), calls=20
    )
    profile_difference = difference(before, after)
    assert list(profile_difference.symbols) == [
        SymbolDifference(symbol="new [lab_kprobe]", before=None, after=Fraction(35)),
        SymbolDifference(symbol="less", before=Fraction(9), after=Fraction(5)),
        SymbolDifference(symbol="gone", before=Fraction(2), after=None),
    ]
    assert [float(symbol_difference.change) for symbol_difference in profile_difference.symbols] == [35, -4, -2]
    assert profile_difference.equal == 1
    assert profile_difference.totals == (Fraction(16), Fraction(45))
    assert (
        sum(symbol_difference.change for symbol_difference in profile_difference.symbols)
        == profile_difference.totals[1] - profile_difference.totals[0]
    )


def test_functions_of_one_name_are_taken_together() -> None:
    two = profile(symbol("f", 5, address=1), symbol("f", 10, address=2))
    (only,) = difference(two, profile(symbol("f", 20))).symbols
    assert (only.before, only.after) == (Fraction(3, 2), Fraction(2))


def test_cells_are_named_by_their_ids_or_by_parts_of_them() -> None:
    record = run(cell("none"), cell("kprobe"), cell("jprobe"))
    assert [one.probe for one in cells_named(record, "pentium4/debian-686/kprobe/noop")] == ["kprobe"]
    assert [one.probe for one in cells_named(record, "kprobe")] == ["kprobe"]
    assert [one.probe for one in cells_named(record, "noop/jprobe")] == ["jprobe"]
    assert len(cells_named(record, "pentium4")) == 3
    for pattern in ("k*", "pent*/kprob?", "probe=kprobe", "probe=k*,cpu=pentium4", "id=*/kprobe/noop", "[k]probe"):
        assert [one.probe for one in cells_named(record, pattern)] == ["kprobe"]
    for wrong, said in (("cup=pentium4", "unknown key 'cup'"), ("probe=", "expected PATTERN or KEY=PATTERN")):
        with pytest.raises(UsageError, match=said):
            cells_named(record, wrong)
    with pytest.raises(UsageError, match="has no cell 'bpf-\\*'"):
        cells_named(record, "bpf-*")
    with pytest.raises(UsageError, match="has no cell 'kprob'") as error:
        cells_named(record, "kprob")
    assert error.value.hint == "did you mean 'kprobe'?"


# Which names of two kernels are one function's?

_NAMES = st.sets(
    st.builds(
        lambda name, suffix: name + suffix,
        st.sampled_from(["read", "write", "f"]),
        st.sampled_from(["", ".isra.0", ".isra.1", ".constprop.0", ".part.0.isra.0", ".cold", " [lab]"]),
    )
)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("kprobe_int3_handler", "kprobe_int3_handler"),
        ("read.isra.0", "read"),
        ("read.part.0.isra.0", "read"),
        ("read.cold", "read"),
        ("read.constprop.12 [lab_kprobe]", "read [lab_kprobe]"),
        ("read.isra.0+0x5", "read+0x5"),
        ("e843419.read", "e843419.read"),
        ("read.partial", "read.partial"),
    ],
)
def test_what_a_compiler_adds_is_no_part_of_a_name(title: str, expected: str) -> None:
    assert stem(title) == expected


def test_a_clone_belongs_to_the_only_one_that_is_left_of_the_other_side() -> None:
    assert list(paired(["f.isra.0", "g"], ["g", "f"])) == [("g", "g"), ("f.isra.0", "f")]
    assert list(paired(["f"], ["f.constprop.0"])) == [("f", "f.constprop.0")]


def test_symbol_in_both_profiles_is_not_paired_with_another_clone() -> None:
    """The part that was split off in one build only is new there."""
    assert list(paired(["f"], ["f", "f.part.0"])) == [("f", "f"), (None, "f.part.0")]


def test_two_clones_of_one_side_are_not_guessed_at() -> None:
    assert list(paired(["f"], ["f.part.0", "f.isra.0"])) == [("f", None), (None, "f.part.0"), (None, "f.isra.0")]


@given(_NAMES, _NAMES)
def test_each_name_is_there_once_and_sides_may_change_places(before: set[str], after: set[str]) -> None:
    pairs = list(paired(sorted(before), sorted(after)))
    assert sorted(one for one, _ in pairs if one is not None) == sorted(before)
    assert sorted(other for _, other in pairs if other is not None) == sorted(after)
    assert all(stem(one) == stem(other) for one, other in pairs if one is not None and other is not None)
    assert {(other, one) for one, other in pairs} == set(paired(sorted(after), sorted(before)))
