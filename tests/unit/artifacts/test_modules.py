# SPDX-License-Identifier: GPL-2.0-only
"""Does nothing but names and numbers reach C, and does a build give a module or the place of its failure?"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_modules import tiny_kernel, tiny_module

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_source import (
    ModuleSource,
    Value,
    check_parameters,
    module_folders,
    render,
    templates,
)
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.ready_kernels import Kernel, UnusableTreeError
from orchestrator.artifacts.sources import included
from orchestrator.errors import BuildError, HostError, UsageError
from orchestrator.paths import data_dir
from orchestrator.probes.recorder import MECHANISMS, recorder_values

VALUES: dict[str, str | int] = {
    "symbol": "__ia32_sys_gettimeofday",
    "offset": 5,
    "number": 78,
    "capability": "pre_exec",
}


BY_NUMBER = ("hook", "tracepoint")
"""Modules that see every system call, and take the number of the one to count."""


# --- rendering -----------------------------------------------------------------------------------


@pytest.mark.parametrize("template", list(templates()))
def test_the_values_are_in_the_source(template: str) -> None:
    source = render(template, {**VALUES, "symbol": "some_function.part.0", "offset": 1234567, "number": 7654321})
    main = source.files[f"{source.name}_main.c"]
    assert source.name == f"lab_{template}"
    if template.startswith(("attach", "livepatch", "marker", "kpcache", "places")):
        assert "some_function" not in main  # it has places of its own, or is told them when it is loaded
    elif template in BY_NUMBER:
        assert "7654321" in main
    else:
        assert '"some_function.part.0"' in main
        assert ("1234567" in main) == (template != "recorder")  # it finds each function's entry itself
    assert "{{" not in main
    assert "{%" not in main


@pytest.mark.parametrize("template", list(templates()))
def test_every_object_has_its_source(template: str) -> None:
    source = render(template, VALUES)
    kbuild = re.fullmatch(r"obj-m := (\S+)\.o\n(\S+)-y := (.*)\n(?:ccflags-y := .*\n)?", source.files["Kbuild"])
    assert kbuild is not None
    assert kbuild[1] == kbuild[2] == source.name
    stems = [name.removesuffix(".o") for name in kbuild[3].split()]
    sources = {Path(name).stem: name for name in source.files if name.endswith((".c", ".S"))}
    assert sorted(stems) == sorted(sources)
    # The module's own object carries its name; an object of that name would be overwritten by it.
    assert source.name not in stems
    included = {name for text in source.files.values() for name in re.findall(r'#include "(.+)"', text)}
    assert included <= set(source.files)


def test_a_file_is_found_by_its_name_alone() -> None:
    names = [file.name for folder in module_folders() for file in sources_in(folder)]
    assert len(names) == len(set(names))


def test_every_source_is_part_of_a_module() -> None:
    choices: list[Mapping[str, Value]] = [
        {"own_booster": 1},
        *({"capability": name} for name in ("pre_exec", "anywhere", "probe_and_registers")),
        *(recorder_values(mechanism, "i386") for mechanism in MECHANISMS),
    ]
    used = {
        file for template in templates() for values in choices for file in render(template, {**VALUES, **values}).files
    }
    sources = {file.name for folder in module_folders() for file in sources_in(folder) if file.suffix != ".j2"}
    assert sources <= used | {file.name for files in plain_modules().values() for file in files}


def sources_in(folder: Path) -> list[Path]:
    """The sources of a folder, in which make may have left what it built."""
    return [file for file in folder.iterdir() if file.suffix in (".c", ".h", ".S", ".j2") and ".mod" not in file.name]


def plain_modules() -> dict[str, set[Path]]:
    """The sources of each module that Kbuild builds, by the module's name."""
    text = (data_dir("kmods") / "Kbuild").read_text().replace("\\\n", " ")
    found: dict[str, set[Path]] = {}
    for name, value in re.findall(r"^(\w+)-y := (.*)$", text, re.MULTILINE):
        if name == "ccflags":
            continue
        folder = re.match(r"\$\(addprefix (\w+)/,", value)
        paths = [f"{folder[1] + '/' if folder else ''}{path}" for path in re.findall(r"([\w/]+)\.o\b", value)]
        paths = [re.sub(r"^\w+/lib_", "lib/", path) for path in paths]
        found[name] = {next(data_dir("kmods").glob(f"{path}.[cS]")) for path in paths}
    return found


@pytest.mark.parametrize("name", ["djprobe", "jprobe", "marker"])
def test_make_alone_builds_a_module_of_all_that_its_header_brings(name: str) -> None:
    brought = {file for file in included(f'#include "{name}.h"\n', module_folders()) if file.suffix != ".h"}
    module = data_dir("kmods") / name / f"{name}_module.c"
    assert plain_modules()[name] == brought | {module}


def test_no_source_depends_on_itself_through_others() -> None:
    sources = {file.stem: file.read_text() for folder in module_folders() for file in folder.glob("*.c")}
    uses = {
        stem: set(re.findall(r'#include "(.+)\.h"', text)) & set(sources) - {stem} for stem, text in sources.items()
    }
    assert uses["djprobe_site"] > {"djprobe_search", "djprobe_text"}
    tuple(TopologicalSorter(uses).static_order())  # raises CycleError


def test_assembly_is_built_too() -> None:
    assert " djprobe_stub.o" in render("djprobe", VALUES).files["Kbuild"]


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "a b",
        "a\n",
        "a\nb",
        'a"',
        "a'",
        '"; system("',
        "a;b",
        "a\\",
        "a/*",
        "1a",
        "-1",
        "+5",
        ".a",
        "{{ offset }}",
        "${x}",
        "ä",
        "a\0",
        "a" * 129,
    ],
)
def test_text_that_is_no_identifier_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="not an identifier"):
        render("kprobe", {**VALUES, "symbol": value})


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31), 10**400])
def test_numbers_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(UsageError, match="out of range"):
        render("kprobe", {**VALUES, "offset": value})


@pytest.mark.parametrize("value", [True, False, 1.0, None, ["a"], {"a": 1}, b"a"])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(UsageError, match="neither an identifier nor a whole number"):
        render("kprobe", {**VALUES, "offset": cast("int", value)})


@given(st.text(max_size=20))
def test_any_text_is_an_identifier_or_refused(text: str) -> None:
    try:
        source = render("kprobe", {**VALUES, "symbol": text})
    except UsageError:
        return
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", text, re.ASCII)
    assert f'"{text}"' in source.files["lab_kprobe_main.c"]


def test_an_unknown_template_is_refused_with_the_nearest() -> None:
    for name in ("kprob", "../kprobe", "", "report.c"):
        with pytest.raises(UsageError, match="unknown module"):
            render(name, VALUES)
    with pytest.raises(UsageError, match="did you mean 'djprobe'"):
        render("djprob", VALUES)


@pytest.mark.parametrize(("template", "missing"), [("hook", "number"), ("tracepoint", "number")])
def test_a_missing_value_is_named(template: str, missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        render(template, {key: value for key, value in VALUES.items() if key != missing})


@pytest.mark.parametrize("template", ["djprobe", "ftrace", "jprobe", "kprobe", "kretprobe", "capability_kprobe"])
def test_a_module_that_is_built_for_no_point_has_the_point_as_its_parameters(template: str) -> None:
    main = render(template, {}).files[f"lab_{template}_main.c"]
    assert "POINT_PARAMETERS(" in main


def test_parameters_are_checked_like_values() -> None:
    assert check_parameters({"symbol": "vfs_read", "offset": 5}) == {"symbol": "vfs_read", "offset": 5}
    for bad in ({"symbol": "a b"}, {"symbol": "-f"}, {"offset": 1 << 31}):
        with pytest.raises(UsageError):
            check_parameters(bad)


# --- building, with a build system in small ------------------------------------------------------


def tiny(**changes: str) -> ModuleSource:
    return tiny_module(changes)


def built(result: Module | BuildError) -> Module:
    assert isinstance(result, Module), result
    return result


def failed(result: Module | BuildError) -> BuildError:
    assert isinstance(result, BuildError)
    return result


def test_a_module_is_built_once(context: BuildContext, said: list[str], tmp_path: Path) -> None:
    headers = tiny_kernel(tmp_path)
    module = built(build_modules(context, headers, [tiny()])[0])
    assert module.name == "lab_tiny"
    symbols = subprocess.run(["nm", module.file], check=True, capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in symbols.splitlines()} >= {"tiny", "shared"}
    assert module.sources is not None
    assert {path.name: path.read_text() for path in module.sources.iterdir()} == tiny().files
    assert said == ["building lab_tiny for debian-amd64"]
    (headers.headers_makefile).unlink()
    assert build_modules(context, headers, [tiny()]) == [module]
    assert len(said) == 1


def test_what_a_compiler_takes_is_asked_once(context: BuildContext, tmp_path: Path) -> None:
    """What it refuses is asked each time: a full disk must not decide how all later modules are compiled."""
    kernel, asked, answers = tiny_kernel(tmp_path), tmp_path / "asked", tmp_path / "answers"
    takes, refuses = f"echo 'takes  it' >> {asked}", f"echo refuses >> {asked}; false"
    with kernel.headers_makefile.open("a") as makefile:
        makefile.write(f"$(shell echo $(call try-run,{takes},yes,no) $(call try-run,{refuses},yes,no) >> {answers})\n")
    for text in ("int tiny(void) { return 1; }\n", "int tiny(void) { return 2; }\n"):
        built(build_modules(context, kernel, [tiny(**{"lab_tiny_main.c": text})])[0])
    assert answers.read_text().splitlines() == ["yes no"] * 3
    assert asked.read_text().splitlines() == ["takes  it", *["refuses"] * 3]


def test_another_source_or_kernel_is_another_module(context: BuildContext, tmp_path: Path) -> None:
    headers = tiny_kernel(tmp_path)
    other_source = tiny(**{"shared.h": "int shared(void); /* other */\n"})
    keys = [built(module).key for module in build_modules(context, headers, [tiny(), other_source, tiny()])]
    assert keys[0] == keys[2] != keys[1]
    (elsewhere,) = build_modules(context, replace(headers, key="b-key"), [tiny()])
    assert built(elsewhere).key not in keys


def test_an_object_that_modules_share_is_compiled_once(context: BuildContext, tmp_path: Path) -> None:
    """It is one object where all is equal that it is made from: its texts, the flags, the kernel, the module's name.

    A Kbuild that says more than that has objects of its own: once a trial of djprobe's shared one with a header of its
    own in it.
    """
    headers = tiny_kernel(tmp_path)
    helper = '#include "shared.h"\nint helper(void) { return sizeof(WORD); }\n'
    kbuild = "obj-m := {0}.o\n{0}-y := lab_tiny_main.o helper.o stub.o\n"
    shared = {
        "helper.c": helper,
        "shared.h": "int shared(void);\n#define WORD int\n",
        "Kbuild": kbuild.format("lab_tiny"),
    }
    source, other_source = tiny(**shared), tiny(**shared, **{"lab_tiny_main.c": "int tiny(void) { return 2; }\n"})
    wider = tiny(**{**shared, "shared.h": "int shared(void);\n#define WORD long\n"})

    def objects() -> set[str]:
        return {artifact.label for artifact in context.cache.artifacts() if artifact.kind == "module-objects"}

    def compiled(source: ModuleSource) -> list[str]:
        before = set(context.cache.root.glob("module-objects/*"))
        built(build_modules(context, headers, [source])[0])
        return sorted(
            file.name
            for folder in set(context.cache.root.glob("module-objects/*")) - before
            for file in folder.glob("*.o")
        )

    assert compiled(source) == ["helper.o", "stub.o"]
    assert objects() == {"helper.o for debian-amd64", "stub.o for debian-amd64"}
    assert compiled(other_source) == []
    assert compiled(wider) == ["helper.o"]
    named = {"helper.c": 'int helper(void) { return sizeof("KBUILD_MODNAME"); }\n'}
    assert compiled(tiny(**shared | named)) == ["helper.o"]
    again = ModuleSource("lab_other", {**other_source.files, **named, "Kbuild": kbuild.format("lab_other")})
    assert compiled(again) == ["helper.o", "lab_tiny_main.o"]
    # A user's file may print its module's name by the kernel's own macros.
    mine = {"stub.S": tmp_path / "stub.S"}
    assert compiled(replace(again, origins=mine)) == []  # its module is there
    assert compiled(replace(again, files={**again.files, "lab_tiny_main.c": "int tiny;\n"}, origins=mine)) == [
        "lab_tiny_main.o",
        "stub.o",
    ]
    assert compiled(tiny(**{**shared, "Kbuild": f"{shared['Kbuild']}ccflags-y := -O2\n"})) == ["helper.o", "stub.o"]
    for flags in ("CFLAGS_helper.o := -DWORD=char", "ccflags-y := -include $(src)/shared.h", "lab_tiny-y += more.o"):
        assert tiny(**{**shared, "Kbuild": f"{shared['Kbuild']}{flags}\n"}).parts() == {}
    warned = {"helper.c": "static int unused(void) { return 1; }\nint helper(void) { return 0; }\n"}
    first, second = (
        built(build_modules(context, headers, [tiny(**shared | warned | {"lab_tiny_main.c": main})])[0])
        for main in ("int tiny(void) { return 3; }\n", "int tiny(void) { return 4; }\n")
    )
    assert "unused" in first.warnings[0]
    assert second.warnings == first.warnings


def test_module_that_does_not_compile_is_reported_with_its_line(context: BuildContext, tmp_path: Path) -> None:
    broken = tiny(**{"lab_tiny_main.c": '#include "shared.h"\n\nint tiny(void) { return shared( }\n'})
    module, result = build_modules(context, tiny_kernel(tmp_path), [tiny(), broken])
    assert built(module).file.is_file()
    error = failed(result)
    place, _, line = error.where.rpartition(":")
    assert line == "3"
    assert Path(place).read_text() == broken.files["lab_tiny_main.c"]
    assert error.detail[0].startswith(f"{error.where}:")
    assert "error: expected" in error.detail[0]
    assert "lab_tiny does not build" in error.what
    # Nothing half-built is taken for a module the next time.
    failed(build_modules(context, tiny_kernel(tmp_path / "again"), [broken])[0])


def test_an_object_that_is_missing_is_reported(context: BuildContext, tmp_path: Path) -> None:
    kbuild = tiny().files["Kbuild"].replace("stub.o", "stub.o absent.o")
    error = failed(build_modules(context, tiny_kernel(tmp_path), [tiny(Kbuild=kbuild)])[0])
    assert any("absent.o" in line for line in error.detail)
    assert Path(error.where).is_dir()


def test_headers_in_a_path_with_a_space(context: BuildContext, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"no module can be built with .*/my cache/.*: its path has a space") as refused:
        build_modules(context, tiny_kernel(tmp_path / "my cache"), [tiny()])
    assert refused.value.hint == "set ORCHESTRATOR_CACHE to another folder"


def test_the_options_of_a_make_around_us_do_not_matter(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKEFLAGS", "n")
    assert built(build_modules(context, tiny_kernel(tmp_path), [tiny()])[0]).file.is_file()


# Is it said of a user's tree, before anything is built in it, why no module can be, or may not be?

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
        (CLANG, "", "built by clang 16.0.6, which this host does not", "apt-get install clang-16, or build it again"),
        (CLANG | {"CONFIG_LD_IS_LLD": "y"}, "", "built by clang 16.0.6 and ld.lld", "clang-16 lld-16 llvm-16, or"),
        (GCC | {"CONFIG_MODULE_SIG_FORCE": "y"}, "", "accepts only signed modules", "scripts/config -d MODULE_SIG_F"),
        (
            GCC | {"CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY": "y"},
            "",
            "only signed modules (CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY)",
            "scripts/config -d LOCK_DOWN_KERNEL_FORCE_INTEGRITY, and build it again",
        ),
        (
            OTHER_GCC | STACKLEAK,
            "",
            "its gcc plugins need gcc 13.3.0",
            "install that compiler as gcc-13",
        ),
        (
            OTHER_GCC | RANDSTRUCT,
            "",
            "its gcc plugins need gcc 13.3.0",
            "scripts/config -d GCC_PLUGINS",
        ),
        (GCC | STACKLEAK, "scripts/gcc-plugins/stackleak_plugin.so", "are not built", "make -C {tree} modules"),
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
