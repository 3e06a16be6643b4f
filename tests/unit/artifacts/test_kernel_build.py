# SPDX-License-Identifier: GPL-2.0-only
"""Is a kernel built once, from what a similar one left, out of a patched copy of its source; and are failures reported?

The kernel here is a toy with two files; make, the compiler and patch are the real ones.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from host_toolchain import HOST_TOOLCHAIN

from orchestrator.artifacts import kernel_build
from orchestrator.artifacts import kernel_build as source_of
from orchestrator.artifacts.cache import Artifact, BuildContext, Cache
from orchestrator.artifacts.kernel_build import built_kernel, kernel_source
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.errors import BuildError, HostError
from orchestrator.paths import data_dir

PACKAGE = "linux-source-toy"
CHOSEN = {
    "name": PACKAGE,
    "architecture": "all",
    "version": "1-1",
    "sha256": "a" * 64,
    "depends": "",
    "suite": "bookworm",
}
MAKEFILE = """\
allnoconfig:
\tcp $(O)/all.config $(O)/.config
\tln -sfn $(CURDIR) $(O)/source
bzImage modules: $(O)/vmlinux
$(O)/vmlinux: $(O)/entry.o $(O)/idle.o
\tmkdir -p $(O)/tools && cp $(O)/idle.o $(O)/tools
\t$(CC) -g -c $(CURDIR)/entry.c -o $@
$(O)/%.o: %.c
\t@echo '  CC      $*.o'
\t$(CC) -I$(CURDIR) -c $< -o $@
\t@echo 'cmd_$@ := $(CC) -c $(CURDIR)/$<' > $(O)/.$*.o.cmd
"""
PATCH = """\
Another number

--- a/entry.c
+++ b/entry.c
@@ -1,1 +1,1 @@
-int entry(void) { return 1; }
+int entry(void) { return 2; }
"""
BROKEN = PATCH.replace("return 2", "return nonsense")
STALE = PATCH.replace("return 1", "return 7")


@pytest.fixture
def context(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> BuildContext:
    """A cache with the toy's package, as if it had been fetched, and patches for it."""
    tree = tmp_path / "tree" / PACKAGE
    tree.mkdir(parents=True)
    (tree / "Makefile").write_text(MAKEFILE)
    (tree / "entry.c").write_text("int entry(void) { return 1; }\n")
    (tree / "idle.c").write_text("int idle(void) { return 0; }\n")
    patches = tmp_path / "images/patches"
    patches.mkdir(parents=True)
    for name, text in {"number": PATCH, "broken": BROKEN, "stale": STALE}.items():
        (patches / f"{name}.patch").write_text(text)
    (tmp_path / "images/kernels").symlink_to(data_dir("images") / "kernels")
    (tmp_path / "kmods").mkdir()
    (tmp_path / "kmods/shared.c").write_text("int shared(void) { return 3; }\n")
    monkeypatch.setattr(source_of, "data_dir", lambda name: tmp_path / name)
    monkeypatch.setattr(kernel_build, "guest_toolchain", lambda context: HOST_TOOLCHAIN)
    cache = Cache(tmp_path / "cache")
    (cache.root / "pins").mkdir(parents=True)
    (cache.root / "pins" / f"{PACKAGE}.json").write_text(json.dumps([CHOSEN]))

    def fetch(folder: Path) -> None:
        (folder / "usr/src").mkdir(parents=True)
        with tarfile.open(folder / f"usr/src/{PACKAGE}.tar.xz", "w:xz") as archive:
            archive.add(tree, arcname=PACKAGE)

    inputs = {"packages": {f"{PACKAGE}:all": [CHOSEN["version"], CHOSEN["sha256"]]}}
    cache.obtain("debian", inputs, PACKAGE, fetch)
    return BuildContext(cache, say=said.append)


def toy(*patches: str, fragments: tuple[str, ...] = ("nopreempt",), files: dict[str, str] | None = None) -> KernelSpec:
    return KernelSpec(
        name="toy" + "".join(f"-{patch}" for patch in patches),
        title="a toy",
        arch="i386",
        source=PACKAGE,
        fragments=list(fragments),
        patches=list(patches),
        files=files or {},
        entry_offset=0,
    )


def test_a_patched_source_is_a_copy_that_leaves_the_plain_one_alone(context: BuildContext) -> None:
    plain = kernel_source(context, PACKAGE).path / "linux"
    patched = kernel_source(context, PACKAGE, ["number"]).path / "linux"
    assert (plain / "entry.c").read_text() == "int entry(void) { return 1; }\n"
    assert (patched / "entry.c").read_text() == "int entry(void) { return 2; }\n"
    assert (patched / "idle.c").samefile(plain / "idle.c")  # no disk, and the same time
    assert kernel_source(context, PACKAGE, ["number"]).path / "linux" == patched


def test_an_option_that_was_not_taken_ends_the_build(context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_build, "read_config", lambda file: {})
    with pytest.raises(BuildError, match=r"^the configuration of toy is not what its fragments say") as refused:
        built_kernel(context, toy())
    assert "CONFIG_PREEMPT_NONE: wanted y, got off" in refused.value.detail


def test_a_missing_package_is_named_before_anything_is_unpacked(
    context: BuildContext, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match=f"the source {PACKAGE} needs xz-utils patch ") as caught:
        kernel_source(context, PACKAGE)
    assert " xz-utils " in caught.value.hint
    assert said == []


def test_files_of_the_lab_s_modules_are_added_to_a_copy(context: BuildContext, tmp_path: Path) -> None:
    plain = kernel_source(context, PACKAGE)
    patched = kernel_source(context, PACKAGE, ["number"])
    added = kernel_source(context, PACKAGE, ["number"], {"lab/deep/other.c": "shared.c"})
    assert (added.path / "linux/lab/deep/other.c").read_text() == "int shared(void) { return 3; }\n"
    assert (added.path / "linux/entry.c").read_text() == "int entry(void) { return 2; }\n"
    assert not (plain.path / "linux/lab").exists()
    assert kernel_source(context, PACKAGE, ["number"], {"lab/deep/other.c": "shared.c"}).key == added.key
    (tmp_path / "kmods/shared.c").write_text("int shared(void) { return 4; }\n")
    changed = kernel_source(context, PACKAGE, ["number"], {"lab/deep/other.c": "shared.c"})
    assert len({plain.key, patched.key, added.key, changed.key}) == 4
    alone = kernel_source(context, PACKAGE, files={"other.c": "shared.c"})
    assert sorted(path.name for path in (alone.path / "linux").iterdir()) == [
        "Makefile",
        "entry.c",
        "idle.c",
        "other.c",
    ]


def test_a_source_without_files_keeps_its_key(context: BuildContext) -> None:
    patched = kernel_source(context, PACKAGE, ["number"], {})
    assert set(patched.inputs) == {"package", "patches"}
    assert set(kernel_source(context, PACKAGE, (), {}).inputs) == {"package"}


def test_a_file_does_not_take_the_place_of_one_of_the_source_s(context: BuildContext) -> None:
    with pytest.raises(BuildError, match=r"entry\.c cannot be added to the source: there is such a file"):
        kernel_source(context, PACKAGE, files={"entry.c": "shared.c"})
    assert (kernel_source(context, PACKAGE).path / "linux/entry.c").read_text() == "int entry(void) { return 1; }\n"


def test_a_kernel_is_made_with_its_files(context: BuildContext) -> None:
    plain = built_kernel(context, toy())
    filed = built_kernel(context, toy(files={"shared.c": "shared.c"}))
    assert filed.key != plain.key
    assert (filed.path / "build/source/shared.c").is_file()


def test_a_patch_that_does_not_apply_is_reported_with_its_output(context: BuildContext) -> None:
    with pytest.raises(BuildError, match=r"stale\.patch does not apply to linux-source-toy") as refused:
        kernel_source(context, PACKAGE, ["stale"])
    assert any("Hunk #1 FAILED" in line for line in refused.value.detail)
    assert context.cache.get("kernel-source", {"package": "none"}) is None
    assert [a.label for a in context.cache.artifacts() if a.kind == "kernel-source"] == [PACKAGE]


def test_a_kernel_is_built_once_and_a_variant_from_what_it_left(context: BuildContext, said: list[str]) -> None:
    plain = built_kernel(context, toy())
    assert said[-1] == "building toy: 0.4 GB, some 10 minutes of one CPU"
    said.clear()
    assert built_kernel(context, toy()) == plain
    assert said == []
    hooked = built_kernel(context, toy("number"))
    assert said == ["building toy-number from what toy left: 0.4 GB, up to 10 minutes of one CPU"]
    assert hooked.key != plain.key
    changed = {
        name: (hooked.path / "build" / name).stat().st_mtime_ns != (plain.path / "build" / name).stat().st_mtime_ns
        for name in ("entry.o", "idle.o")
    }
    assert changed == {"entry.o": True, "idle.o": False}
    assert (hooked.path / "build/source").readlink() == kernel_source(context, PACKAGE, ["number"]).path / "linux"


def test_a_variant_is_not_made_from_a_damaged_kernel(context: BuildContext, said: list[str]) -> None:
    plain = built_kernel(context, toy())
    idle = plain.path / "build/idle.o"
    sound = idle.read_bytes()
    idle.write_bytes(sound[:-4])
    said.clear()
    later = BuildContext(Cache(context.cache.root, say=said.append), say=said.append)
    hooked = built_kernel(later, toy("number"))
    assert "kernels toy in the cache is damaged (build/idle.o: has " in said[0]
    assert said[1] == "building toy-number: 0.4 GB, some 10 minutes of one CPU"
    assert (hooked.path / "build/idle.o").read_bytes() == sound


@pytest.mark.parametrize(("first", "second"), [((), ("number",)), (("number",), ())])
def test_what_was_compiled_after_the_other_source_was_made_is_not_taken_for_it(
    context: BuildContext, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    for patches in (first, second):
        kernel_source(context, PACKAGE, patches)
    made = [(built_kernel(context, toy(*patches)).path / "build/entry.o").read_bytes() for patches in (first, second)]
    assert made[0] != made[1]


def test_what_differs_in_anything_that_counts_is_another_kernel(context: BuildContext) -> None:
    keys = {
        built_kernel(context, spec).key
        for spec in (toy(), toy("number"), toy(fragments=("nopreempt", "noftrace")), toy(fragments=("preempt",)))
    }
    assert len(keys) == 4
    recorded = {str(a.inputs["compiler"]) for a in context.cache.artifacts() if a.kind == "kernels"}
    assert recorded == {HOST_TOOLCHAIN.version}


def test_of_a_kernel_with_types_neither_objects_nor_debug_information_are_kept(context: BuildContext) -> None:
    plain, typed = built_kernel(context, toy()), built_kernel(context, toy(fragments=("nopreempt", "bpf")))

    def left(kernel: Artifact) -> set[str]:
        build = kernel.path / "build"
        return {str(path.relative_to(build)) for pattern in ("*.o", "vmlinux") for path in build.rglob(pattern)}

    assert left(plain) == {"entry.o", "idle.o", "tools/idle.o", "vmlinux"}
    assert left(typed) == {"tools/idle.o", "vmlinux"}
    images = [(kernel.path / "build/vmlinux").read_bytes() for kernel in (plain, typed)]
    assert [b".debug_info" in image for image in images] == [True, False]
    assert [b"entry\0" in image for image in images] == [True, True]


def test_a_kernel_with_types_is_made_from_no_other_and_no_other_from_it(context: BuildContext, said: list[str]) -> None:
    built_kernel(context, toy(fragments=("nopreempt", "bpf")))
    built_kernel(context, toy())
    built_kernel(context, toy("number", fragments=("nopreempt", "bpf")))
    built_kernel(context, toy("number"))
    assert [line for line in said if line.startswith("building")] == [
        "building toy: 0.4 GB, some 10 minutes of one CPU",
        "building toy: 0.4 GB, some 10 minutes of one CPU",
        "building toy-number: 0.4 GB, some 10 minutes of one CPU",
        "building toy-number from what toy left: 0.4 GB, up to 10 minutes of one CPU",
    ]


def test_types_need_their_maker(context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(":"):
        for program in Path(folder).iterdir():
            if program.name != "pahole" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    built_kernel(context, toy())
    needs = r"building toy, which has type information \(BTF\), needs dwarves"
    with pytest.raises(HostError, match=needs) as caught:
        built_kernel(context, toy(fragments=("nopreempt", "bpf")))
    assert caught.value.hint.endswith("install -y --no-install-recommends dwarves")


def test_a_broken_build_shows_the_compiler_s_words_and_leaves_nothing(context: BuildContext) -> None:
    with pytest.raises(BuildError, match="toy-broken does not build") as refused:
        built_kernel(context, toy("broken"))
    assert any("entry.c" in line and "nonsense" in line and "error" in line for line in refused.value.detail)
    assert [a for a in context.cache.artifacts() if a.kind == "kernels"] == []


def test_offline_neither_unpacks_nor_builds(context: BuildContext, said: list[str]) -> None:
    offline = BuildContext(context.cache, offline=True, say=said.append)
    with pytest.raises(HostError, match="the source linux-source-toy is not in the cache"):
        built_kernel(offline, toy())
    kernel_source(context, PACKAGE)
    with pytest.raises(HostError, match="toy is not in the cache"):
        built_kernel(offline, toy())
    plain = built_kernel(context, toy())
    assert built_kernel(offline, toy()) == plain
    with pytest.raises(HostError, match="the source linux-source-toy with number is not in the cache"):
        built_kernel(offline, toy("number"))
