# SPDX-License-Identifier: GPL-2.0-only
"""Does every command explain itself, and end bad usage with a sentence and the right status?"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import typer
from called_commands import orchestrator, refusal
from file_permissions import AS_MERE_OWNER
from record_builders import RUN_ID, cell, failed, run
from stored_profiles import store_run
from tiny_modules import make_module
from typer.testing import CliRunner
from wrong_inputs import make_tree

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.module_source import render, templates
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.cpus import cpu_caches
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.cli import execute, one_guest, printing
from orchestrator.cli import run as run_command
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cli.main import app
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import Plan, plan
from orchestrator.library import dry_run, guest_command
from orchestrator.results.modelled import CpuPrices
from orchestrator.results.runs import Run, RunIdentity, find_run, prepare_directory, write_results
from orchestrator.run import benchmark_kind, boot_preparation
from orchestrator.version import __version__

pytestmark = pytest.mark.usefixtures("lab")

PROGRAM = [sys.executable, "-c", "from orchestrator.cli.main import main; main()"]
COMMANDS = [
    "",
    "cost",
    "debug",
    "run",
    "report",
    "profile",
    "timeline",
    "compare",
    "bisect",
    "series",
    "history",
    "site",
]
COMMANDS += [
    "nightly",
    "list",
    "disasm",
    "exec",
    "build",
    "build tree",
    "build kernel",
    "build kernels",
    "build image",
    "build images",
    "build module",
    "build source",
]
COMMANDS += ["build marker-size", "shell", "doctor", "cache", "cache show", "cache prune", "cache verify"]
COMMANDS += ["model", "model fit", "model show"]
COMMANDS += ["fleet", "fleet keys", "fleet up", "fleet worker", "fleet status", "fleet down"]
FORMER = {
    "diff": "profile",
    "baseline": "list",
    "baseline set": "compare",
    "baseline list": "list",
    "kernel": "build",
    "kernel build": "build kernel",
    "kernel list": "build kernels",
    "image list": "build images",
    "kmod": "build",
    "kmod build": "build module",
    "kmod render": "build source",
    "kmod size": "build marker-size",
}
QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_explains_itself(command: str, option: str) -> None:
    result = orchestrator(*command.split(), option)
    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(("former", "present"), FORMER.items())
def test_a_command_s_former_name_goes_on_working(former: str, present: str) -> None:
    assert orchestrator(*former.split(), "-h").stdout == orchestrator(*present.split(), "-h").stdout


def test_the_help_fits_one_screen_without_former_names() -> None:
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.splitlines()
    assert len(lines) < 40
    words = {line.split()[0] for line in lines if line.startswith("  ")}
    assert "run" in words
    assert not words & {former for former in FORMER if " " not in former}


def test_every_command_is_tested_here() -> None:
    root: Any = typer.main.get_command(app)
    assert set(root.commands) == {command.split()[0] for command in COMMANDS if command}


def test_the_version() -> None:
    assert orchestrator("--version").stdout == f"orchestrator {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "a", "b"),
        ("shell",),
        ("build", "image"),
        ("build", "kernel"),
        ("build", "modules"),
        ("cache", "prune", "--keep-days", "-1"),
        ("cache", "prune", "everything"),
        ("list", "kpcaches"),
        ("report", "--format", "html"),
        ("profile", "--format", "csv"),
        ("profile", "--config", "x.yaml", "latest"),
        ("report", "--format", "junit"),  # of no run
        ("report", "--format", "junit", "--clock", "modelled"),
        ("report", "--format", "bencher", "--clock", "modelled"),
        ("report", "--clock", "wall"),
        ("report", "--claims", "--format", "csv"),
        ("report", "--costs", "my/cpu.yaml"),
        ("model", "fit", "pentium4"),
        ("model", "fit", "pentium5", "latest"),
        ("model", "fit", "./no-such-file.yaml", "latest"),
        ("model", "fit", "pentium4", "latest", "--force"),
        ("model", "show"),
        ("model", "show", "pentium5"),
        ("model", "show", "pentium4", "--format", "csv"),
        ("exec", "--accel", "magic", "--", "true"),
        ("exec", "--smp", "0", "--", "true"),
        ("exec", "--smp", "many", "--", "true"),
        ("exec", "--memory", "1", "--", "true"),
        ("exec", "--nonsense", "--", "true"),
        ("exec",),
        ("run",),
        ("run", "x.yaml", "--jobs", "2"),
        ("build", "source"),
        ("build", "source", "kprobe", "--offset", "-1"),
        ("nonsense",),
    ],
)
def test_missing_files_are_refused(arguments: tuple[str, ...]) -> None:
    assert refusal(*arguments)


# --- the lab's contents ----------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["latest", "no-such-run"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_report_of_no_run(run: str, form: str) -> None:
    assert refusal("report", run, "--format", form).startswith("error: ")
    assert refusal("report", run, "--clock", "modelled", "--format", form).startswith("error: ")
    assert refusal("model", "fit", "pentium4", run).startswith("error: ")
    assert refusal("profile", run, "--format", form).startswith("error: ")
    assert refusal("diff", run, f"{run}:kprobe", "--format", form).startswith("error: ")


def test_a_run_of_another_machine_is_exported(tmp_path: Path) -> None:
    directory = tmp_path / "moved"
    prepare_directory(directory, RunIdentity(run=RUN_ID, experiment="quickstart"))
    write_results(directory, run(cell("none"), failed("kprobe", "the guest hangs")))
    (directory / "provenance.json").write_text('{"sessions": [{"qemu": "QEMU 7.2.22"}], "boots": []}')
    junit = orchestrator("report", str(directory), "--format", "junit")
    assert junit.exit_code == 1, "a cell failed"
    assert '<property name="qemu" value="QEMU 7.2.22" />' in junit.stdout
    (directory / "provenance.json").write_text("{")
    assert "damaged: not the provenance of a run" in refusal("report", str(directory), "--format", "junit", status=1)
    write_results(directory, run())
    (directory / "provenance.json").unlink()
    assert "has an outcome yet" in refusal("report", str(directory), "--format", "junit")


@pytest.fixture
def measured(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two experiment files, whose runs are stored ones, and a third with a cell that fails."""
    runs = []
    for name, outcome in (("one", cell("kprobe")), ("two", cell("none")), ("bad", failed("kprobe", "it hangs"))):
        (tmp_path / f"{name}.yaml").write_text(
            f"name: {name}\nkernels: [debian-686]\nmachines: [{{cpu: pentium4}}]\nprobes: [none, kprobe]\n"
            "benchmark: {name: gtodbench}\n"
        )
        store_run(lab, tmp_path / name, outcome, experiment=name)
        runs.append(find_run(str(tmp_path / name), lab))

    class Stored(ConsoleLab):
        def check(self) -> None:
            pass

        def resolved(self, experiment: Experiment) -> Experiment:
            return experiment

        def measured(self, experiment: Experiment, planned: Plan, directory: Path | None = None) -> Run:
            (found,) = (one for one in runs if one.record.experiment == experiment.name)
            return found

    monkeypatch.setattr(run_command, "ConsoleLab", Stored)
    return [str(tmp_path / f"{name}.yaml") for name in ("one", "two", "bad")]


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json", "junit", "bencher", "html"])
def test_a_run_prints_what_report_prints(measured: list[str], form: str) -> None:
    done = orchestrator("run", measured[0], "--format", form)
    assert done.exit_code == 0, done.output
    assert done.stdout == orchestrator("report", measured[0].removesuffix(".yaml"), "--format", form).stdout
    assert ("other forms" in done.stderr) == (form == "table")
    assert orchestrator("run", measured[2], "--format", "markdown").exit_code == 1


def test_several_runs_are_one_table_of_csv_and_one_array_of_json(measured: list[str]) -> None:
    names = [file.removesuffix(".yaml") for file in measured]
    done = orchestrator("run", *measured, "--format", "csv")
    assert done.exit_code == 1
    assert [row["experiment"] for row in csv.DictReader(io.StringIO(done.stdout, newline=""))] == ["one", "two", "bad"]
    done = orchestrator("run", *measured, "--format", "json")
    assert json.loads(done.stdout) == [
        json.loads(orchestrator("report", name, "--format", "json").stdout) for name in names
    ]
    done = orchestrator("run", *measured, "--format", "markdown")
    assert done.stdout == "".join(orchestrator("report", name, "--format", "markdown").stdout for name in names)
    for form in ("junit", "bencher", "html"):
        assert f"{form} is a document on one run" in refusal("run", *measured, "--format", form)


def test_a_price_list_is_shown_with_its_caches_in_every_form(tmp_path: Path) -> None:
    text = " ".join(orchestrator("model", "show", "pentium4").stdout.split())
    assert "djprobe-2005/list5 kprobe, jprobe, djprobe, counts of lab-i386-up." in text
    assert "MHz 3060 3060 3060 published" in text
    assert "L2 512 KiB 8 64" in text
    assert "Misses have no price" in text
    shown = CpuPrices.model_validate_json(orchestrator("model", "show", "pentium4", "--format", "json").stdout)
    assert shown.caches == cpu_caches()["pentium4"]
    path = tmp_path / "own.yaml"
    path.write_text(orchestrator("model", "show", "pentium4", "--format", "yaml").stdout)
    assert CpuPrices.model_validate_json(orchestrator("model", "show", str(path), "--format", "json").stdout) == shown


def test_a_cpu_that_cannot_be_calibrated_is_shown_with_the_reason() -> None:
    result = orchestrator("model", "show", "pentium-m")
    assert result.exit_code == 0
    assert "These prices give no times: The published cells" in " ".join(result.stdout.split())
    assert "L2 1024 KiB" in " ".join(result.stdout.split())
    shown = CpuPrices.model_validate_json(orchestrator("model", "show", "pentium-m", "--format", "json").stdout)
    assert (shown.declared, [cost.name for cost in shown.costs]) == (None, ["MHz"])


def test_charts_have_no_modelled_times() -> None:
    assert "charts show measured figures only" in refusal("report", "latest", "--clock", "modelled", "--charts")


def test_the_cache_is_shown(tmp_path: Path) -> None:
    assert orchestrator("cache", "show").stdout == f"0.0 MB in {tmp_path / 'cache'}\n"

    def build(folder: Path) -> None:
        (folder / "x").write_bytes(bytes(3_000_000))

    artifact = Cache(tmp_path / "cache").obtain("things", {}, "a thing", build)
    lines = orchestrator("cache", "show").stdout.splitlines()
    assert lines[1].split() == ["things", "a", "thing", artifact.key, "3.0"]
    assert lines[2].startswith("3.0 MB in ")
    other_artifact = Cache(tmp_path / "cache").obtain("things", {"other": 1}, "another thing", build)
    (artifact.path / "manifest.json").write_text("{")
    damaged = orchestrator("cache", "show")
    assert (damaged.exit_code, damaged.stdout.splitlines()[1].split()[-2]) == (1, other_artifact.key)
    assert f"{artifact.path} cannot be read" in damaged.stderr
    assert "cache verify" in damaged.stderr


# --- modules -------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", list(templates()))
def test_a_rendered_module_is_printed_or_written(template: str, tmp_path: Path) -> None:
    source = render(template, {"symbol": "__ia32_sys_gettimeofday", "offset": 5, "number": 78})
    assert orchestrator("kmod", "render", template).stdout == source.files[f"{source.name}_main.c"]
    result = orchestrator("kmod", "render", template, "--out", str(tmp_path / "a" / "b"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert {path.name: path.read_text() for path in (tmp_path / "a" / "b").iterdir()} == source.files


def test_a_module_is_rendered_for_another_kernel_or_place() -> None:
    assert '"__x64_sys_gettimeofday"' in orchestrator("kmod", "render", "kprobe", "--kernel", "debian-amd64").stdout
    there = orchestrator("kmod", "render", "kprobe", "--symbol", "schedule", "--offset", "0").stdout
    assert '"schedule"' in there
    assert ".offset = 0," in there


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("kmod", "render", "kprob"), "unknown module 'kprob'; allowed: attach, capability_djprobe, "),
        (("kmod", "render", "kprobe", "--kernel", "debian-68"), "unknown kernel 'debian-68'"),
        (("kmod", "render", "kprobe", "--symbol", 'x"; panic("'), "not an identifier"),
        (("kmod", "render", "kprobe", "--offset", str(1 << 40)), "out of range"),
        (("kmod", "build", "kprobe", "--kernel", "nonsense", "--offline"), "unknown kernel"),
        (("exec", "--kernel", "debian-amd46", "--offline", "--", "true"), "did you mean 'debian-amd64'?"),
        (("exec", "--kernel", "debian-amd64", "--cpu", "pentium4", "--offline", "--", "true"), "64-bit"),
    ],
)
def test_wrong_values_are_named(arguments: tuple[str, ...], words: str) -> None:
    printed = refusal(*arguments)
    assert printed.startswith("error: ")
    assert words in printed


def test_a_wrong_cpu_is_refused_with_the_nearest() -> None:
    printed = refusal("exec", "--cpu", "pentum4", "--offline", "--", "true")
    assert "--cpu: found 'pentum4'" in printed
    assert "did you mean 'pentium4'?" in printed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--image", "mine.qcow2"), "by a path with a slash: ./mine.qcow2"),
        (("--image", "debian-i386", "--channel", "ssh", "--user", "me"), "over ssh all runs as root"),
        (("--image", "debian-i386", "--password-file", "{file}"), "over framed all runs as root"),
        (("--image", "debian-i386", "--channel", "serial", "--user", "A b"), "a user's name has letters"),
        (("--image", "debian-i386", "--channel", "serial", "--password-file", "/none"), "No such file or directory"),
        (("--image", "debian-i386", "--channel", "serial", "--password-file", "{file}"), "a password is one line"),
        (("--image", "debian-i386", "--channel", "serial", "--password-file", "/dev/zero"), "a password is one line"),
    ],
)
def test_what_an_image_s_guest_cannot_be_asked_for(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("one\ntwo\n")
    given = [option.format(file=file) for option in options]
    assert words in refusal("exec", *given, "--offline", "--", "true")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--module", "/nowhere/x.ko"),
            "this module file or folder does not exist hint: the folder /nowhere",
        ),
        (
            ("--module", "{folder}/own.ko"),
            "file or folder does not exist hint: did you mean {folder}/own.c?",
        ),
        (("--module", ""), "expected the path of a module's file or folder"),
        (("--module", "/nowhere:x"), "/nowhere:x: this module file or folder does not exist"),
        (("--module", "/etc/passwd"), "a C file (.c), a .ko or a folder with a Kbuild"),
        (("--param", "count=1"), "--param count=1: needs a --module"),
        (("--set", "a=1"), "--set a=1: needs a --module"),
        (("--module", "{folder}", "--param", "count"), "--param: found 'count'; expected NAME=VALUE"),
        (("--module", "{folder}", "--param", "=1"), "--param: found '=1'; expected NAME=VALUE"),
        (("--module", "{folder}", "--set", "a=1", "--set", "a=2"), "--set a: found twice; give it once"),
        (("--module", "{folder}", "--param", "a=1", "--param", "a=2"), "--param a: found twice; give it once"),
        (("--get", "results"), "--get results: expected the absolute path of a file or folder in the guest"),
        (("--get", "/tmp/"), "--get /tmp/: expected the absolute path of a file or folder in the guest"),
        (("--get", "/tmp/.."), "--get /tmp/..: expected the absolute path of a file or folder in the guest"),
        (("--get", "/a/x", "--get", "/b/x"), "--get /b/x: it has the same file name as /a/x"),
        (("--get", "/tmp/there", "--out", "{folder}"), "it exists already, and --get overwrites nothing"),
        (("--get", "/tmp/link", "--out", "{folder}"), "it exists already, and --get overwrites nothing"),
        (("--get", "/tmp/x", "--out", "{folder}/there"), "there: --get needs a folder, and this is a file"),
        (("--get", "/tmp/x", "--out", "{folder}/there/new"), "there: --get needs a folder, and this is a file"),
        (("--get", "/tmp/x", "--out", "{folder}/link/new"), "link: --get needs a folder, and this is a file"),
        (("--out", "{folder}"), "needs --get"),
        (("--module", "{folder}/own.c", "--set", "a=1"), "--set a=1: needs a --module that is a template or a folder"),
    ],
)
def test_what_cannot_be_loaded_or_fetched(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    for name in ("there", "own.c"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("/nowhere")
    given = [option.format(folder=tmp_path) for option in options]
    printed = " ".join(refusal("exec", *given, "--offline", "--", "true").split())
    assert words.format(folder=tmp_path) in printed


def test_offline_with_an_empty_cache_lacks_something() -> None:
    for arguments in (("kmod", "build", "kprobe"), ("exec", "--accel", "tcg"), ("run", str(QUICKSTART))):
        tail = ("--", "true") if arguments[0] == "exec" else ()
        printed = " ".join(orchestrator(*arguments, "--offline", *tail).stderr.split())
        # On a host with another compiler than the guests', that is missing first.
        assert re.search(r"(debian-686|compiler-[0-9.]+) is not in the cache", printed), printed
        assert "run once without --offline" in printed


# --- experiments ---------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_the_option_prints_steps_on_stderr(option: str) -> None:
    assert "get kernel debian-686 ready" not in orchestrator("kernel", "build", "debian-686", "--offline").stderr
    verbose = orchestrator("kernel", "build", "debian-686", "--offline", option)
    assert (verbose.exit_code, verbose.stdout) == (3, "")
    assert "  get kernel debian-686 ready FAILED (" in verbose.stderr


def test_without_a_checkout_the_labs_own_experiments_have_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = orchestrator("run", "configs/quickstart.yaml", "--dry-run", "--offline")
    assert "djprobe" in result.stdout
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/quickstart.yaml").write_text("name: [mine]\n")
    assert "configs/quickstart.yaml:1" in orchestrator("run", "configs/quickstart.yaml", "--dry-run").stderr


def test_a_dry_run_prints_cells_and_command_lines_and_does_nothing(tmp_path: Path) -> None:
    result = orchestrator("run", str(QUICKSTART), "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "qemu-system-x86_64 -machine " in result.stdout
    assert "pentium4/debian-686/djprobe/noop" in result.stdout
    assert not (tmp_path / "lab").exists()


def test_a_dry_run_says_which_kernels_lack_a_module_of_their_own(tmp_path: Path) -> None:
    make_tree(tmp_path)
    shutil.copytree(tmp_path / "linux", tmp_path / "bare")
    make_module(tmp_path / "linux/fs/fat/vfat.ko")
    (tmp_path / "linux/modules.order").write_text("fs/fat/vfat.o\n")
    result = orchestrator(
        *("run", str(QUICKSTART), "--dry-run", "--offline", "--set", "kernel_modules=[vfat]"),
        *("--set", f"kernels=[{tmp_path}/linux, {tmp_path}/bare]", "--set", "machines=[{cpu: athlon64}]"),
        *("--set", "reference=null"),
    )
    assert result.exit_code == 0, result.output
    cells = [line for line in result.stdout.splitlines() if line.startswith("  athlon64/")]
    refused = [line for line in cells if "; unsupported: it has no modules" in line]
    assert refused == [line for line in cells if "/own-bare-" in line]
    assert 0 < len(refused) < len(cells)


@pytest.mark.parametrize(
    ("benchmark", "probes", "reason"),
    [
        ("{name: gtodbench}", "[none, uprobe-event]", "it is in the program that makes the calls"),
        ("{name: markers}", "[marker.empty, marker.registers]", "this kernel has no preemption to disable"),
        ("{name: kpcache, sizes: [1000]}", "[none, kpcache.hit]", "this kernel was built without CONFIG_DEBUG_FS"),
        ("{name: ping-flood}", "[none]", "cannot have a whole system in memory: it lacks CONFIG_BLK_DEV_LOOP"),
    ],
)
def test_a_dry_run_and_a_run_refuse_the_same_cells_alike(
    benchmark: str, probes: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(tmp_path)
    file = tmp_path / "x.yaml"
    shared = f"name: x\nkernels: [{tmp_path}/linux]\nmachines: [{{cpu: athlon64}}]\n"
    file.write_text(f"{shared}probes: {probes}\nbenchmark: {benchmark}\n")

    def without_debugfs(context: BuildContext, spec: KernelSpec) -> Kernel:
        kernel = ready_kernel(context, spec)
        return replace(kernel, config={**kernel.config, "CONFIG_DEBUG_FS": "n"})

    for module in (dry_run, boot_preparation):
        monkeypatch.setattr(module, "ready_kernel", without_debugfs)
    done = orchestrator("run", str(file), "--dry-run", "--offline")
    assert done.exit_code == 0, done.output
    cells = [line.strip().partition("; unsupported: ") for line in done.stdout.splitlines() if "; unsup" in line]
    told = {cell.split()[0]: sentence for cell, _, sentence in cells}
    assert told
    assert all(reason in sentence for sentence in told.values())
    monkeypatch.setattr(boot_preparation, "machine_of", MagicMock())
    context = BuildContext(Cache(tmp_path / "cache"), offline=True)
    prepared: dict[str, benchmark_kind.Prepared[Any]] = {}
    for planned in plan(load_experiment(file, kinds())).boots:
        refused = replace(planned, cells=tuple(cell for cell in planned.cells if cell.id in told))
        if refused.cells:
            prepared |= boot_preparation.prepare(context, kinds().named(planned.kind), refused).cells
    assert prepared == {id_: benchmark_kind.unsupported(sentence) for id_, sentence in told.items()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "clock=wal"), "clock"),
        (("--set", "clock=modelled"), "clock"),
        (("--set", "probes=[kprob]"), "did you mean 'kprobe'?"),
        (("--set", "machines.0.cpu=pentium5"), "pentium5"),
        (("--set", "nonsense"), "nonsense"),
        (("--only", "probe=nonsense"), "nonsense"),
    ],
)
def test_a_wrong_experiment_is_refused_before_anything_happens(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    assert words in refusal("run", str(QUICKSTART), *arguments)
    assert not (tmp_path / "lab").exists()
    assert not (tmp_path / "cache").exists()


def test_a_hyphen_alone_is_no_option_of_a_guest_s_command() -> None:
    """Many programs read their standard input by that name."""
    assert "unknown kernel 'debian-868'" in refusal("exec", "--kernel", "debian-868", "cat", "-")


@pytest.mark.parametrize(
    ("given", "status", "words", "has_hint"),
    [
        (("--", "/sbin/modprobe", "loop"), 127, "the guest lacks the program '/sbin/modprobe'", True),
        (("--kernel-modules", "--", "modprobe", "loop"), 127, "the guest lacks the program 'modprobe'", False),
        (("--", "nonesuch"), 127, "the guest lacks the program 'nonesuch'", False),
        (("--", "modprobe", "loop"), 1, "", False),
    ],
)
def test_a_program_that_the_guest_lacks_is_named(
    given: tuple[str, ...], status: int, words: str, has_hint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = MagicMock(say=printing.say)
    guest.run.return_value.status = status

    @contextmanager
    def started(*_: object, **__: object) -> Iterator[MagicMock]:
        yield guest

    monkeypatch.setattr(execute, "start_guest", started)
    monkeypatch.setattr(one_guest.GuestChoice, "machine", MagicMock())
    monkeypatch.setattr(guest_command, "unexpected_trouble", lambda _: None)
    result = orchestrator("exec", "--offline", *given)
    assert result.exit_code == status
    assert words in result.stderr
    assert ("note: status 127" in result.stderr) is bool(words)
    assert ("hint: --kernel-modules adds modprobe" in result.stderr) is has_hint


def test_there_is_nothing_to_resume() -> None:
    assert "experiment 'quickstart' has no unfinished run" in refusal("run", str(QUICKSTART), "--resume")


@pytest.mark.parametrize("content", ["", "{", "name: !!python/object:os.system x", "a: &a [*a]", "\t"])
def test_a_file_that_is_no_experiment_names_itself(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(content)
    assert "x.yaml" in refusal("run", str(tmp_path / "x.yaml"))
    assert "nowhere.yaml" in refusal("run", str(tmp_path / "nowhere.yaml"))
    assert str(tmp_path) in refusal("run", str(tmp_path))


# --- as a program --------------------------------------------------------------------------------


def program(*arguments: str, prefix: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, *PROGRAM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )


def test_an_error_is_a_sentence_on_stderr() -> None:
    ended = program("kmod", "render", "kprob")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: unknown module 'kprob'; allowed: ")


def test_a_closed_stdout_is_no_traceback(tmp_path: Path) -> None:
    """Nor the number of the store's file."""
    stored = store_run(tmp_path / "lab", tmp_path / "run", cell("none"))
    closing = ("sh", "-c", 'exec "$@" <&- >&-', "sh")
    ended = program("report", stored, "--format", "html", prefix=closing, ORCHESTRATOR_LAB=str(tmp_path / "lab"))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_cache_that_cannot_be_written_is_the_host_s(tmp_path: Path) -> None:
    (tmp_path / "fixed").mkdir(mode=0o500)
    cache = str(tmp_path / "fixed" / "cache")
    ended = program("list", "probes", prefix=AS_MERE_OWNER, ORCHESTRATOR_CACHE=cache)
    assert ended.returncode == 0
    ended = program("kmod", "build", "kprobe", "--offline", prefix=AS_MERE_OWNER, ORCHESTRATOR_CACHE=cache)
    assert ended.returncode == 3
    assert ended.stderr.startswith(f"error: the cache folder {cache} is not writable")
    assert "Traceback" not in ended.stderr


def test_output_for_programs_is_whole_in_a_narrow_pipe() -> None:
    ended = program("list", "cpus", COLUMNS="20")
    assert ended.stdout == orchestrator("list", "cpus").stdout
    assert "\x1b" not in ended.stdout


def reader_of(fifo: Path) -> int:
    """Wait until a process reads a FIFO without a writer, and keep it reading as long as this is open."""
    deadline = time.monotonic() + 600
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            # ENXIO: no reader yet.
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


OFTEN = pytest.mark.nightly("runs and workers are ended by it every day: a Python more")


@pytest.mark.parametrize(
    "number", [*(pytest.param(signals, marks=OFTEN) for signals in (signal.SIGINT, signal.SIGTERM)), signal.SIGHUP]
)
def test_a_signal_ends_it_with_a_message(number: signal.Signals, tmp_path: Path) -> None:
    # The record of the chosen packages never comes to an end.
    fifo = tmp_path / "cache" / "pins" / "debian-686.json"
    fifo.parent.mkdir(parents=True)
    os.mkfifo(fifo)
    argv = [*PROGRAM, "kmod", "build", "kprobe", "--offline"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    writer = reader_of(fifo)
    process.send_signal(number)
    # A signal that came just before the read interrupts nothing; the file's end does.
    os.close(writer)
    _, printed = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert printed == f"stopped by {number.name}\n"


@pytest.mark.parametrize(
    ("regex", "sentence"),
    [
        ("(", "error: --allow-oops: '(' is not a regular expression: missing ), unterminated subpattern at position 0"),
        (
            "a{99999999999}",
            "error: --allow-oops: 'a{99999999999}' is not a regular expression: the repetition number is",
        ),
        ("(" * 999 + ")" * 999, "is not a regular expression: maximum recursion depth exceeded"),
        ("", "error: --allow-oops: '' would allow every report"),
        ("WARNING|", "error: --allow-oops: 'WARNING|' would allow every report"),
    ],
)
def test_reports_are_allowed_by_regular_expressions(regex: str, sentence: str) -> None:
    assert sentence in refusal("exec", "--allow-oops", regex, "--", "true")
