# SPDX-License-Identifier: GPL-2.0-only
"""The catalogue's cost tables, and the complaints about a user's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.catalog.cost_table import Fitted
from orchestrator.catalog.cpus import cpus
from orchestrator.errors import ConfigError, HostError, UsageError
from orchestrator.model.cost_file import CostFile, cost_file, cost_files, load_cost_file
from orchestrator.model.fit import Target, fitted

OWN = """\
cpu: pentium4
mhz: {value: 3000, low: 3000, high: 3000, source: published, where: "a label"}
constants:
  popf: {value: 52.5, low: 40, high: 60, source: unverified, where: "a guess"}
declared:
  date: "2026-01-01"
  fit: [instruction]
  calibration: {djprobe-2005/list5: [djprobe]}
  validation: {}
  exclusions: []
  remarks: []
"""
CATALOGUE = [path.stem for path in cost_files()]


def own(folder: Path, text: str) -> CostFile:
    file = folder / "own.yaml"
    file.write_text(text)
    return load_cost_file(file)


def fit(file: CostFile) -> Fitted:
    """What its calibration cell gives."""
    target = Target("djprobe-2005/list5", "djprobe", {"instruction": 37, "popf": 1}, 30.25)
    return fitted(file.table, file.declaration, [target])


def refit(file: CostFile) -> str:
    assert file.table.fitted is not None
    targets = [Target(one.table, one.column, one.counts, one.published) for one in file.table.fitted.cells]
    return fitted(file.table, file.declaration, targets).model_dump_json()


def test_the_catalogue_has_a_table_or_a_reason_for_each_published_cpu() -> None:
    assert set(CATALOGUE) == {"athlon64", "pentium-m", "pentium4", "xeon-e5410"}
    assert set(CATALOGUE) < set(cpus())
    for name in CATALOGUE:
        assert cost_file(name).table.cpu == name


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - {"pentium-m"}))
def test_a_table_of_the_catalogue_is_what_its_calibration_cells_give(name: str) -> None:
    """Nobody has edited what was fitted, nor the declaration since."""
    file = cost_file(name)
    assert file.unusable is None
    assert file.table.fitted is not None
    assert refit(file) == file.table.fitted.model_dump_json()


def test_a_cpu_that_cannot_be_calibrated_says_why() -> None:
    assert "contradict each other" in (cost_file("pentium-m").unusable or "")


def test_writing_replaces_what_was_fitted_and_nothing_else(tmp_path: Path) -> None:
    file = own(tmp_path, "# a comment\n" + OWN)
    assert file.unusable == "the cost table of pentium4 was not fitted yet"
    found = fit(file)
    file.write(found)
    once = file.path.read_text()
    assert once.startswith("# a comment\n" + OWN)
    again = load_cost_file(file.path)
    assert again.unusable is None
    assert again.table.fitted == found
    again.write(found)
    assert file.path.read_text() == once
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_table_that_cannot_be_written_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    file = own(tmp_path, OWN)
    found = fit(file)
    (tmp_path / ".own.yaml.new").mkdir()
    with pytest.raises(HostError, match=r"cannot be written(.|\n)*name it by its path"):
        file.write(found)
    assert file.path.read_text() == OWN


def test_a_declaration_that_changed_after_the_fit_gives_no_times(tmp_path: Path) -> None:
    file = own(tmp_path, OWN)
    file.write(fit(file))
    changed = own(tmp_path, file.path.read_text().replace("value: 52.5", "value: 45"))
    assert changed.unusable == "the cost table of pentium4 has changed since it was fitted"


@pytest.mark.parametrize("change", [("published: 30.25", "published: 31"), ("column: djprobe", "column: jprobe")])
def test_costs_of_other_figures_than_the_published_ones_give_no_times(tmp_path: Path, change: tuple[str, str]) -> None:
    file = own(tmp_path, OWN)
    file.write(fit(file))
    text = file.path.read_text()
    assert change[0] in text
    changed = own(tmp_path, text.replace(*change))
    assert "fitted to other figures" in (changed.unusable or "")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("value: 52.5", "value: many", r"own\.yaml:4: constants\.popf\.value: found 'many'; expected a number"),
        ("low: 40", "low: 55", r"own\.yaml:4: constants\.popf: expected 0 < low <= value <= high"),
        ("source: unverified", "source: me", r"own\.yaml:4: constants\.popf\.source: found 'me'"),
        ("  popf:", "  push:", r"own\.yaml:4: constants\.push: found 'push'"),
        ("fit: [instruction]", "fit: [popf]", r"own\.yaml:1: .*popf is a constant and is to be fitted"),
        ("fit: [instruction]", "fit: [trap]", r"own\.yaml:1: .*'instruction' has no cost"),
        ("list5: [djprobe]", "list55: [djprobe]", r"own\.yaml:8: .*did you mean 'djprobe-2005/list5'"),
        ("[djprobe]", "[djprob]", r"own\.yaml:8: .*found 'djprob'; .*did you mean 'djprobe'"),
        ("validation: {}", "validation: {djprobe-2005/list5: [djprobe]}", r"own\.yaml:5: .*djprobe is declared twice"),
        ("remarks: []", "remark: []", r"own\.yaml:11: declared\.remark: unknown key 'remark'"),
        ("cpu: pentium4\n", "", r"cpu: missing; this key is required"),
        (OWN, "- one\n", r"own\.yaml:1: the file: expected a mapping"),
        ("value: 3000", "value: .inf", r"own\.yaml:2: mhz\.value: found"),
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
    file.write(fit(file))
    with pytest.raises(ConfigError, match="instruction has 2 weights for 1 cells"):
        own(tmp_path, file.path.read_text().replace("weights: [", "weights: [1, "))


def test_an_unknown_cpu_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'pentium4'"):
        cost_file("pentium5")
