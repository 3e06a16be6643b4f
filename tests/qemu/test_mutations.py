# SPDX-License-Identifier: GPL-2.0-only
"""Does each proof fail when what it proves is broken? A copy of the lab is patched, and measures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from command_line import CommandLine

from orchestrator.paths import cache_dir, data_dir
from orchestrator.results.contract import CellRecord, RunRecord

MUTATIONS = Path(__file__).with_name("mutations")
EXPERIMENT = {"name": "mutation", "benchmark": {"name": "gtodbench", "calls": 1000, "repeats": 2}}
KERNELS = {"lab-i386-up": "pentium4", "debian-amd64@7.3": "xeon-e5410"}
"""The CPU by the kernel."""
IMAGES = ("debian-i386", "debian-amd64")
"""Those of a whole system at work."""
COPIED = ("orchestrator", "kmods", "images", "configs")
OWN_ARTIFACTS = {"modules", "programs", "plugins", "initramfs", "failed-builds", "saved-guests"}
"""What is made of patched sources: it does not go into the user's cache."""


@dataclass(frozen=True)
class Mutation:
    """A patch, what is measured with it, and the reasons of the cells that must fail, by their probes.

    ``not_on`` are the reasons why it breaks nothing, by the kernel.
    """

    patch: str
    table: Mapping[str, object]
    failed: Mapping[str, str]
    not_on: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.patch


LISTED = [Mutation(**fields) for fields in yaml.safe_load((MUTATIONS / "mutations.yaml").read_text())]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The user's cache, but for what is made of sources that the tests patch; all else is in it before."""
    command = CommandLine(tmp_path_factory.mktemp("lab"))
    for made in (("kernel", *KERNELS), ("image", *IMAGES)):
        done = command.run("build", *made)
        assert done.returncode == 0, done.stderr
    cache = tmp_path_factory.mktemp("cache")
    for kept in cache_dir().iterdir():
        if kept.name not in OWN_ARTIFACTS:
            (cache / kept.name).symlink_to(kept)
    return {"ORCHESTRATOR_CACHE": str(cache)}


def source_copy(folder: Path) -> Path:
    """The lab's sources, to be patched."""
    package = data_dir("configs").parent
    for name in COPIED:
        shutil.copytree(package / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def apply(patch: str, sources: Path, *options: str) -> None:
    """Patch sources; a patch that does not apply any more has to be made anew."""
    file = MUTATIONS / f"{patch}.patch"
    command = ["patch", "-d", str(sources), "-p1", "--fuzz=0", "--force", *options, "-i", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{file.name} no longer applies: change it with the code it breaks\n{done.stdout}"


def measured(
    sources: Path, kernel: str, table: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, CellRecord]:
    """The cells of an experiment that the sources' own lab measures, by their probes."""
    file, run = sources / "mutation.yaml", sources / "run"
    where = {"kernels": [kernel], "machines": [{"cpu": KERNELS[kernel]}]}
    file.write_text(yaml.safe_dump({**EXPERIMENT, **where, **table}))
    command = CommandLine(sources / "lab", {**environment, "PYTHONPATH": str(sources)})
    done = command.run("run", file, "--offline", "--out", run)
    assert done.returncode in (0, 1), done.stderr
    record = RunRecord.model_validate_json((run / "results.json").read_text(), strict=False)
    return {cell.probe: cell for cell in record.cells}


def test_every_patch_is_listed_once() -> None:
    assert sorted(mutation.patch for mutation in LISTED) == sorted(file.stem for file in MUTATIONS.glob("*.patch"))


@pytest.mark.parametrize("mutation", LISTED, ids=str)
def test_a_patch_still_applies(mutation: Mutation) -> None:
    apply(mutation.patch, data_dir("configs").parent, "--dry-run")


@pytest.mark.qemu
@pytest.mark.nightly("builds modules for each of two dozen patches: ten minutes")
@pytest.mark.parametrize("kernel", KERNELS)
def test_an_unpatched_copy_measures_all_cells(kernel: str, tmp_path: Path, environment: dict[str, str]) -> None:
    tables = {json.dumps(mutation.table): mutation.table for mutation in LISTED if kernel not in mutation.not_on}
    for number, table in enumerate(tables.values()):
        copy = source_copy(tmp_path / str(number))
        assert {cell.reason for cell in measured(copy, kernel, table, environment).values()} == {None}, table


@pytest.mark.qemu
@pytest.mark.nightly("builds modules for each of two dozen patches: ten minutes on each kernel")
@pytest.mark.parametrize(
    ("kernel", "mutation"),
    [
        pytest.param(kernel, mutation, id=f"{kernel}-{mutation}")
        for kernel in KERNELS
        for mutation in LISTED
        if kernel not in mutation.not_on
    ],
)
def test_a_broken_proof_fails_its_cell(
    kernel: str, mutation: Mutation, tmp_path: Path, environment: dict[str, str]
) -> None:
    sources = source_copy(tmp_path)
    apply(mutation.patch, sources)
    cells = measured(sources, kernel, mutation.table, environment)
    assert {probe: cell.status for probe, cell in cells.items()} == {
        probe: "failed" if probe in mutation.failed else "ok" for probe in cells
    }
    for probe, reason in mutation.failed.items():
        assert re.search(reason, cells[probe].reason or ""), cells[probe].reason
