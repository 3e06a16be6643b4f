# SPDX-License-Identifier: GPL-2.0-only
"""Is a parameter that a module has not got told from one that it has?"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.artifacts.modules import Module, check_parameter_names
from orchestrator.errors import ConfigError, UsageError

# What module_param() makes of one, as far as it matters.
PARAMETER = """\
static const char __param_str_{0}[] = "{0}";
static const char *const __param_{0} __attribute__((used, section("__param"))) = __param_str_{0};
"""


def module(folder: Path, parameters: Sequence[str], *options: str) -> Module:
    (folder / "own.c").write_text("int x;\n" + "".join(PARAMETER.format(name) for name in parameters))
    subprocess.run(["gcc", "-c", "own.c", "-o", "own.ko"], cwd=folder, check=True)
    if options:
        subprocess.run(["strip", *options, "own.ko"], cwd=folder, check=True)
    return Module("own", folder / "own.ko", "key", None)


def test_a_parameter_that_is_there_is_taken(tmp_path: Path) -> None:
    check_parameter_names(module(tmp_path, ["count", "whom"]), ["whom", "count", "dyndbg"])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (["count", "whom"], "own: unknown parameter 'cout'; allowed: count, whom; did you mean 'count'"),
        ([], "own has no parameter 'cout': it has no parameters at all"),
    ],
)
def test_one_that_is_not_is_refused(tmp_path: Path, parameters: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_parameter_names(module(tmp_path, parameters), ["cout"])


def test_a_stripped_module_may_have_any(tmp_path: Path) -> None:
    check_parameter_names(module(tmp_path, ["count"], "--strip-unneeded"), ["cout"])


def test_a_file_that_is_no_module_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "own.ko").write_text("nothing")
    with pytest.raises(ConfigError, match="is no kernel module"):
        check_parameter_names(Module("own", tmp_path / "own.ko", "key", None), ["count"])
