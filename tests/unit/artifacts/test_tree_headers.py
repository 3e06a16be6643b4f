# SPDX-License-Identifier: GPL-2.0-only
"""Is a module of a user's tree built anew after a change of what its build reads there, and only then?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from host_toolchain import a_kernel
from user_trees import build_tree

from orchestrator.artifacts.tree_headers import headers_digest
from orchestrator.catalog.kernels import kernel

READ = (
    "include/linux/only_for_modules.h",
    "include/generated/autoconf.h",
    "arch/x86/include/asm/own.h",
    "arch/x86/include/generated/asm/own.h",
    "scripts/Makefile.modfinal",
    "scripts/module.lds",
    "arch/x86/Makefile",
    "Makefile",
    "Module.symvers",
    "tools/objtool/objtool",
    "tools/bpf/resolve_btfids/resolve_btfids",
)
NOT_READ = (
    "kernel/fork.c",
    "vmlinux",
    "scripts/.fixdep.cmd",
    "scripts/basic/fixdep.o",
    "include/config/.tmp",
    "tools/objtool/check.o",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = build_tree(tmp_path / "linux")
    for name in (*READ, *NOT_READ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("first\n")
    return folder


@pytest.mark.parametrize("name", READ)
def test_a_changed_file_changes_the_digest_and_back(tree: Path, name: str) -> None:
    before = headers_digest(tree)
    (tree / name).write_text("other\n")
    assert headers_digest(tree) != before
    (tree / name).write_text("first\n")  # at another time: the content counts
    assert headers_digest(tree) == before


def test_a_new_a_renamed_and_a_removed_file_change_it(tree: Path) -> None:
    found = [headers_digest(tree)]
    (tree / "include/new.h").touch()
    found.append(headers_digest(tree))
    (tree / "include/new.h").rename(tree / "include/renamed.h")
    found.append(headers_digest(tree))
    assert len(set(found)) == 3
    (tree / "include/renamed.h").unlink()
    assert headers_digest(tree) == found[0]


def test_what_no_module_s_build_reads_does_not_change_it(tree: Path) -> None:
    before = headers_digest(tree)
    for name in NOT_READ:
        (tree / name).write_text("other\n")
    (tree / "include/link.h").symlink_to("nowhere")
    assert headers_digest(tree) == before


def test_a_build_folder_s_source_counts(tree: Path) -> None:
    built = build_tree(tree.parent / "built")
    (built / "source").symlink_to(tree)
    before = headers_digest(built)
    (tree / READ[0]).write_text("other\n")
    assert headers_digest(built) != before


def test_a_name_that_is_no_text_is_one(tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree / "include") + b"/caf\xe9.h")).touch()
    assert headers_digest(tree)


def test_modules_of_a_tree_depend_on_it_and_those_of_other_kernels_as_before(tree: Path) -> None:
    mine = a_kernel(str(tree), folder=tree)
    assert mine.spec == kernel(str(tree))
    assert mine.module_inputs == {"kernel": "key", "compiler": "gcc of this host", "headers": headers_digest(tree)}
    assert a_kernel("debian-686", folder=tree).module_inputs == {"kernel": "key", "compiler": "gcc of this host"}
    variant = a_kernel(f"{tree}+CONFIG_X=y", folder=tree.parent)  # a copy in the cache, which is not changed
    assert "headers" not in variant.module_inputs
