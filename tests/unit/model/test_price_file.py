# SPDX-License-Identifier: GPL-2.0-only
"""The catalogue's price lists, and the complaints about a user's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from profiled_cells import list5
from record_builders import run

from orchestrator.catalog.cpus import cpus
from orchestrator.catalog.price_list import Fitted, priced_cpus
from orchestrator.errors import ConfigError, HostError, LabError, UsageError
from orchestrator.model.fit import FitTarget, calibrated, fitted
from orchestrator.model.price_file import PriceFile, load_price_file, price_file, write_price_list
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run

OWN = """\
cpu: pentium4
mhz: {value: 3000, low: 3000, high: 3000, source: published, where: "a label"}
constants:
  popf: {value: 52.5, low: 40, high: 60, source: unverified, where: "a guess"}
declared:
  date: "2026-01-01"
  fit: [instruction]
  calibration: {djprobe-2005/list5: [djprobe]}
  kernels: {djprobe-2005/list5: lab-i386-up}
  validation: {}
  exclusions: []
  remarks: []
"""


CATALOGUE = list(priced_cpus())


def own(folder: Path, text: str) -> PriceFile:
    file = folder / "own.yaml"
    file.write_text(text)
    return load_price_file(file)


def fit(file: PriceFile) -> Fitted:
    """What its calibration cell gives."""
    target = FitTarget("djprobe-2005/list5", "djprobe", {"instruction": 37, "popf": 1}, 30.25)
    return fitted(file.prices, file.declaration, [target])


def refit(file: PriceFile) -> str:
    assert file.prices.fitted is not None
    targets = [FitTarget(one.table, one.column, one.counts, one.published) for one in file.prices.fitted.cells]
    return fitted(file.prices, file.declaration, targets).model_dump_json()


def test_the_catalogue_has_a_table_or_a_reason_for_each_published_cpu() -> None:
    assert set(CATALOGUE) == {"athlon64", "core-i7-1165g7", "pentium-m", "pentium4", "xeon-e5410"}
    assert set(CATALOGUE) < set(cpus())
    for name in CATALOGUE:
        assert price_file(name).prices.cpu == name


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - {"pentium-m"}))
def test_a_table_of_the_catalogue_is_what_its_calibration_cells_give(name: str) -> None:
    """Nobody has edited what was fitted, nor the declaration since."""
    file = price_file(name)
    assert file.unusable is None
    assert file.prices.fitted is not None
    assert refit(file) == file.prices.fitted.model_dump_json()


def test_a_cpu_that_cannot_be_calibrated_says_why() -> None:
    assert "contradict each other" in (price_file("pentium-m").unusable or "")


def write(file: PriceFile, found: Fitted) -> None:
    """As ``model fit --force`` does."""
    write_price_list(file.path, file.text_with(found), replace=True)


def test_writing_replaces_what_was_fitted_and_nothing_else(tmp_path: Path) -> None:
    file = own(tmp_path, "# a comment\n" + OWN)
    assert file.unusable == "the price list of pentium4 is not fitted yet"
    found = fit(file)
    write(file, found)
    once = file.path.read_text()
    assert once.startswith("# a comment\n" + OWN)
    again = load_price_file(file.path)
    assert again.unusable is None
    assert again.prices.fitted == found
    write(again, found)
    assert file.path.read_text() == once
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    write_price_list(tmp_path / "new.yaml", "one\n")
    with pytest.raises(UsageError, match=r"new\.yaml: this file exists(.|\n)*--force"):
        write_price_list(tmp_path / "new.yaml", "two\n")
    assert (tmp_path / "new.yaml").read_text() == "one\n"


def test_a_table_that_cannot_be_written_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    """And nothing is left of it: here the last step fails, since a folder has the name."""
    (tmp_path / "own.yaml").mkdir()
    with pytest.raises(HostError, match=r"own\.yaml: cannot write the price list(.|\n)*--out"):
        write_price_list(tmp_path / "own.yaml", OWN, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["own.yaml"]


def test_a_declaration_that_changed_after_the_fit_gives_no_times(tmp_path: Path) -> None:
    file = own(tmp_path, OWN)
    write(file, fit(file))
    for old, new in (("value: 52.5", "value: 45"), ("lab-i386-up", "debian-686")):
        changed = own(tmp_path, file.text_with(fit(file)).replace(old, new, 1))
        assert changed.unusable == "the price list of pentium4 has changed since it was fitted"


@pytest.mark.parametrize(
    ("key", "edited"),
    [
        ("cycles", "instruction"),
        ("weights", "instruction"),
        ("modelled", "djprobe-2005/list5 djprobe"),
        ("counts", "instruction"),
    ],
)
def test_a_fitted_figure_that_was_edited_gives_no_times(tmp_path: Path, key: str, edited: str) -> None:
    """One that has no effect on the digest of the declaration, and is no figure that was published."""
    file = own(tmp_path, OWN)
    text = file.text_with(fit(file))
    # counts: popf, whose constant is taken from the published figure
    pattern = r"(popf: )(?=1\.0)" if key == "counts" else rf"({key}: \[?)"
    changed, number = re.subn(pattern, r"\g<1>7", text)
    assert number == 1, text
    assert edited + " does not follow from the rest" in (own(tmp_path, changed).unusable or "")


@pytest.mark.parametrize(
    "move",
    [
        lambda text: "fitted:" + text.partition("fitted:")[2] + OWN,
        lambda text: text.replace("\nfitted:", '\n"fitted":'),
    ],
)
def test_what_was_fitted_is_below_all_that_was_declared(tmp_path: Path, move: Callable[[str], str]) -> None:
    """Else the digest of the declaration would leave out a part of it."""
    file = own(tmp_path, OWN)
    with pytest.raises(
        ConfigError, match=r"fitted: expected 'fitted:' at the beginning of a line, and nothing declared"
    ):
        own(tmp_path, move(file.text_with(fit(file))))


@pytest.mark.parametrize("change", [("published: 30.25", "published: 31"), ("column: djprobe", "column: jprobe")])
def test_prices_of_other_figures_than_the_published_ones_give_no_times(tmp_path: Path, change: tuple[str, str]) -> None:
    file = own(tmp_path, OWN)
    write(file, fit(file))
    text = file.path.read_text()
    assert change[0] in text
    changed = own(tmp_path, text.replace(*change))
    assert "fitted to figures that differ" in (changed.unusable or "")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("value: 52.5", "value: many", r"own\.yaml:4: constants\.popf\.value: found 'many'; expected a number"),
        ("low: 40", "low: 55", r"own\.yaml:4: constants\.popf: found .*; expected 0 < low <= value <= high"),
        ("source: unverified", "source: me", r"own\.yaml:4: constants\.popf\.source: found 'me'"),
        ("  popf:", "  push:", r"own\.yaml:4: constants\.push: found 'push'"),
        ("fit: [instruction]", "fit: [popf]", r"own\.yaml:1: .*popf is both in 'constants' and in 'declared.fit'"),
        ("fit: [instruction]", "fit: [trap]", r"own\.yaml:1: .*'instruction' has no price"),
        ("list5: [djprobe]", "list55: [djprobe]", r"own\.yaml:8: .*did you mean 'djprobe-2005/list5'"),
        ("[djprobe]", "[djprob]", r"own\.yaml:8: .*found 'djprob'; .*did you mean 'djprobe'"),
        ("validation: {}", "validation: {djprobe-2005/list5: [djprobe]}", r"own\.yaml:5: .*djprobe is declared twice"),
        ("remarks: []", "remark: []", r"own\.yaml:12: declared\.remark: unknown key; .*'remarks'"),
        ("cpu: pentium4\n", "", r"cpu: missing; this key is required"),
        (OWN, "- one\n", r"own\.yaml:1: the file: found a list; expected keys"),
        ("value: 3000", "value: .inf", r"own\.yaml:2: mhz\.value: found"),
        ("value: 52.5", "value: -52.5", r"own\.yaml:4: constants\.popf: found .*; expected 0 < low <= value <= high"),
        ("value: 52.5", "value: .nan", r"own\.yaml:4: constants\.popf\.value: found"),
        ("source: unverified, ", "", r"own\.yaml:4: constants\.popf\.source: missing"),
        ("fit: [instruction]", "fit: [instruction, instruction]", r"own\.yaml:5: .*instruction is to be fitted twice"),
        ("list5: [djprobe]", "list5: []", r"own\.yaml:8: declared\.calibration"),
        ("  kernels: {djprobe-2005/list5: lab-i386-up}\n", "", r"declared\.kernels: missing; this key is required"),
        (
            "kernels: {djprobe-2005/list5: lab-i386-up}",
            "kernels: {}",
            r"own\.yaml:9: declared\.kernels: expected the kernel .*list5",
        ),
        (
            "list5: lab",
            "list6: x, djprobe-2005/list5: lab",
            r"own\.yaml:9: .*list6: this table is not in 'calibration'",
        ),
        ("cpu: pentium4", "cpu: pentium4\ncaches: pentium5", r"own\.yaml:2: caches: found 'pentium5'; .*'pentium4'"),
        ("cpu: pentium4", "cpu: !!python/none", r"own\.yaml:1: YAML tag"),
    ],
)
def test_a_malformed_table_is_refused_with_its_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in OWN
    with pytest.raises(ConfigError) as raised:
        own(tmp_path, OWN.replace(old, new, 1))
    assert re.search(complaint, str(raised.value)), str(raised.value)


def test_weights_are_those_of_the_cells(tmp_path: Path) -> None:
    file = own(tmp_path, OWN)
    write(file, fit(file))
    with pytest.raises(ConfigError, match="instruction has 2 weights for 1 cells"):
        own(tmp_path, file.path.read_text().replace("weights: [", "weights: [1, "))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (r"cycles: ", "cycles: -", "cycles"),
        (r"popf: 1\.0", "popf: 1.0, rdtsc: 1.0", "a fitted cell counts 'rdtsc', which has no price"),
    ],
)
def test_fitted_figures_that_no_fit_gives_are_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    file = own(tmp_path, OWN)
    text, number = re.subn(old, new, file.text_with(fit(file)))
    assert number == 1
    with pytest.raises(ConfigError, match=complaint):
        own(tmp_path, text)


def test_a_table_of_ones_own_is_known_by_its_suffix_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path, OWN)
    monkeypatch.chdir(tmp_path)
    assert price_file("own.yaml").prices.cpu == "pentium4"


def test_an_unknown_cpu_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'pentium4'"):
        price_file("pentium5")


# Are prices fitted to the counts of the declared kernel, and of no other?

PROBES = ("kprobe", "jprobe", "djprobe")


def stored(folder: Path, *cells: CellRecord) -> Run:
    return Run(run(*cells), folder)


def test_the_catalogues_prices_are_those_of_the_declared_kernel(tmp_path: Path) -> None:
    file = price_file("pentium4")
    assert calibrated(file, [stored(tmp_path, *list5(tmp_path, *PROBES))]) == file.prices.fitted


def test_counts_of_another_kernel_are_refused_with_both_names(tmp_path: Path) -> None:
    wrong = stored(tmp_path, *list5(tmp_path, *PROBES, kernel="debian-686"))
    with pytest.raises(UsageError) as raised:
        calibrated(price_file("pentium4"), [wrong])
    assert "counted djprobe-2005/list5 kprobe on kernel debian-686" in raised.value.what
    assert "the price list of pentium4 declares lab-i386-up" in raised.value.what
    assert "--set kernels=[lab-i386-up];" in raised.value.hint
    assert "model show pentium4 --format yaml" in raised.value.hint


def test_a_run_of_another_kernel_is_refused_beside_one_of_the_declared(tmp_path: Path) -> None:
    wrong = stored(tmp_path, *list5(tmp_path, "kprobe", kernel="debian-686"))
    right = stored(tmp_path, *list5(tmp_path, *PROBES))
    with pytest.raises(UsageError, match="on kernel debian-686"):
        calibrated(price_file("pentium4"), [right, wrong])


def test_only_the_declared_kernel_of_a_run_counts(tmp_path: Path) -> None:
    cells = [*list5(tmp_path, "kprobe", kernel="debian-686"), *list5(tmp_path, *PROBES)]
    file = price_file("pentium4")
    assert calibrated(file, [stored(tmp_path, *cells)]) == file.prices.fitted


def test_a_table_of_ones_own_may_declare_another_kernel(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(price_file("pentium4").text.replace("list5: lab-i386-up", "list5: debian-686"))
    file = load_price_file(own)
    assert "has changed since it was fitted" in (file.unusable or "")
    found = calibrated(file, [stored(tmp_path, *list5(tmp_path, *PROBES, kernel="debian-686"))])
    assert found.declaration == file.declaration


def test_missing_cells_are_listed_with_their_kernel(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        calibrated(price_file("pentium4"), [stored(tmp_path, *list5(tmp_path, "kprobe"))])
    assert raised.value.detail == (
        "djprobe-2005/list5 jprobe on lab-i386-up",
        "djprobe-2005/list5 djprobe on lab-i386-up",
    )


def test_a_cpu_that_cannot_be_calibrated_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"pentium-m cannot be calibrated: .* contradict each other"):
        calibrated(price_file("pentium-m"), [stored(tmp_path, *list5(tmp_path, *PROBES))])
