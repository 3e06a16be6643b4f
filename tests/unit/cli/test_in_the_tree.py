# SPDX-License-Identifier: GPL-2.0-only
"""Is the kernel of a tree configured, built and used where a command is called in the tree, and only there?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from called_commands import orchestrator, refusal
from user_trees import build_tree, kernel_source

from orchestrator.artifacts import own_kernel_build
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cli.in_the_tree import tree_kernel
from orchestrator.errors import ConfigError, HostError, UsageError
from orchestrator.library import tree_build
from orchestrator.library.tree_experiments import experiments, tree_around
from orchestrator.program import PROGRAM

pytestmark = pytest.mark.usefixtures("lab")
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

X86_64 = ("X86_64", "FTRACE", "FPROBE")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree, the current folder, on a host with all packages."""
    for module in (tree_build, own_kernel_build):
        monkeypatch.setattr(module, "check_all_installed", lambda lists: None)
    (tmp_path / "linux").mkdir()
    monkeypatch.chdir(tmp_path / "linux")
    return kernel_source(tmp_path / "linux")


@pytest.fixture
def built(tree: Path) -> Path:
    """The same, built, in the current folder."""
    return build_tree(tree, *X86_64)


# --- building it


@needs_make
def test_a_tree_without_a_configuration_gets_one_and_is_built(tree: Path) -> None:
    done = orchestrator("build")
    assert (done.exit_code, done.stdout) == (0, f"{tree}/arch/x86/boot/bzImage\n"), done.stderr
    assert f"configuring {tree}" in done.stderr
    assert f"built 7.3.0-mine; measure all mechanisms on it, in the tree: {PROGRAM} run" in done.stderr
    config = (tree / ".config").read_text()
    for line in (
        "CONFIG_KPROBES=y",
        "CONFIG_PROC_KCORE=y",
        "CONFIG_FPROBE=y",
        "CONFIG_DEBUG_INFO_BTF=y",
        'CONFIG_NOTE="the tree\'s own"',
    ):
        assert line in config.splitlines()


@needs_make
@pytest.mark.parametrize(("words", "compiler"), [((), "gcc"), (("--make", "CC=gcc-99"), "gcc-99")])
def test_a_configuration_that_is_there_stays(tree: Path, words: Sequence[str], compiler: str) -> None:
    build_tree_config = build_tree(tree / "another", *X86_64) / ".config"
    (tree / ".config").write_bytes(build_tree_config.read_bytes())
    before = (tree / ".config").stat()
    done = orchestrator("build", *words)
    assert done.exit_code == 0, done.stderr
    assert "configuring" not in done.stderr
    assert "mechanisms cannot" not in done.stderr
    assert (tree / ".config").stat().st_mtime_ns == before.st_mtime_ns
    assert set((tree / "made").read_text().splitlines()) == {f"x86_64 {compiler}"}


@needs_make
def test_mechanisms_options_that_are_missing_are_named_if_the_tree_has_them(tree: Path) -> None:
    (tree / ".config").write_bytes((build_tree(tree / "another", "X86_64") / ".config").read_bytes())
    done = orchestrator("build")
    assert done.exit_code == 0
    assert "some mechanisms cannot be measured without CONFIG_FTRACE, CONFIG_FPROBE\n" in done.stderr
    assert f"to have them, in {tree}: scripts/config -e FTRACE -e FPROBE, and build it again\n" in done.stderr


def test_a_configuration_that_no_guest_can_run_is_refused_with_one_command(tree: Path) -> None:
    (tree / ".config").write_text("CONFIG_X86=y\nCONFIG_X86_64=y\nCONFIG_VIRTIO_PCI=m\nCONFIG_FTRACE=y\n")
    said = refusal("build")
    assert "CONFIG_KPROBES: probes are kprobes" in said
    assert "CONFIG_VIRTIO_PCI: the lab's channel" in said
    assert "-e KPROBES " in said
    assert said.endswith("-e VIRTIO_PCI -e VIRTIO_CONSOLE -e FPROBE, and build it again")
    assert not (tree / "made").exists()


@pytest.mark.parametrize("option", ["SYSCTL", "PROC_SYSCTL"])
def test_a_kernel_without_proc_sys_is_refused_before_it_boots(built: Path, option: str) -> None:
    with (built / ".config").open("a") as config:
        config.write(f"# CONFIG_{option} is not set\n")
    said = f"CONFIG_{option}{{}}the kernel's taint is in /proc/sys"
    assert said.format(" (") in refusal("exec", "--", "true")
    assert said.format(": ") in refusal("build")


@needs_make
def test_an_option_that_others_do_not_allow_is_missed_before_the_build(tree: Path) -> None:
    (tree / ".config").write_bytes((build_tree(tree / "another", *X86_64) / ".config").read_bytes())
    (tree / "Makefile").write_text("olddefconfig:\n\t@sed -i /VIRTIO_PCI/d .config\n")
    assert "CONFIG_VIRTIO_PCI: the lab's channel" in refusal("build")


@pytest.mark.parametrize(
    ("config", "words", "sentence"),
    [
        ("CONFIG_ARM64=y\n", (), "not a configuration of a kernel for x86"),
        (None, ("--make", "-j8"), "expected NAME=VALUE"),
        (None, ("--tree", "fs"), "this is not a kernel's tree"),
        (None, ("--tree", "/nowhere"), "this is not a kernel's tree"),
    ],
)
def test_what_cannot_be_built_is_said(tree: Path, config: str | None, words: Sequence[str], sentence: str) -> None:
    if config is not None:
        (tree / ".config").write_text(config)
    assert sentence in refusal("build", *words)
    assert (tree / ".config").exists() == (config is not None)


@needs_make
def test_a_tree_that_cannot_be_configured(tree: Path) -> None:
    (tree / "Makefile").write_text("olddefconfig:\n")
    assert "No rule to make target 'alldefconfig'" in refusal("build", status=1)


def test_a_path_that_make_cannot_have(tree: Path, tmp_path: Path) -> None:
    assert "a space, a quote" in refusal("build", "--tree", str(shutil.copytree(tree, tmp_path / "my linux")))


def test_missing_packages_are_named_before_anything_is_written(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(lists: Mapping[str, str]) -> None:
        if "type-packages.txt" in lists:
            raise HostError(f"{lists['type-packages.txt']} needs dwarves")

    monkeypatch.setattr(tree_build, "check_all_installed", missing)
    assert "needs dwarves" in refusal("build", status=3)
    assert not (tree / ".config").exists()


def test_build_alone_is_its_help_outside_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    assert "Usage:" in orchestrator("build", "-h").stdout
    monkeypatch.chdir(tmp_path)
    outside = orchestrator("build")
    assert outside.exit_code == 2
    assert "Usage:" in outside.output
    assert "in no kernel tree" in refusal("build", "tree")
    assert not (tree / ".config").exists()


# --- which tree


def test_the_tree_around_the_current_folder(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree / "kernel/trace")
    assert tree_around() == tree
    (tree / "o").mkdir()
    (tree / "o/source").symlink_to("..")
    monkeypatch.chdir(tree / "o")
    assert tree_around() == tree / "o"
    monkeypatch.chdir(tmp_path)
    assert tree_around() is None
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert tree_around() is None
    os.chdir(tmp_path)


def test_the_trees_kernel_is_the_default(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tree_kernel(None) == str(built)
    assert capsys.readouterr().err == f"kernel: this tree, {built}\n"
    assert tree_kernel(None, "debian-amd64") == "debian-amd64"
    assert capsys.readouterr().err == ""


def test_tree_names_it_from_elsewhere(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tree_kernel(None) is None
    assert capsys.readouterr().err == ""
    assert tree_kernel(Path("linux/kernel/..")) == str(built)
    assert capsys.readouterr().err == f"kernel: --tree, {built}\n"


def test_another_tree_than_the_one_around(built: Path, tmp_path: Path) -> None:
    other_path = kernel_source(build_tree(tmp_path / "other", *X86_64))
    assert tree_kernel(other_path) == str(other_path) != str(built)


def test_a_tree_that_is_not_built(tree: Path) -> None:
    with pytest.raises(ConfigError, match="is incomplete") as caught:
        tree_kernel(None)
    assert caught.value.hint == f"build it first: {PROGRAM} build --tree {tree}; or name another kernel: --kernel"
    for command in ("exec -- true", "cost kprobe", "run"):
        assert f"{PROGRAM} build --tree {tree}" in refusal(*command.split())


@pytest.mark.parametrize(
    "command",
    ["exec --cpu pentium4 -- true", "cost kprobe --cpu pentium4", "run --set machines.0.cpu=pentium4 --dry-run"],
)
def test_commands_take_it(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    name, *words = command.split()
    assert "'own-linux-" in refusal(name, *words)
    monkeypatch.chdir(tmp_path)
    assert "'own-linux-" in refusal(name, "--tree", str(built), *words)


@pytest.mark.parametrize(
    ("command", "option"),
    [("exec --kernel debian-686 -- true", "--kernel"), ("cost kprobe --kernels 6.1", "--kernels")],
)
def test_a_kernel_and_a_tree_exclude_each_other(built: Path, command: str, option: str) -> None:
    name, *words = command.split()
    assert f"--tree and {option} exclude each other" in refusal(name, "--tree", str(built), *words)


# --- experiments

PLAIN = "name: mine\nmachines: [{cpu: xeon-e5410}]\nprobes: [none, kprobe]\nbenchmark: {name: gtodbench}\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(PLAIN)
    return tmp_path / "mine.yaml"


def test_without_a_file_all_mechanisms_are_measured(built: Path) -> None:
    ((config, overrides),) = experiments(ConsoleLab(), [], ["handlers=[noop]"], None)
    assert config.name == "today.yaml"
    name, kernels, own = overrides
    assert name.startswith("name=today-own-linux-")
    assert (kernels, own) == (f'kernels=["{built}"]', "handlers=[noop]")


def test_a_file_that_names_no_kernel_gets_the_tree_s(built: Path, mine: Path, tmp_path: Path) -> None:
    other_path, tables = tmp_path / "other.yaml", tmp_path / "tables.yaml"
    other_path.write_text(f"{PLAIN}kernels: [debian-686]\n")
    tables.write_text("name: x\ntables:\n  one: {kernels: [debian-686]}\n")
    pairs = experiments(ConsoleLab(), [mine, other_path, tables], ["charts=true"], None)
    on_it = [f'kernels=["{built}"]', "charts=true"]
    assert list(pairs) == [(mine, on_it), (other_path, ["charts=true"]), (tables, ["charts=true"])]


@pytest.mark.parametrize("key", ["kernels", "kernel_for.kprobe", "tables.one.kernels.0"])
def test_kernels_that_are_set_stay(built: Path, mine: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [f"{key}=debian-686"]
    assert list(experiments(ConsoleLab(), [mine], overrides, None)) == [(mine, overrides)]
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match="names kernels of its own"):
        experiments(ConsoleLab(), [mine], overrides, built)
    with pytest.raises(UsageError, match=r"CONFIG\.\.\. is missing"):
        experiments(ConsoleLab(), [], overrides, None)


def test_outside_a_tree_files_are_as_they_were(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(experiments(ConsoleLab(), [mine], (), None)) == [(mine, ())]
    with pytest.raises(UsageError, match=r"CONFIG\.\.\. is missing"):
        experiments(ConsoleLab(), [], (), None)


def test_a_missing_file_is_said_as_ever(built: Path) -> None:
    assert "no such file" in refusal("run", "none.yaml")
