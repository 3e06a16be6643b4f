# SPDX-License-Identifier: GPL-2.0-only
"""Is a kernel's tree built as its configuration and the user say, and is it said what is wrong with it?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from host_toolchain import HOST_TOOLCHAIN

from orchestrator.artifacts import own_kernel_build
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.own_kernel_build import TreeBuild, is_kernel_source, own_variant
from orchestrator.catalog.kernels import kernel
from orchestrator.errors import BuildError, HostError, UsageError

MAKEFILE = """\
olddefconfig:
\techo "$(ARCH) $(CC) configured" >> made
bzImage modules:
\tgrep -q X86 .config
\techo "$(ARCH) $(CC) $@" >> made
\t@$(BREAKS)
"""

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that looks like a kernel's, and makes a note of what is made."""
    for file in ("Kconfig", "arch/x86/Makefile"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "Makefile").write_text(MAKEFILE)
    return tmp_path


@pytest.fixture(autouse=True)
def _has_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_kernel_build, "check_all_installed", lambda lists: None)


def test_a_kernel_s_tree_is_known(tree: Path) -> None:
    assert is_kernel_source(tree)
    (tree / "Kconfig").unlink()
    assert not is_kernel_source(tree)


@needs_make
@pytest.mark.parametrize(("option", "arch"), [("CONFIG_X86_32", "i386"), ("CONFIG_X86_64", "x86_64")])
def test_it_is_built_as_configured(tree: Path, option: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCH", "arm64")
    config = tree / "mine"
    config.write_text(f"{option}=y\n")
    build, said = TreeBuild(config, ("CC=gcc-12",)), list[str]()
    build.check()
    build.build(tree, said.append)
    made = set((tree / "made").read_text().splitlines())
    assert made == {f"{arch} gcc-12 {what}" for what in ("configured", "bzImage", "modules")}
    unnamed = "\n# CONFIG_LOCALVERSION_AUTO is not set\n"  # a commit that changes no code builds the same image
    assert (tree / ".config").read_text() == config.read_text() + unnamed
    assert len(said) == 1


@needs_make
def test_the_compiler_s_words_are_quoted(tree: Path) -> None:
    (tree / "mine").write_text("CONFIG_X86_64=y\n")
    with pytest.raises(BuildError, match="does not build") as caught:
        TreeBuild(tree / "mine", ("BREAKS=echo f.c:1: error: no >&2; exit 1",)).build(tree, lambda text: None)
    assert "f.c:1: error: no" in caught.value.detail


@pytest.mark.parametrize(
    ("content", "variables", "sentence"),
    [
        (None, (), "the kernel has no configuration"),
        ("CONFIG_ARM64=y\n", (), "not a configuration of a kernel for x86"),
        ("CONFIG_X86_64=y\n", ("-j8",), "expected NAME=VALUE"),
        ("CONFIG_X86_64=y\n", ("CC=a\nb",), "expected NAME=VALUE"),
    ],
)
def test_what_cannot_be_built_is_said(
    tree: Path, content: str | None, variables: tuple[str, ...], sentence: str
) -> None:
    if content is not None:
        (tree / "mine").write_text(content)
    with pytest.raises(UsageError, match=sentence):
        TreeBuild(tree / "mine", variables).check()


def test_no_variant_is_built_offline(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (tree / "vmlinux").touch()
    own = {"tree": tree, "image": tree / "vmlinux", "options": "CONFIG_KFENCE=y\n"}
    spec = kernel("lab-i386-up").model_copy(update=own)
    cache = tmp_path_factory.mktemp("cache")
    with pytest.raises(HostError, match="not in the cache"):
        own_variant(BuildContext(Cache(cache), offline=True), spec, "key", HOST_TOOLCHAIN)
    assert not (tree / "made").exists()
    assert not [*cache.rglob("build")]
