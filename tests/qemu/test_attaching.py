# SPDX-License-Identifier: GPL-2.0-only
"""Does attaching to many functions come to the same in two runs, up to all, and leave nothing where it fails?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.benchmarks.attaching import attach_parameters
from orchestrator.results.contract import CellRecord, RunRecord

pytestmark = pytest.mark.qemu

NO_SUCH_FUNCTION = {
    "kprobes": "EILSEQ",
    "kprobe-array": "EILSEQ",
    "kprobe-events": "EINVAL",
    "livepatch": "EINVAL",
    "fentry": "EINVAL",
    "ftrace": "EINVAL",
    "fprobe": "ENOENT",
    "kprobe-multi": "ESRCH",
    "fentry-multi": "EINVAL",
    "fexit-multi": "EINVAL",
    "uprobe-multi": "EINVAL",
}
"""What Debian's 7.3 says where one function of twenty does not exist."""


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    """The command line with a lab of the test's own."""
    return CommandLine(tmp_path / "lab")


def experiment(folder: Path, kernel: str, probes: str, benchmark: str) -> Path:
    path = folder / "attaching.yaml"
    path.write_text(
        f"name: attaching\nkernels: [{kernel}]\nmachines: [{{cpu: xeon-e5410, memory: 1G}}]\ntime_limit: 3600\n"
        f"probes: [{probes}]\nbenchmark: {{name: attach, {benchmark}}}\n"
    )
    return path


def records(command: CommandLine) -> list[CellRecord]:
    answer = command.run("report", "latest", "--format", "json")
    return list(RunRecord.model_validate_json(answer.stdout).cells)


@pytest.mark.kernels("debian-amd64")
@pytest.mark.nightly("the same in a second run: 20 s")
def test_attaching_comes_to_the_same_in_each_run(command: CommandLine, tmp_path: Path) -> None:
    path = experiment(tmp_path, "debian-amd64", "attach.ftrace", "counts: [1, 100]")
    runs = []
    for _ in range(2):
        finished = command.run("run", path)
        assert finished.returncode == 0, finished.stderr
        runs.append([(cell.id, cell.samples, cell.parameters) for cell in records(command)])
    assert len(runs[0]) == 2
    assert runs[0] == runs[1]


@pytest.mark.kernels("debian-amd64")
def test_a_hundred_functions_cost_more_than_one(command: CommandLine, tmp_path: Path) -> None:
    finished = command.run("run", experiment(tmp_path, "debian-amd64", "attach.ftrace", "counts: [1, 100]"))
    assert finished.returncode == 0, finished.stderr
    cell, hundred = records(command)
    assert cell.value is not None
    assert hundred.value is not None
    assert cell.value < hundred.value < 100 * cell.value
    # A hit through the tracer does not depend on how many functions have it; each takes a call of five bytes.
    assert attach_parameters.HIT.of(cell) == pytest.approx(attach_parameters.HIT.of(hundred), rel=0.1)
    more = (attach_parameters.TEXT_BYTES.of(hundred) or 0) - (attach_parameters.TEXT_BYTES.of(cell) or 0)
    assert 4 * 99 <= more <= 5 * 99
    assert attach_parameters.IPI_ROUNDS.of(cell)


@pytest.mark.kernels("debian-amd64@7.3")
@pytest.mark.nightly("enables and disables a live patch: 10 s")
def test_a_live_patch_is_enabled_and_gone_again(command: CommandLine, tmp_path: Path) -> None:
    path = experiment(tmp_path, "debian-amd64@7.3", "attach.livepatch", "counts: [1, 10]")
    finished = command.run("run", path)
    assert finished.returncode == 0, finished.stderr
    one, ten = records(command)
    assert one.value is not None
    assert ten.value is not None
    # Each function has a user of the function tracer of its own, and is attached and detached by itself.
    assert 8 * one.value < ten.value < 20 * one.value
    assert (
        attach_parameters.DETACH_GRACE_PERIODS.of(ten) == 10 * (attach_parameters.DETACH_GRACE_PERIODS.of(one) or 0) > 0
    )
    for cell in (one, ten):
        assert attach_parameters.HITS_PER_CALL.of(cell) == 1
        assert cell.evidence is not None
        assert cell.evidence.taint & 1 << 15  # TAINT_LIVEPATCH


@pytest.mark.kernels("debian-amd64@7.3")
@pytest.mark.nightly("attaches to all functions of a kernel: 10 minutes")
def test_all_functions_of_a_kernel_are_attached_and_detached(command: CommandLine, tmp_path: Path) -> None:
    path = experiment(tmp_path, "debian-amd64@7.3", "attach.kprobe-multi", "counts: [1, all]")
    finished = command.run("run", path)
    assert finished.returncode == 0, finished.stderr
    cell, everything = records(command)
    # That the kernel lists them, and that the text is as before, is in the proof.
    assert (attach_parameters.ATTACHED_FUNCTIONS.of(everything) or 0) > 30_000
    assert everything.value is not None
    assert cell.value is not None
    assert everything.value > 10 * cell.value
    assert everything.text is not None


@pytest.mark.kernels("debian-amd64@7.3")
@pytest.mark.nightly("attaching that fails, in a guest for each mechanism: 5 minutes")
@pytest.mark.parametrize(
    ("benchmark", "errors"),
    [
        ("counts: [20], fault: name", NO_SUCH_FUNCTION),
        (
            "counts: [all], fault: memory",
            dict.fromkeys(("kprobe-multi", "fentry-multi", "fexit-multi"), "ENOMEM|ended by signal 9"),
        ),
    ],
)
def test_an_attach_that_fails_in_the_middle_leaves_nothing(
    command: CommandLine, tmp_path: Path, benchmark: str, errors: dict[str, str]
) -> None:
    probes = ", ".join(f"attach.{mechanism}" for mechanism in errors)
    finished = command.run("run", experiment(tmp_path, "debian-amd64@7.3", probes, benchmark))
    assert finished.returncode == 1
    cells = records(command)
    assert [cell.probe for cell in cells] == [f"attach.{mechanism}" for mechanism in errors]
    for cell, error in zip(cells, errors.values(), strict=True):
        assert cell.status == "failed"
        assert re.search(rf"({error}).*nothing is attached", cell.reason or ""), cell.reason
