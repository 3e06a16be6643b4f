# SPDX-License-Identifier: GPL-2.0-only
"""Has each commit of a kernel's tree the number of its own code, and is none built or measured twice?"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from probe_repository import KERNEL, commit, git

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernels

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]

MAKEFILE = """\
olddefconfig:
\t@cat .config >/dev/null
bzImage:
\t@echo $@ >>{made}
\t@test -f built || cp -a --remove-destination {built}/. . && touch built
modules: bzImage
\t$(MAKE) -C {built} KBUILD_OUTPUT={built} M=$(CURDIR)/drivers/misc modules
\t@echo drivers/misc/mine.ko >modules.order
"""
"""Of a tree that takes a kernel of the lab's for its own, and builds a module of its own for it."""
KBUILD = "obj-m := mine.o\nccflags-y := -I$(src)/../../include\n"
SOURCE = """\
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/mine.h>

static unsigned int reads;

static ssize_t mine_read(struct file *file, char __user *buf, size_t n, loff_t *pos)
{
\tfor (int i = 0; i < {}; i++)
\t\tcount(&reads);
\treturn 0;
}

static const struct proc_ops ops = { .proc_read = mine_read };

static int __init mine_init(void)
{
\treturn proc_create("mine", 0444, NULL, &ops) ? 0 : -ENOMEM;
}

static void __exit mine_exit(void)
{
\tremove_proc_entry("mine", NULL);
}

module_init(mine_init);
module_exit(mine_exit);
MODULE_DESCRIPTION("mine");
MODULE_LICENSE("GPL");
"""
COUNT = "static inline void count(volatile unsigned int *reads)\n{{\n\t{}\n}}\n"
HEADER, SOURCE_FILE = "include/linux/mine.h", "drivers/misc/mine.c"
ONCE, OFTEN = (SOURCE.replace("{}", times) for times in ("1", "100"))
HISTORY: Mapping[str, Mapping[str, str]] = {
    "misc: add mine": {HEADER: COUNT.format("++*reads;"), SOURCE_FILE: ONCE, "drivers/misc/Makefile": KBUILD},
    "misc: mine: count a hundred times": {SOURCE_FILE: OFTEN},
    "Documentation: say so": {"Documentation/mine.rst": "A hundred times.\n"},
    "mine: count twice": {HEADER: COUNT.format("++*reads; ++*reads;")},
    "misc: mine: break it": {SOURCE_FILE: f"this is no C\n{OFTEN}"},
    "misc: mine: mend it": {SOURCE_FILE: OFTEN},
}
EXPERIMENT = """\
name: mine
machines: [{cpu: pentium4, memory: 256M}]
kernel_modules: [mine]
points: [mine_read]
probes: [none, kprobe]
benchmark: {name: workload, file: wl.c, calls: 100, repeats: 2}
"""
WORKLOAD = """\
#include "workload.h"
static int file;
static char byte;
void workload_setup(void) { file = sys2(SYS_open, "/proc/mine", O_RDONLY); }
void workload(void) { sys3(SYS_read, file, &byte, 1); }
"""


@pytest.fixture
def top(workshop: BuildContext, tmp_path: Path) -> Iterator[Path]:
    """A kernel's tree with a module in it that regresses; its clone has a copy of a kernel's, 200 MB."""
    folder = tmp_path / "linux"
    for file in ("Kconfig", "arch/x86/Makefile"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    built = ready_kernel(workshop, kernels()[KERNEL]).headers
    (folder / "GNUmakefile").write_text(MAKEFILE.format(built=built, made=tmp_path / "made"))
    git(tmp_path, "init", "--quiet", str(folder))
    for subject, files in HISTORY.items():
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        commit(folder, subject)
    shutil.copy(built / ".config", tmp_path / "config")
    (tmp_path / "mine.yaml").write_text(EXPERIMENT)
    (tmp_path / "wl.c").write_text(WORKLOAD)
    yield folder
    with GitTree.open(workshop.cache, folder) as tree:
        clone = tree.folder
    shutil.rmtree(clone)


@pytest.mark.nightly(
    "builds a module at nine commits: half a minute; test_series.py and the keys' own tests are of every day"
)
def test_each_commit_has_the_number_of_its_module(top: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    config = ("--kconfig", tmp_path / "config")

    def measured(topic: str = "HEAD") -> Any:
        span = ("series", f"{top}@HEAD~5..{topic}", "--experiment", tmp_path / "mine.yaml", *config)
        finished = command.run(*span, "--format", "json")
        assert finished.returncode == (topic == "HEAD"), finished.stderr  # a commit does not build
        return json.loads(finished.stdout)["commits"]

    def builds() -> int:
        return len((tmp_path / "made").read_text().splitlines())

    def runs() -> int:
        return len(list((tmp_path / "lab" / "runs").iterdir()))

    regressed, documented, twice, broken, fixed = measured()
    changes = [
        {
            probe: cell["change"]
            for cell in one["cells"]
            for probe in ("none", "kprobe")
            if probe in cell["id"].split("/")
        }
        for one in (regressed, documented, twice, fixed)
    ]
    assert changes[0]["none"] == 500
    assert changes[2]["none"] > 0
    assert changes[1::2] == [{"none": 0, "kprobe": 0}] * 2
    assert [change["kprobe"] for change in changes] == [change["none"] for change in changes]
    assert (documented["same_kernel_as"], fixed["same_kernel_as"]) == (regressed["hash"][:12], twice["hash"][:12])
    assert broken["reason"].startswith("the kernel does not build: unknown type name 'this'\n")
    assert re.search(r"mine\.c:1:\d+: error: ", broken["reason"])
    assert (builds(), runs()) == (6, 3)

    # The same again is known without a build, and so is a comparison of two of the commits.
    assert measured() == [regressed, documented, twice, broken, fixed]
    compared = command.run("compare", "--config", tmp_path / "mine.yaml", *config, f"{top}@HEAD~5", f"{top}@HEAD~4")
    assert (compared.returncode, "+500" in compared.stdout) == (1, True), compared.stderr
    assert (builds(), runs()) == (6, 3)

    # A workload that is not in the tree has changed, and the kernel's image and modules have not.
    (tmp_path / "wl.c").write_text(WORKLOAD.replace("{ sys3(", "{ sys3(SYS_getppid, 0, 0, 0); sys3("))
    again = measured("HEAD~3")
    assert [one["same_kernel_as"] for one in again] == [None, regressed["hash"][:12]]
    assert [cell["change"] for cell in again[0]["cells"]] == [500, 500]
    assert all(
        cell["value"] > before["value"] for cell, before in zip(again[0]["cells"], regressed["cells"], strict=True)
    )
    assert (builds(), runs()) == (9, 5)
