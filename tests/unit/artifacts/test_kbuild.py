# SPDX-License-Identifier: GPL-2.0-only
"""Is it said of a user's tree, before anything is built in it, why no module can be, or may not be?"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_modules import tiny_kernel, tiny_module

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel, UnusableTreeError
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.errors import BuildError

GCC = {"CONFIG_GCC_VERSION": "120200"}
OTHER_GCC = {"CONFIG_GCC_VERSION": "130300"}
CLANG = {"CONFIG_CC_IS_CLANG": "y", "CONFIG_CLANG_VERSION": "160006"}
STACKLEAK = {"CONFIG_GCC_PLUGINS": "y", "CONFIG_GCC_PLUGIN_STACKLEAK": "y"}
RANDSTRUCT = {"CONFIG_GCC_PLUGINS": "y", "CONFIG_RANDSTRUCT": "y"}


def own_kernel(folder: Path, config: dict[str, str], *, lacking: str = "", name: str = "gcc") -> Kernel:
    """A user's tree that has all but what is ``lacking``, and the host's compiler of that name, release 12.2.0."""
    kernel = tiny_kernel(folder / "trees")
    tree = kernel.headers
    for file in ("Module.symvers", "scripts/gcc-plugins/stackleak_plugin.so"):
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).touch()
    if lacking:
        (tree / lacking).unlink()
    spec = kernel.spec.model_copy(update={"name": "own", "packages": None, "tree": tree})
    return replace(kernel, spec=spec, config=config, toolchain=replace(kernel.toolchain, name=name))


@pytest.mark.parametrize(
    ("config", "lacking", "sentence", "hint"),
    [
        (GCC, "Module.symvers", "`make modules` has not run there", "make -C {tree} modules"),
        (CLANG, "", "clang 16.0.6 made it, which this host does not", "apt-get install clang-16, or build it again"),
        (CLANG | {"CONFIG_LD_IS_LLD": "y"}, "", "clang 16.0.6 and ld.lld made it", "clang-16 lld-16 llvm-16, or"),
        (GCC | {"CONFIG_MODULE_SIG_FORCE": "y"}, "", "it takes signed modules alone", "scripts/config -d MODULE_SIG_F"),
        (
            GCC | {"CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY": "y"},
            "",
            "signed modules alone (CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY)",
            "scripts/config -d LOCK_DOWN_KERNEL_FORCE_INTEGRITY, and build it again",
        ),
        (
            OTHER_GCC | STACKLEAK,
            "",
            "the plugins of gcc that made it need gcc 13.3.0",
            "install that compiler as gcc-13",
        ),
        (
            OTHER_GCC | RANDSTRUCT,
            "",
            "the plugins of gcc that made it need gcc 13.3.0",
            "scripts/config -d GCC_PLUGINS",
        ),
        (GCC | STACKLEAK, "scripts/gcc-plugins/stackleak_plugin.so", "are not there", "make -C {tree} modules"),
    ],
)
def test_a_tree_for_which_no_module_can_be_built(
    context: BuildContext,
    tmp_path: Path,
    said: list[str],
    config: dict[str, str],
    lacking: str,
    sentence: str,
    hint: str,
) -> None:
    kernel = own_kernel(tmp_path, config, lacking=lacking)
    with pytest.raises(UnusableTreeError) as caught:
        build_modules(context, kernel, [tiny_module({})])
    assert caught.value.what.startswith(f"no module can be built for the kernel in {kernel.headers}: ")
    assert sentence in caught.value.what
    assert hint.format(tree=shlex.quote(str(kernel.headers))) in caught.value.hint
    assert not said


def test_a_tree_that_was_configured_for_another_compiler_since(context: BuildContext, tmp_path: Path) -> None:
    kernel = own_kernel(tmp_path, CLANG, name="clang")
    header = kernel.headers / "include" / "generated" / "autoconf.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define CONFIG_CC_IS_GCC 1\n")
    with pytest.raises(UnusableTreeError, match=r"configured for clang 16\.0\.6 after another compiler built it"):
        build_modules(context, kernel, [tiny_module({})])
    header.write_text("#define CONFIG_CC_IS_CLANG 1\n")
    (module,) = build_modules(context, kernel, [tiny_module({})])
    assert isinstance(module, Module)


@pytest.mark.parametrize("config", [GCC, GCC | STACKLEAK, OTHER_GCC | {"CONFIG_GCC_PLUGINS": "y"}, {}])
def test_a_tree_that_is_sound_is_not_refused(context: BuildContext, tmp_path: Path, config: dict[str, str]) -> None:
    (module,) = build_modules(context, own_kernel(tmp_path, config), [tiny_module({})])
    assert isinstance(module, Module)


def test_a_tree_of_clang_s_is_built_by_clang(context: BuildContext, tmp_path: Path) -> None:
    kernel = own_kernel(tmp_path, CLANG, name="clang")
    (module,) = build_modules(context, kernel, [tiny_module({})])
    assert isinstance(module, Module)


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (OTHER_GCC, "the module was compiled by gcc 12.2.0, the kernel by gcc 13.3.0"),
        (
            GCC | {"CONFIG_TRIM_UNUSED_KSYMS": "y"},
            "the kernel exports only what its own modules use (CONFIG_TRIM_UNUSED_KSYMS); "
            "in {tree}: scripts/config -d TRIM_UNUSED_KSYMS, and build it again",
        ),
    ],
)
def test_why_a_module_may_not_build_is_said_before_and_with_the_error(
    context: BuildContext, tmp_path: Path, said: list[str], config: dict[str, str], note: str
) -> None:
    kernel = own_kernel(tmp_path, config)
    note = note.format(tree=kernel.headers)
    broken = tiny_module({"lab_tiny_main.c": "int tiny(void) { return 0 }\n"})
    sound, result = build_modules(context, kernel, [tiny_module({}), broken])
    assert isinstance(sound, Module)
    assert isinstance(result, BuildError)
    assert note in result.hint
    assert said == [f"note: {note}", "building lab_tiny for own"]
