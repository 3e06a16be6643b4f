# SPDX-License-Identifier: GPL-2.0-only
"""Is a kernel refused whose tree has changed since it was built, by what make would compile, and only then?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from called_commands import refusal
from user_trees import build_tree, kernel_source

from orchestrator.artifacts import own_kernel_build
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.built_tree import UnbuiltTreeError, check_built
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import IMAGE, kernel
from orchestrator.program import PROGRAM

BEFORE, COMPILED, BUILT, NOW = (10**18 + seconds * 10**9 for seconds in range(4))


def put(file: Path, text: str = "", time: int = BEFORE) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, ns=(time, time))
    return file


def compiled(build: Path, name: str, *parts: str, flags: str = "") -> Path:
    """An object with kbuild's record of what it was made from."""
    made = build / name
    listed = "".join(f"  {part} \\\n    $(wildcard include/config/SMP) \\\n" for part in parts[1:])
    begin = f"cmd_{name} := gcc {flags} -c -o {name} {parts[0]}\n\nsource_{name} := {parts[0]}\n\n"
    record = f"{begin}deps_{name} := \\\n{listed}"
    put(made.with_name(f".{made.name}.cmd"), record, COMPILED)
    return put(made, time=COMPILED)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A built tree of a few files."""
    tree = kernel_source(build_tree(tmp_path / "linux", "X86_64"))
    for name in (
        "fs/open.c",
        "fs/internal.h",
        "kernel/sched/build.c",
        "kernel/sched/rt.c",
        "drivers/gone.c",
        "fs/Makefile",
    ):
        put(tree / name)
    put(tree / "drivers/other.h")
    put(tree / "drivers/mod.c")
    compiled(tree, "fs/open.o", "fs/open.c", "fs/internal.h")
    compiled(tree, "kernel/sched/build.o", "kernel/sched/build.c", "kernel/sched/rt.c")
    compiled(tree, "drivers/mod.o", "drivers/mod.c", "drivers/../fs/internal.h", flags="-DMODULE")
    put(tree / "include/config/auto.conf", (tree / ".config").read_text())
    for name in ("arch/x86/Makefile", "Makefile", "Kconfig", "kernel/trace/Kconfig"):
        os.utime(tree / name, ns=(BEFORE, BEFORE))
    os.utime(tree / IMAGE, ns=(BUILT, BUILT))
    return tree


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return BuildContext(Cache(tmp_path / "cache"), offline=True)


def reason(context: BuildContext, tree: Path, image: Path = IMAGE) -> str:
    with pytest.raises(UnbuiltTreeError) as caught:
        check_built(context, tree, tree / image)
    assert caught.value.hint == f"build it again: {PROGRAM} build --tree {tree}"
    assert caught.value.exit_status == 2
    return str(caught.value).partition("\n")[0]


def test_a_built_tree_is_taken(context: BuildContext, tree: Path) -> None:
    check_built(context, tree, tree / IMAGE)
    assert ready_kernel(context, kernel(f"{tree}/")).release == "6.1.0-mine"


@pytest.mark.parametrize("name", ["fs/open.c", "fs/internal.h", "kernel/sched/rt.c", "drivers/mod.c"])
def test_what_an_object_was_made_from_is_named_if_it_is_newer(context: BuildContext, tree: Path, name: str) -> None:
    put(tree / name, time=NOW)
    assert reason(context, tree) == f"{tree}/{name}: changed since the kernel in {tree} was built"
    with pytest.raises(UnbuiltTreeError):
        ready_kernel(context, kernel(str(tree)))


def test_several_are_named(context: BuildContext, tree: Path) -> None:
    for name in ("fs/open.c", "fs/internal.h"):
        put(tree / name, time=NOW)
    said = reason(context, tree)
    assert {"fs/open.c", "fs/internal.h"} == {name for name in ("fs/open.c", "fs/internal.h") if name in said}


@pytest.mark.parametrize("name", ["drivers/gone.c", "drivers/other.h", "arch/arm/mm.c", "tools/perf.c", "lib/new.c"])
def test_source_without_an_object_is_no_part_of_the_kernel(context: BuildContext, tree: Path, name: str) -> None:
    put(tree / name, time=NOW)
    check_built(context, tree, tree / IMAGE)


def test_a_module_that_was_made_alone_is_built_and_an_object_that_was_is_not_linked(
    context: BuildContext, tree: Path
) -> None:
    for name in ("drivers/mod.c", "drivers/mod.o"):
        os.utime(tree / name, ns=(NOW, NOW))
    check_built(context, tree, tree / IMAGE)
    for name in ("fs/open.c", "fs/open.o"):
        os.utime(tree / name, ns=(NOW, NOW))
    assert "fs/open.c: changed since" in reason(BuildContext(context.cache), tree)


def test_a_new_file_that_a_changed_makefile_names(context: BuildContext, tree: Path) -> None:
    put(tree / "fs/new.c", time=NOW)
    put(tree / "fs/Makefile", "obj-y += open.o renew.o\n", time=NOW)
    warnings: list[str] = []
    check_built(BuildContext(context.cache, warn=warnings.append), tree, tree / IMAGE)
    assert [line.partition(": ")[0] for line in warnings] == [
        f"fs/Makefile in {tree} changed since the kernel was built"
    ]
    put(tree / "fs/Makefile", "obj-y += open.o new.o\n", time=NOW)
    assert f"{tree}/fs/new.c: changed since" in reason(context, tree)


def test_a_configuration_that_was_not_built(context: BuildContext, tree: Path) -> None:
    config = tree / ".config"
    config.write_text(
        config.read_text().replace("CONFIG_DEBUG_FS=y\n", "") + "CONFIG_KFENCE=y\n# CONFIG_A is not set\n"
    )
    changes = "CONFIG_DEBUG_FS is n, and was y, CONFIG_KFENCE is y, and was n"
    assert (
        reason(context, tree)
        == f"{config}: the configuration has changed since the kernel in {tree} was built: {changes}"
    )


@pytest.mark.parametrize("written", ['"gcc (\\"x\\") 12"', 'gcc ("x") 12'])
def test_a_text_may_have_quotes_or_none(context: BuildContext, tree: Path, written: str) -> None:
    for file, text in ((".config", '"gcc (\\"x\\") 12"'), ("include/config/auto.conf", written)):
        with (tree / file).open("a") as opened:
            opened.write(f'CONFIG_CC_VERSION_TEXT={text}\nCONFIG_EMPTY=""\n')
    with (tree / "include/config/auto.conf").open("a") as opened:
        opened.write("CONFIG_EMPTY=\n")
    check_built(context, tree, tree / IMAGE)


def test_a_build_folder_names_its_source_s_files(context: BuildContext, tree: Path, tmp_path: Path) -> None:
    build = build_tree(tmp_path / "out", "X86_64")
    (build / "source").symlink_to(tree)
    (tmp_path / "link").symlink_to(tree)
    compiled(build, "fs/open.o", str(tmp_path / "link/fs/open.c"), "../linux/fs/internal.h")
    os.utime(build / IMAGE, ns=(BUILT, BUILT))
    put(tree / "kernel/sched/rt.c", time=NOW)
    check_built(context, build, build / IMAGE)
    for name in ("fs/internal.h", "fs/open.c"):
        put(tree / name, time=NOW)
        assert f"{tree}/{name}: changed since the kernel in {build} was built" in reason(
            BuildContext(context.cache), build
        )
        put(tree / name, time=BEFORE)


def test_a_vmlinux_is_as_new_as_the_image_made_of_it_and_no_more(context: BuildContext, tree: Path) -> None:
    put(tree / "vmlinux", time=COMPILED)
    put(tree / "fs/open.c", time=COMPILED + 1)
    check_built(context, tree, tree / "vmlinux")
    put(tree / "vmlinux", time=NOW)
    put(tree / "fs/open.c", time=BUILT + 1)
    assert "fs/open.c" in reason(context, tree)


def test_it_is_looked_at_once_in_a_command_and_again_in_the_next(context: BuildContext, tree: Path) -> None:
    check_built(context, tree, tree / IMAGE)
    put(tree / "fs/open.c", time=NOW)
    check_built(context, tree, tree / IMAGE)
    assert "fs/open.c" in reason(BuildContext(context.cache), tree)


def test_building_it_again_helps_though_make_has_nothing_to_do(
    context: BuildContext, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tree / "fs/open.c", time=NOW)
    assert "fs/open.c" in reason(context, tree)
    monkeypatch.setattr(own_kernel_build, "check_all_installed", lambda lists: None)
    (tree / "Makefile").write_text("olddefconfig bzImage modules:\n\t@:\n")
    TreeBuild(tree / ".config").build(tree, lambda text: None)
    check_built(context, tree, tree / IMAGE)


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    "words",
    [
        "run --dry-run",
        "run",
        "cost kprobe --call read",
        "exec -- true",
        "profile --config mine.yaml ./ debian-amd64",
    ],
)
def test_each_command_refuses_it(tree: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tree / "fs/open.c", time=NOW)
    monkeypatch.chdir(tree)
    (tree / "mine.yaml").write_text(
        "name: mine\nkernels: [debian-amd64]\nmachines: [{cpu: xeon-e5410}]\n"
        "probes: [none, kprobe]\nbenchmark: {name: gtodbench}\n"
    )
    said = refusal(*words.split())
    assert f"{tree}/fs/open.c: changed since the kernel in {tree} was built hint: " in said
    assert said.endswith(f"build it again: {PROGRAM} build --tree {tree}")
