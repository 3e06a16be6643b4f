# SPDX-License-Identifier: GPL-2.0-only
"""Which of the modules that a folder makes is meant?"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from orchestrator.artifacts import module_files
from orchestrator.artifacts import modules as under_test
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module, user_modules
from orchestrator.catalog.user_files import modinfo
from orchestrator.errors import ConfigError, UsageError

NO_CONTEXT, NO_KERNEL = cast("BuildContext", None), cast("Kernel", None)


@pytest.fixture(autouse=True)
def _built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = {name: Module(name, tmp_path / f"{name}.ko", name, None) for name in ("my_probe", "other")}
    monkeypatch.setattr(under_test, "folder_modules", lambda *given: made)
    monkeypatch.setattr(module_files, "module_info", lambda file: {})


@pytest.mark.parametrize("name", ["my_probe", "my-probe"])
def test_a_module_has_its_files_name_or_the_kernels(tmp_path: Path, name: str) -> None:
    (module,) = user_modules(NO_CONTEXT, NO_KERNEL, tmp_path, name=name)
    assert module.name == "my_probe"


def test_one_of_several_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="makes 2 modules: my_probe, other"):
        user_modules(NO_CONTEXT, NO_KERNEL, tmp_path)


def test_a_c_file_takes_no_values(tmp_path: Path) -> None:
    (tmp_path / "own.c").touch()
    with pytest.raises(UsageError, match=r"own\.c takes no value count"):
        user_modules(NO_CONTEXT, NO_KERNEL, tmp_path / "own.c", values={"count": 1})


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"#include <linux/module.h>\n", "it is text: name C code NAME.c, and the lab builds it"),
        (b"\0\1\2", ""),
    ],
)
def test_a_built_module_that_is_none(content: bytes, hint: str, tmp_path: Path) -> None:
    (tmp_path / "mine.ko").write_bytes(content)
    with pytest.raises(ConfigError, match=r"mine\.ko: is no kernel module") as refused:
        modinfo(tmp_path / "mine.ko")
    assert refused.value.hint.partition(";")[0] == hint


@pytest.mark.parametrize(
    ("given", "hint"),
    [("modul", "did you mean {}/module?"), ("my_prob.ko.d", ""), ("gone/module", "there is no folder {}/gone")],
)
def test_what_is_not_there_is_said_so(tmp_path: Path, given: str, hint: str) -> None:
    """It may have been a folder: which forms a file has is no answer."""
    (tmp_path / "module").mkdir()
    with pytest.raises(ConfigError, match="there is no such file or folder") as refused:
        user_modules(NO_CONTEXT, NO_KERNEL, tmp_path / given, values={"A": "m"})
    assert f"found '{tmp_path / given}'" in str(refused.value)
    assert refused.value.hint == hint.format(tmp_path)
