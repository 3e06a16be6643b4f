# SPDX-License-Identifier: GPL-2.0-only
"""Is a bpftrace one-liner among the probes taken as it is written, and a wrong one refused before anything boots?"""

from __future__ import annotations

from pathlib import Path

import pytest
from loaded_tables import only_table
from record_builders import cell

from orchestrator.benchmarks.calls.report import heading
from orchestrator.benchmarks.calls.table import CallsTable, call_cells
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.probes import probe_kind
from orchestrator.errors import ConfigError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment

COUNTING = "kprobe:vfs_read { @[comm] = count(); }"
WITH_SLASHES = 'kretprobe:vfs_read /retval >= 0/ { printf("%d\\n", retval / 2); }'


def loaded(folder: Path, probe: str, image: str = "image: debian-amd64-bpftrace") -> Experiment:
    """An experiment with the line ``probe`` among its probes."""
    (folder / "one.yaml").write_text(
        f"""name: one-liner
{image}
kernels: [debian-amd64]
machines: [{{cpu: xeon-e5410}}]
points: [vfs_read]
probes:
  - none
  - {probe}
benchmark: {{name: syscall, call: read, arguments: [0, 0, 0]}}
"""
    )
    return load_experiment(folder / "one.yaml", kinds())


@pytest.mark.parametrize(
    "text",
    [COUNTING, WITH_SLASHES, 'kprobe:vfs_read { printf("} i:s:1 {"); @[1 ? 2 : 3, s:1] = 1; } END { clear(@); }'],
)
def test_a_one_liner_is_taken_as_it_is_written(tmp_path: Path, text: str) -> None:
    table = only_table(loaded(tmp_path, f"'bpftrace:  {text} '"), CallsTable)
    assert table.probes == ("none", f"bpftrace: {text}")
    kind = probe_kind(table.probes[1])
    assert (kind.one_liner, kind.title, kind.has_own_programs) == (text, f"bpftrace: {text}", True)


def test_its_name_in_results_tells_it_from_others() -> None:
    names = [probe_kind(f"bpftrace: {text}").name for text in (COUNTING, COUNTING.replace(";", " ;"), "@ = 1")]
    assert names == [
        "bpftrace.kprobe_vfs_read_comm_cou.aeb1cc",
        "bpftrace.kprobe_vfs_read_comm_cou.bd8ae2",
        "bpftrace.1.6c7c90",
    ]


def test_its_cell_is_compared_with_the_baseline(tmp_path: Path) -> None:
    baseline, probed = call_cells(None, only_table(loaded(tmp_path, f"'bpftrace: {COUNTING}'"), CallsTable))
    assert probed.task.kind.one_liner == COUNTING
    assert (probed.compared_with, probed.image) == ((baseline.id,), "debian-amd64-bpftrace")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (COUNTING, f"bpftrace: {COUNTING}"),
        (WITH_SLASHES, "bpftrace: kretprobe:vfs_read /retval >= ... , retval / 2); }"),
        (f"kprobe:vfs_read {{ @{'x' * 40} = 1; }}", "bpftrace: kprobe:vfs_read { @xxxxxxxxxx ... xxxxxxxxx = 1; }"),
    ],
)
def test_its_column_is_headed_by_the_line_itself(tmp_path: Path, text: str, column: str) -> None:
    quoted = text.replace("'", "''")
    baseline, probed = call_cells(None, only_table(loaded(tmp_path, f"'bpftrace: {quoted}'"), CallsTable))
    assert (baseline.parameters.get("one_liner"), probed.parameters["one_liner"]) == (None, column)
    record = cell("kprobe").model_copy(update={"probe": probed.row, "parameters": dict(probed.parameters)})
    assert heading(record) == column
    # A run of an earlier version has its name.
    assert heading(record.model_copy(update={"parameters": {}})) == probed.row


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ("'bpftrace:'", "found 'bpftrace:'; a one-liner has a probe and an action: 'bpftrace: kprobe:vfs_read "),
        (f"'bpftrace: {'x' * 501}'", "found a one-liner of 501 characters; at most 500 are allowed"),
        ("'bpftrace: kprobe:vfs_réad { @ = count(); }'", "a one-liner has printable ASCII characters in one line"),
        ('"bpftrace: kprobe:vfs_read\\n{ @ = count(); }"', "a one-liner has printable ASCII characters in one line"),
        (
            "'bpftrace: kprobe:vfs_read { @ = 1; } interval:s:1 { print(@); }'",
            "found 'interval:' in a one-liner; the clock or the CPU hits it, and not the calls: leave it out",
        ),
        ("'bpftrace: i:ms:1,kprobe:vfs_read { @ = 1; }'", "found 'i:' in a one-liner"),
        (f"bpftrace: {COUNTING}", "found a mapping; expected a probe's name; put a bpftrace one-liner in quotes"),
    ],
)
def test_a_wrong_one_is_refused_with_its_line(tmp_path: Path, probe: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, probe)
    assert message in str(raised.value)
    assert "one.yaml:8: " in str(raised.value)


def test_it_needs_an_image(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, f"'bpftrace: {COUNTING}'", image="channel: framed")
    assert "bpftrace is in an image: set image: debian-amd64-bpftrace, or one of your own that has it" in str(
        raised.value
    )
