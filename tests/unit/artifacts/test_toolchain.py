# SPDX-License-Identifier: GPL-2.0-only
"""Does what runs in guests have the compiler of their kernels, whatever gcc the host has?"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from host_toolchain import HOST_TOOLCHAIN

from orchestrator.artifacts import toolchain
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, Cache
from orchestrator.artifacts.debian_package import NoSuchPackageError
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.toolchain import (
    Toolchain,
    compiler_in,
    guest_toolchain,
    matching_toolchain,
    release_in,
    tree_toolchain,
)
from orchestrator.catalog.debian_release import debian
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import HostError

NEWER = Toolchain(folder=None, release="14.2.0", version="gcc (Some 14.2.0-1) 14.2.0")
TEMPLATE = Path(__file__).parent / "tools" / "tool.sh"


@pytest.fixture
def printed() -> list[str]:
    return []


@pytest.fixture
def context(tmp_path: Path, printed: list[str]) -> BuildContext:
    return BuildContext(Cache(tmp_path / "a cache"), say=printed.append)


@pytest.fixture(autouse=True)
def _another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_host_toolchain", lambda: NEWER)


@pytest.fixture
def packages(context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's packages, as if they had been fetched: programs that print how they were called."""

    def fill(folder: Path) -> None:
        programs = folder / "usr/bin"
        programs.mkdir(parents=True)
        for tool in debian().compiler_tools:
            (programs / f"x86_64-linux-gnu-{tool}").write_text(TEMPLATE.read_text())
            (programs / f"x86_64-linux-gnu-{tool}").chmod(0o755)

    def unpacked(context: BuildContext, name: str, arch: str, choose: object) -> Artifact:
        return context.cache.obtain("debian", {"packages": name}, name, fill)

    monkeypatch.setattr(toolchain, "unpacked_packages", unpacked)


def refusing(error: HostError) -> object:
    def unpacked(*arguments: object) -> Artifact:
        raise error

    return unpacked


@pytest.mark.usefixtures("packages")
def test_a_host_with_another_gcc_gets_the_guests_own(context: BuildContext) -> None:
    found = guest_toolchain(context)
    assert (found.release, found.version) == ("12.2.0", "gcc (Debian 12.2.0-14) 12.2.0")
    assert found.folder is not None
    assert {path.name for path in found.folder.iterdir()} == set(debian().compiler_tools)
    assert guest_toolchain(context) is found


@pytest.mark.usefixtures("packages")
def test_a_tool_finds_its_own_libraries_and_assembler(context: BuildContext) -> None:
    found = guest_toolchain(context)
    argv = [found.program("ld"), "-o", "a b"]
    name, libraries, tools, *arguments = subprocess.check_output(argv, text=True).splitlines()
    assert (name, arguments) == ("x86_64-linux-gnu-ld", ["-o", "a b"])
    assert (
        Path(libraries).resolve()
        == (Path(found.program("ld")).parents[1] / "packages/usr/lib/x86_64-linux-gnu").resolve()
    )
    assert Path(tools) == found.folder


@pytest.mark.usefixtures("packages")
def test_the_kernels_build_system_is_given_all_of_them(context: BuildContext) -> None:
    found = guest_toolchain(context)
    assert found.for_make() == [f"CROSS_COMPILE={found.folder}/", f"CC={found.folder}/gcc"]
    assert (NEWER.for_make(), NEWER.program("strip")) == (["CC=gcc"], "strip")


def test_a_host_with_the_same_gcc_needs_nothing(context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_host_toolchain", lambda: HOST_TOOLCHAIN)
    monkeypatch.setattr(toolchain, "unpacked_packages", refusing(HostError("not to be asked")))
    assert guest_toolchain(context) is HOST_TOOLCHAIN


def test_a_kernel_of_the_users_own_has_the_hosts_gcc_where_that_made_it(context: BuildContext) -> None:
    for release in ("14.2.0", "13.1.0", None):
        assert matching_toolchain(context, release) is NEWER


def test_where_the_release_has_no_compiler_the_host_s_is_taken_and_named(
    context: BuildContext, printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "unpacked_packages", refusing(NoSuchPackageError("no gcc-12")))
    assert guest_toolchain(context) is NEWER
    assert printed == ["compiling with the host's gcc 14.2.0, as there is no gcc 12.2.0: no gcc-12"]


def test_what_cannot_be_fetched_just_now_is_no_reason_for_another_compiler(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "unpacked_packages", refusing(HostError("the mirror is away")))
    for _ in range(2):  # nor is the host's taken when it is asked for again
        with pytest.raises(HostError, match="the mirror is away"):
            guest_toolchain(context)


@pytest.mark.usefixtures("packages")
def test_a_path_that_would_be_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="not accept colons") as caught:
        guest_toolchain(BuildContext(Cache(tmp_path / "a:b")))
    assert "ORCHESTRATOR_CACHE" in caught.value.hint


@pytest.mark.parametrize(
    ("number", "release"), [("120200", "12.2.0"), ("140201", "14.2.1"), ("0", None), ("", None), ("x", None)]
)
def test_a_kernels_configuration_names_its_compiler(number: str, release: str | None) -> None:
    assert release_in({"CONFIG_GCC_VERSION": number}) == release
    assert release_in({}) is None


CLANG = {"CONFIG_CC_IS_CLANG": "y", "CONFIG_GCC_VERSION": "0", "CONFIG_CLANG_VERSION": "160006"}


def test_a_configuration_names_clang_too() -> None:
    assert compiler_in(CLANG) == "clang 16.0.6"
    assert compiler_in({"CONFIG_GCC_VERSION": "120200"}) == "gcc 12.2.0"
    assert compiler_in({}) is None


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> Path:
    """Programs that print a version each, in place of all that is installed."""
    folder.mkdir(exist_ok=True)
    for name, printed in programs.items():
        file = folder / name.replace("_", "-")
        release = printed.split()[-1]
        file.write_text(f"#!/bin/sh\n[ $1 = -dumpfullversion ] && echo {release} || echo '{printed}'\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.mark.parametrize(("name", "release"), [("clang_16", "16.0.6"), ("clang", "16.0.0")])
def test_a_tree_built_by_clang_has_a_clang_of_its_major_release(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, release: str
) -> None:
    place = install(tmp_path / "bin", monkeypatch, **{name: f"Some clang version {release}"}) / name.replace("_", "-")
    found = tree_toolchain(context, {**CLANG, "CONFIG_AS_IS_GNU": "y", "CONFIG_LD_IS_BFD": "y"})
    assert (found.compiler, found.for_make()) == (f"clang {release}", ["LLVM_IAS=0", f"CC={place}"])
    assert tree_toolchain(context, CLANG).for_make() == [f"CC={place}"]


def test_a_tree_linked_by_lld_has_all_of_llvm_or_none(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install(tmp_path / "bin", monkeypatch, clang="Some clang version 16.0.6")
    config = {**CLANG, "CONFIG_LD_IS_LLD": "y"}
    assert tree_toolchain(context, config) is NEWER
    for tool in ("ld.lld", "llvm-ar", "llvm-nm", "llvm-strip", "llvm-objcopy", "llvm-readelf"):
        (folder / tool).touch()
    variables = tree_toolchain(context, config).for_make()
    assert variables[0] == "LLVM=1"
    assert {f"LD={folder}/ld.lld", f"OBJCOPY={folder}/llvm-objcopy", f"CC={folder}/clang"} <= set(variables)


def test_a_clang_of_another_major_release_is_not_taken(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin", monkeypatch, clang="Some clang version 15.0.7", clang_16="Some clang version 15.0.7")
    assert tree_toolchain(context, CLANG) is NEWER


def test_a_tree_built_by_another_gcc_has_that_one_where_it_is_installed(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"CONFIG_GCC_VERSION": "110400"}
    assert tree_toolchain(context, config) is NEWER
    install(tmp_path / "bin", monkeypatch, gcc_11="gcc-11 (Some) 11.4.0")
    found = tree_toolchain(context, config)
    assert (found.compiler, found.for_make(), found.version) == ("gcc 11.4.0", ["CC=gcc-11"], "gcc (Some) 11.4.0")
    assert tree_toolchain(context, {"CONFIG_GCC_VERSION": "140200"}) is NEWER


@pytest.mark.parametrize(
    ("name", "kernels_own", "compiler", "note"),
    [
        ("debian-686", "120200", HOST_TOOLCHAIN, None),
        ("debian-686", "120200", NEWER, "the module was compiled by gcc 14.2.0, the kernel by gcc 12.2.0"),
        ("debian-686", "0", NEWER, "the module was compiled by gcc 14.2.0, the kernel by another compiler"),
        ("lab-i386-up", "120200", HOST_TOOLCHAIN, None),
        (
            "lab-i386-up",
            "140200",
            NEWER,
            "kernel and module were compiled by gcc 14.2.0, and not by gcc 12.2.0 as elsewhere",
        ),
    ],
)
def test_another_compiler_is_noted(name: str, kernels_own: str, compiler: Toolchain, note: str | None) -> None:
    here = Path("/nowhere")
    kernel = Kernel(kernels()[name], "6.1", "key", here, here, here, here, {}, {}, compiler)
    assert replace(kernel, config={"CONFIG_GCC_VERSION": kernels_own}).compiler_note == note
