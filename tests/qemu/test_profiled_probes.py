# SPDX-License-Identifier: GPL-2.0-only
"""Has each step of thousands of kprobes a profile that is what its clock says, to the instruction?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.paths import data_dir
from orchestrator.profile.stored.profile_files import load_profile
from orchestrator.results.runs import find_run

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-smp-hash12")]

PROBES = """\
name: probes
kernels: [lab-i386-smp-hash12]
machines: [{cpu: pentium4}]
probes: [none, kpcache.enable, kpcache.unregister, kpcache.hit]
benchmark: {name: kpcache, sizes: [100]}
profile: [symbols]
"""


def test_each_row_is_profiled_by_its_own_steps(tmp_path: Path) -> None:
    config = tmp_path / "probes.yaml"
    config.write_text(PROBES)
    command = CommandLine(tmp_path / "lab")
    finished = command.run("run", config)
    assert finished.returncode == 0, finished.stderr
    directory = find_run("latest", command.lab).directory
    cells = {cell.probe: cell for cell in command.cells().values()}
    profiles = {probe: load_profile(directory, cell) for probe, cell in cells.items()}
    for probe, cell in cells.items():
        assert cell.profile is not None
        assert cell.profile.instructions == cell.profile.ticks == profiles[probe].executed
    # 64 targets ten times: both readings of the clock are one instruction more than their difference.
    for probe in ("none", "kpcache.hit"):
        assert profiles[probe].executed == 640 * (cells[probe].value or 0) + 1
        assert (profiles[probe].calls, profiles[probe].unit) == (640, "call")
    assert (profiles["kpcache.enable"].calls, profiles["kpcache.enable"].unit) == (50, "probe")
    found = {probe: {symbol.title for symbol in profile.symbols} for probe, profile in profiles.items()}
    assert "kprobe_int3_handler" in found["kpcache.hit"] - found["none"]
    assert "count_target [lab_kpcache_driver]" in found["kpcache.hit"] - found["none"]
    assert "enable_kprobe" in found["kpcache.enable"]
    assert "unregister_kprobes" in found["kpcache.unregister"]


MARKERS = """\
name: markers
kernels: [lab-i386-smp-hash12]
machines: [{cpu: pentium4}]
probes: [none, marker.empty-optimized, marker.int3-on]
benchmark: {name: markers, repeats: 2}
"""


def test_a_round_of_a_loop_is_profiled_to_the_instruction(tmp_path: Path) -> None:
    config = tmp_path / "markers.yaml"
    config.write_text(MARKERS)
    command = CommandLine(tmp_path / "lab")
    plain = command.run("run", config)
    assert plain.returncode == 0, plain.stderr
    values = {cell.probe: cell.samples for cell in command.cells().values()}
    finished = command.run("run", config, "--profile", "symbols")
    assert finished.returncode == 0, finished.stderr
    directory = find_run("latest", command.lab).directory
    cells = {cell.probe: cell for cell in command.cells().values()}
    assert {probe: cell.samples for probe, cell in cells.items()} == values
    profiles = {probe: load_profile(directory, cell) for probe, cell in cells.items()}
    for probe, profile in profiles.items():
        assert (profile.unit, profile.executed) == ("round", profile.calls * (cells[probe].value or 0))
    assert [symbol.title for symbol in profiles["none"].symbols] == ["empty [lab_markers]"]
    (marked,) = profiles["marker.empty-optimized"].symbols
    assert [instruction.code[:4] for instruction in marked.instructions][:2] == ["b000", "84c0"]
    titles = {symbol.title for symbol in profiles["marker.int3-on"].symbols}
    assert {"lab_int3_place [lab_markers]", "int3_empty [lab_markers]", "kprobe_int3_handler"} <= titles


@pytest.mark.nightly("loads beside a thousand events, with models of caches: two minutes")
@pytest.mark.kernels("lab-i386-smp-kpcache-ftrace")
def test_the_misses_of_a_load_beside_events_are_by_function(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    config = data_dir("configs") / "kpcache-2014-misses.yaml"
    finished = command.run("run", config, "--set", "kernels=[lab-i386-smp-kpcache-ftrace]")
    assert finished.returncode == 0, finished.stderr
    directory = find_run("latest", command.lab).directory
    cells = {cell.probe: cell for cell in command.cells().values()}
    for row in ("calls", "files"):
        cell = cells[f"kpcache-load.{row}"]
        profile = load_profile(directory, cell)
        assert {cache.name: cache.misses for cache in profile.caches}["l1d"] == cell.parameters["l1d_misses"]
        assert "get_kprobe_cached" in {symbol.name for symbol in profile.symbols}
        assert int(cell.parameters["l1d_get_kprobe_cached"]) > 0
    assert "get_kprobe_cached" not in {symbol.name for symbol in load_profile(directory, cells["none"]).symbols}
