# SPDX-License-Identifier: GPL-2.0-only
"""From guests that count to modelled times: on the command line, with the prices of two CPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import QUICKSTART, CommandLine

from orchestrator.model.price_file import load_price_file, price_file
from orchestrator.paths import data_dir
from orchestrator.results.contract import RunRecord
from orchestrator.results.modelled import ModelledRun

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

CONFIG = data_dir("configs") / "djprobe-2005.yaml"
REDUCED = ("--set", "benchmark.repeats=2", "--set", "benchmark.calls=100")


def test_times_follow_from_what_guests_count_and_costs_from_published_times(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    wanted = ("--only", "list5", "--only", "list6", "--set", "charts=false")
    run = command.run("run", CONFIG, *wanted, *REDUCED)
    assert run.returncode == 0, run.stderr

    answer = command.run("report", "--clock", "modelled", "--format", "json")
    assert answer.returncode == 0, answer.stderr
    modelled = ModelledRun.model_validate_json(answer.stdout)
    cells = {(cell.cpu, cell.probe): cell for cell in modelled.cells}
    for name in ("kprobe", "jprobe", "djprobe"):
        one, other = cells["pentium4", name].evidence, cells["athlon64", name].evidence
        assert one is not None
        assert other is not None
        # A kernel executes the same on every CPU: a price list is applied to counts.
        assert one.counts == other.counts
        assert one.cost_table_sha256 == price_file("pentium4").digest != other.cost_table_sha256
    kprobe = cells["pentium4", "kprobe"]
    assert kprobe.evidence is not None
    assert kprobe.evidence.counts == {"instruction": 525, "trap": 2}
    assert kprobe.role == "calibration"
    assert cells["athlon64", "kprobe"].role == "excluded"

    # The catalogue's prices are what this run gives, digit by digit.
    catalogue = price_file("pentium4")
    own = tmp_path / "pentium4.yaml"
    own.write_text(catalogue.declared)
    fit = command.run("model", "fit", own, "latest")
    assert fit.returncode == 0, fit.stderr
    assert fit.stdout == catalogue.text
    assert own.read_text() == catalogue.declared
    there = command.run("model", "fit", "pentium4", "latest", "--out", own)
    assert there.returncode == 2
    assert "this file exists" in there.stderr
    assert command.run("model", "fit", "pentium4", "latest", "--out", own, "--force").returncode == 0
    assert load_price_file(own).prices == catalogue.prices
    again = command.run("report", "--clock", "modelled", "--prices", own, "--format", "json")
    assert again.stdout == command.run("report", "--clock", "modelled", "--format", "json").stdout


@pytest.mark.nightly("profiles by class: five seconds; the times are those of counts every day")
def test_the_classes_are_those_of_a_profile_and_the_main_table_has_their_times(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    records = []
    for folder, more in (("profiled", ("--profile", "symbols")), ("plain", ())):
        run = command.run("run", QUICKSTART, *REDUCED, *more, "--out", tmp_path / folder)
        assert run.returncode == 0, run.stderr
        records.append(RunRecord.model_validate_json((tmp_path / folder / "results.json").read_text()))
    profiled, plain = ({cell.probe: cell.executed for cell in one.cells} for one in records)
    assert plain == profiled
    assert set(plain) == {"none", "kprobe", "jprobe", "djprobe"}
    assert None not in plain.values()
    assert not any(cell.profile for cell in records[1].cells)
    lines = {line[:28].strip(): line[28:].split() for line in run.stdout.splitlines()}
    assert lines["modelled ratio to djprobe"] == ["-", "31.10", "fit", "51.19", "fit", "1.00"]
    assert lines["published ratio to djprobe"] == ["-", "33.60", "52.17", "1.00"]

    fit = command.run("model", "fit", "pentium4", "latest")
    assert fit.returncode == 2
    assert "on kernel debian-686, but the price list of pentium4 declares lab-i386-up" in fit.stderr
    assert "add --clock modelled" in command.run("report", "--prices", "my/cpu.yaml").stderr


@pytest.mark.nightly("another kernel; its counts are refused every day in tests/unit/model")
def test_counts_of_another_kernel_predict_and_calibrate_nothing(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    run = command.run("run", QUICKSTART, *REDUCED, "--only", "none", "--only", "kprobe")
    assert run.returncode == 0, run.stderr
    modelled = ModelledRun.model_validate_json(command.run("report", "--clock", "modelled", "--format", "json").stdout)
    assert {(cell.role, cell.kernel, cell.calibration_kernel) for cell in modelled.cells} == {
        ("predicted", "debian-686", "lab-i386-up")
    }
    before = price_file("pentium4").text
    refused = command.run("model", "fit", "pentium4", "latest", "--out", tmp_path / "new.yaml")
    assert refused.returncode == 2
    assert "on kernel debian-686, but the price list of pentium4 declares lab-i386-up" in refused.stderr
    assert not (tmp_path / "new.yaml").exists()
    assert price_file("pentium4").text == before


@pytest.mark.nightly("measures each probe of the quickstart: five seconds")
def test_another_kernel_calibrates_where_the_costs_declare_it(tmp_path: Path) -> None:
    """The way out that the error above names."""
    command = CommandLine(tmp_path / "lab")
    run = command.run("run", QUICKSTART, *REDUCED)
    assert run.returncode == 0, run.stderr
    own = tmp_path / "own.yaml"
    shown = command.run("model", "show", "pentium4", "--format", "yaml").stdout
    own.write_text(shown.replace("list5: lab-i386-up", "list5: debian-686"))
    fit = command.run("model", "fit", own, "latest", "--out", tmp_path / "new.yaml")
    assert fit.returncode == 0, fit.stderr
    found = command.run("report", "--clock", "modelled", "--prices", tmp_path / "new.yaml", "--format", "json")
    assert {cell.role for cell in ModelledRun.model_validate_json(found.stdout).cells} == {"calibration"}
