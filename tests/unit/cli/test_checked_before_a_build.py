# SPDX-License-Identifier: GPL-2.0-only
"""Is what is wrong with a measurement of commits said before a kernel is built, whichever command measures them?"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from called_commands import orchestrator, refusal
from user_trees import NEEDED, git, kernel_source

from orchestrator.artifacts.unbuilt_tree import unbuilt_tree
from orchestrator.catalog.kernels import IMAGE, RELEASE, kernel

pytestmark = [
    pytest.mark.usefixtures("lab"),
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
]

MAKEFILE = """\
olddefconfig:
\t@echo configured >>made
bzImage modules:
\t@echo $@ >>made
\t@echo "kernel/fork.c:1:2: error: it is no C"; exit 1
"""
CONFIG = "".join(f"CONFIG_{option}=y\n" for option in (*NEEDED, "X86_64"))
EXPERIMENT = """\
name: mine
machines: [{cpu: xeon-e5410}]
points: [vfs_read]
probes: [none, kprobe]
benchmark: {name: syscall, call: read, arguments: [0, {buffer: 16}, 16]}
"""
COMMANDS = {
    "series": ["series", "./linux@HEAD~1..HEAD", "--experiment", "mine.yaml"],
    "bisect": ["bisect", "mine.yaml", "--good", "./linux@HEAD~1", "--bad", "./linux@HEAD"],
    "compare": ["compare", "--config", "mine.yaml", "./linux@HEAD~1", "./linux@HEAD"],
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel's tree, two commits of which do not build."""
    top = kernel_source(tmp_path_factory.mktemp("commits") / "linux")
    (top / "Makefile").write_text(MAKEFILE)
    git(top, "init", "--quiet")
    for subject in ("first", "second"):
        (top / "note").write_text(subject)
        git(top, "add", ".")
        git(top, "commit", "--quiet", "--message", subject)
    return top


@pytest.fixture
def folder(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a copy of that tree, its configuration, and an experiment."""
    shutil.copytree(repository, tmp_path / "linux")
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "mine.yaml").write_text(EXPERIMENT)
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def built(folder: Path) -> bool:
    """Whether anything of a kernel was made but its configuration."""
    made = [file.read_text().split() for file in folder.glob("cache/git-trees/*/made")]
    return any({"bzImage", "modules"} & set(words) for words in made)


@pytest.mark.parametrize(
    ("words", "change", "sentence"),
    [
        ((), ("call: read", "call: reed"), "did you mean 'read'?"),
        (
            (),
            ("{name: syscall, call: read, arguments: [0, {buffer: 16}, 16]}", "{name: workload, file: gone.c}"),
            "gone.c",
        ),
        ((), ("probes: [none, kprobe]", "probes: [none, ./linux/gone.c]"), "linux/gone.c"),
        ((), ("name: mine", "name: mine\nbudgets: {jprobe: +1}"), "no cell matches"),
        ((), ("name: mine", "name: mine\nbudgets: {kprobe: 1}"), "mine.yaml:2"),
        ((), ("xeon-e5410", "xeon-e5411"), "did you mean"),
        ((), ("xeon-e5410", "pentium4"), "is 64-bit and CPU 'pentium4' is 32-bit"),
        ((), ("points: [vfs_read]", "pionts: [vfs_read]"), "did you mean 'points'"),
        (("--set", "benchmark.calls=none"), ("", ""), "calls"),
        (("--kconfig", "gone"), ("", ""), "the kernel has no configuration"),
        (("--kconfig", "linux/Kconfig"), ("", ""), "not a configuration of a kernel for x86"),
        (("--make", "-j8"), ("", ""), "expected NAME=VALUE"),
    ],
)
def test_a_wrong_experiment_is_refused_before_a_build(
    folder: Path, words: Sequence[str], change: tuple[str, str], sentence: str
) -> None:
    (folder / "mine.yaml").write_text(EXPERIMENT.replace(*change))
    config = () if "--kconfig" in words else ("--kconfig", "config")
    said = refusal(*COMMANDS["series"], *config, *words)
    assert sentence in said
    assert str(folder / "cache") not in said
    assert not built(folder)
    assert git(folder / "linux", "status", "--porcelain") == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_refuses_it(folder: Path, command: str) -> None:
    (folder / "mine.yaml").write_text(EXPERIMENT.replace("call: read", "call: reed"))
    assert "did you mean 'read'?" in refusal(*COMMANDS[command], "--kconfig", "config")
    assert not built(folder)


@pytest.mark.parametrize(
    ("command", "option"), zip(COMMANDS, ("VIRTIO_CONSOLE", "KPROBES", "BLK_DEV_INITRD"), strict=True)
)
def test_a_configuration_that_no_guest_can_boot_is_refused_before_a_build(
    folder: Path, command: str, option: str
) -> None:
    (folder / "config").write_text(CONFIG.replace(f"CONFIG_{option}=y\n", f"# CONFIG_{option} is not set\n"))
    said = refusal(*COMMANDS[command], "--kconfig", "config")
    assert f"{folder}/config: the lab cannot use this configuration CONFIG_{option}: " in said
    assert f"hint: in {folder}/linux: scripts/config --file {folder}/config -e " in said
    assert f"-e {option}" in said
    assert not built(folder)


@pytest.mark.parametrize(("command", "words"), [("series", "--only"), ("compare", "--only"), ("bisect", "--cell")])
def test_a_cell_that_there_is_not_is_refused_before_a_build(folder: Path, command: str, words: str) -> None:
    said = refusal(*COMMANDS[command], "--kconfig", "config", words, "jprobe")
    assert "jprobe" in said
    assert not built(folder)


@pytest.mark.parametrize("command", COMMANDS)
def test_correct_experiment_is_built(folder: Path, command: str) -> None:
    """The experiment names no kernel: it is measured on the tree's, as `run` measures it there."""
    done = orchestrator(*COMMANDS[command], "--kconfig", "config")
    assert (done.exit_code, built(folder)) == (1, True), done.stderr
    assert "the kernel does not build" in done.stderr
    clone = next((folder / "cache" / "git-trees").iterdir())
    assert not (clone / IMAGE).exists()


def test_a_tree_that_is_none_needs_a_kernel(folder: Path) -> None:
    shutil.rmtree(folder / "linux/arch")
    git(folder / "linux", "commit", "--quiet", "--all", "--message", "no kernel any more")
    git(folder / "linux", "commit", "--quiet", "--allow-empty", "--message", "and none")
    assert "kernels" in refusal(*COMMANDS["series"])
    assert not built(folder)


def test_a_tree_stands_for_its_kernel_for_a_while(folder: Path) -> None:
    tree = folder / "linux"
    (tree / ".config").write_text(CONFIG)
    before = sorted(tree.rglob("*"))
    with unbuilt_tree(tree):
        assert kernel(str(tree)).arch == "x86_64"
    assert not any((tree / name).exists() for name in (IMAGE, RELEASE))
    assert [file for file in sorted(tree.rglob("*")) if file.is_file()] == [file for file in before if file.is_file()]
    (tree / IMAGE).parent.mkdir(parents=True, exist_ok=True)
    (tree / IMAGE).write_bytes(b"built before")
    with pytest.raises(KeyError), unbuilt_tree(tree):
        raise KeyError
    assert (tree / IMAGE).read_bytes() == b"built before"
    assert not (tree / RELEASE).exists()
