# SPDX-License-Identifier: GPL-2.0-only
"""Does a folder build as kbuild takes it, wherever it is, and again once a file has changed that it reads elsewhere?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules import folder_modules, user_modules
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import BuildError

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("debian-amd64")]

FORMS = Path(__file__).with_name("modules") / "forms"
PLAIN = """\
#include <linux/module.h>
#include "number.h"
int number = NUMBER;
MODULE_DESCRIPTION("A number");
MODULE_LICENSE("GPL");
"""


@pytest.fixture
def kernel(workshop: BuildContext) -> Kernel:
    return ready_kernel(workshop, kernel_spec("debian-amd64"))


@pytest.mark.parametrize(
    "name",
    [
        "debian-amd64",
        pytest.param("debian-686", marks=pytest.mark.nightly("another kernel's build: five seconds")),
        pytest.param("debian-amd64@6.12", marks=pytest.mark.nightly("another kernel's build: five seconds")),
        pytest.param("debian-amd64@7.3", marks=pytest.mark.nightly("another kernel's build: five seconds")),
    ],
)
def test_a_folder_of_all_forms(workshop: BuildContext, name: str) -> None:
    kernel = ready_kernel(workshop, kernel_spec(name))
    modules = folder_modules(workshop, kernel, FORMS, {})
    assert set(modules) == {"whole", "table", "lib_below", "user_below"}
    loaded = user_modules(workshop, kernel, FORMS, name="user-below")
    assert [module.name for module in loaded] == ["lib_below", "user_below"]


def test_a_folder_anywhere(workshop: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    plain = tmp_path / "a folder, its name: long" / ("d" * 100)
    plain.mkdir(parents=True)
    (plain / "Makefile").write_text("obj-m := plain.o\nall:\n\t$(MAKE) -C $(KDIR) M=$(CURDIR)\n")
    (plain / "number.h").write_text("#define NUMBER 1\n")
    (tmp_path / "plain.c").write_text(PLAIN)
    (plain / "plain.c").symlink_to("../../plain.c")
    (tmp_path / "link").symlink_to(plain)
    assert [*folder_modules(workshop, kernel, tmp_path / "link", {})] == ["plain"]


def test_a_file_elsewhere_that_has_changed(workshop: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    for folder in ("mine", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mine/Kbuild").write_text(f"obj-m := plain.o\nccflags-y := -I{tmp_path}/elsewhere\n")
    (tmp_path / "mine/plain.c").write_text(PLAIN)
    header, files = tmp_path / "elsewhere/number.h", []
    for number in (1, 1, 2, 1):
        header.write_text(f"#define NUMBER {number}\n")
        files.append(folder_modules(workshop, kernel, tmp_path / "mine", {})["plain"].file)
    assert files[0] == files[1] != files[2]
    contents = [file.read_bytes() for file in files]
    assert contents[0] == contents[3] != contents[2]


def test_a_file_outside_is_not_in_the_copy(workshop: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    shutil.copytree(FORMS / "below", tmp_path / "below")
    (tmp_path / "below/Makefile").unlink()
    user = tmp_path / "below/user"
    with pytest.raises(
        BuildError, match=r"/user-below\.c:3: folder user does not build: \.\./below\.h: No such file"
    ) as caught:
        folder_modules(workshop, kernel, user, {})
    assert "the lab builds a copy of user alone, without ../below.h: write " in caught.value.hint
    assert "Kbuild with obj-m := user/, and name " in caught.value.hint
    (user / "Makefile").write_text("obj-m := user-below.o\nKBUILD_EXTRA_SYMBOLS := $(src)/../lib/Module.symvers\n")
    with pytest.raises(BuildError) as caught:
        folder_modules(workshop, kernel, user, {})
    assert "Kbuild with obj-m := lib/ user/, and name " in caught.value.hint
    (tmp_path / "below/Kbuild").write_text("obj-m := lib/ user/\nsubdir-ccflags-y := -DBELOW=1\n")  # as the hint says
    loaded = user_modules(workshop, kernel, tmp_path / "below", name="user-below")
    assert [module.name for module in loaded] == ["lib_below", "user_below"]
