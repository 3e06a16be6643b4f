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
from orchestrator.artifacts import kernel_source as source_of
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.build_relocation import relocate
from orchestrator.artifacts.cache import Artifact, Cache
from orchestrator.artifacts.kernel_build import built_kernel
from orchestrator.artifacts.kernel_config import features, merged, not_granted
from orchestrator.artifacts.kernel_source import build_source_choice, kernel_source, link_chosen
from orchestrator.catalog import kernels as catalog_kernels
from orchestrator.catalog.kernels import KernelSpec, kernel, kernels, read_config
from orchestrator.errors import BuildError, ConfigError, HostError
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
    monkeypatch.setattr(source_of, "data_file", lambda name: tmp_path / name)
    monkeypatch.setattr(catalog_kernels, "data_dir", lambda name: tmp_path / name)
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
    added = kernel_source(context, PACKAGE, ["number"], {"lab/deep/other.c": "kmods/shared.c"})
    assert (added.path / "linux/lab/deep/other.c").read_text() == "int shared(void) { return 3; }\n"
    assert (added.path / "linux/entry.c").read_text() == "int entry(void) { return 2; }\n"
    assert not (plain.path / "linux/lab").exists()
    assert kernel_source(context, PACKAGE, ["number"], {"lab/deep/other.c": "kmods/shared.c"}).key == added.key
    (tmp_path / "kmods/shared.c").write_text("int shared(void) { return 4; }\n")
    changed = kernel_source(context, PACKAGE, ["number"], {"lab/deep/other.c": "kmods/shared.c"})
    assert len({plain.key, patched.key, added.key, changed.key}) == 4
    alone = kernel_source(context, PACKAGE, files={"other.c": "kmods/shared.c"})
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
    with pytest.raises(BuildError, match=r"entry\.c cannot be added to the source: the file exists already"):
        kernel_source(context, PACKAGE, files={"entry.c": "kmods/shared.c"})
    assert (kernel_source(context, PACKAGE).path / "linux/entry.c").read_text() == "int entry(void) { return 1; }\n"


def test_a_kernel_is_made_with_its_files(context: BuildContext) -> None:
    plain = built_kernel(context, toy())
    filed = built_kernel(context, toy(files={"shared.c": "kmods/shared.c"}))
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


def test_a_variant_is_not_made_from_a_damaged_kernel(
    context: BuildContext, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plain = built_kernel(context, toy())
    idle = plain.path / "build/idle.o"
    sound = idle.read_bytes()
    idle.write_bytes(sound[:-4])
    said.clear()
    later = BuildContext(Cache(context.cache.root), say=said.append)
    hooked = built_kernel(later, toy("number"))
    assert "kernels toy in the cache is damaged (build/idle.o: has " in capsys.readouterr().err
    assert said[0] == "building toy-number: 0.4 GB, some 10 minutes of one CPU"
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


def test_build_with_types_keeps_neither_objects_nor_debug_information(context: BuildContext) -> None:
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


# Are a kernel's fragments put together, checked and read back as they stand?


def test_every_lab_kernel_has_all_its_fragments() -> None:
    for spec in kernels().values():
        assert (spec.packages is None) == (spec.source is not None) == bool(spec.fragments)
        if spec.fragments:
            assert "CONFIG_KPROBES=y" in merged(spec)


def test_another_version_has_every_kernel_of_the_first() -> None:
    named = kernels()
    other = {name.removesuffix("@6.12") for name in named if name.endswith("@6.12")}
    usual = {name for name, spec in named.items() if spec.version == "6.1" and "@" not in name}
    assert other == usual - {"debian-686", "debian-686-pae"}
    assert named["lab-i386-up@6.12"].source == "linux-source-6.12"
    assert "CONFIG_BASE_FULL=y" in merged(named["lab-i386-up"])
    assert "CONFIG_BASE_FULL" not in merged(named["lab-i386-up@6.12"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lab-i386-up-hook@7.2", "kernel 'lab-i386-up-hook' exists for Linux 6.1, 6.12 or 7.3, not for 7.2"),
        (
            "lab-i386-smp-kpcache@newest",
            "kernel 'lab-i386-smp-kpcache' exists for Linux 6.1, 6.12 or 7.3, not for newest",
        ),
        ("lab-i386-up@latest", "kernel 'lab-i386-up' exists for Linux 6.1 or 6.12, not for latest"),
        ("lab-i386-up@newest", "kernel 'lab-i386-up' exists for Linux 6.1 or 6.12, not for newest"),
        ("debian-amd64@7", "kernel 'debian-amd64' exists for Linux 6.1 or 6.12, not for 7"),
    ],
)
def test_a_version_that_a_kernel_has_not_is_named(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kernel(name)
    assert refused.value.what == words


def test_a_version_without_an_entry_is_as_the_nearest_before_it() -> None:
    newer, older = kernel("debian-amd64@7.3"), kernel("debian-amd64@6.5")
    assert (newer.version, newer.origin, newer.is_searched) == ("7.3", "linux-image-7.3*-amd64", True)
    assert (newer.entry_offset, newer.kernel_parameters) == (9, ["randomize_kstack_offset=off"])
    assert (older.entry_offset, older.kernel_parameters) == (5, [])
    assert newer.title == "Debian's x86_64 kernel, Linux 7.3"
    assert kernel("debian-amd64@newest").entry_offset == 9
    assert kernel("debian-amd64@6.1") == kernel("debian-amd64")
    assert kernel("debian-amd64@6.12") == kernels()["debian-amd64@6.12"]
    lab, known = kernel("lab-x86_64-smp-bpf@7.3"), kernel("lab-x86_64-smp-bpf@6.12")
    assert (lab.source, lab.without) == ("linux-source-7.3", [])
    assert [fragment for fragment in lab.fragments if fragment != "lazy"] == known.fragments
    wanted = merged(lab)
    assert wanted.index("CONFIG_PREEMPT_LAZY=y") < wanted.index("CONFIG_PREEMPT_NONE=y")
    assert lab.title.startswith("x86_64 for several CPUs, not or lazily preemptible, with the function tracer, ")
    assert "CONFIG_KUNIT_AUTORUN_ENABLED=y" in merged(kernel("lab-i386-up-kunit@7.3"))


def test_a_patched_kernel_takes_the_patches_of_its_version() -> None:
    assert kernel("lab-i386-smp-kpcache@7.3").patch_files == [
        "kprobe-hash-bits",
        "kprobe-cache",
        "kprobe-cache-aggregator",
        "kprobe-cache-interrupts",
        "7.3/kprobe-cache-interrupts",
        "kprobe-cache-nmi",
    ]
    assert kernel("lab-i386-smp-kpcache@6.12").patch_files == kernel("lab-i386-smp-kpcache").patch_files
    assert kernel("lab-i386-up-hook@6.12").patch_files == ["hook", "6.1+6.12/hook", "6.12/hook"]
    assert kernel("lab-i386-up-hook").origin == "built from linux-source-6.1 + hook.patch"
    folder = data_dir("images") / "patches"
    used = set()
    for spec in kernels().values():
        for version in spec.patched:
            used |= set(kernel(f"{spec.name.partition('@')[0]}@{version}").patch_files)
    assert {str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.patch")} == used


def test_a_later_fragment_has_the_last_word() -> None:
    assert not_granted("CONFIG_A=y\n# CONFIG_A is not set\n", {}) == []
    assert not_granted("# CONFIG_A is not set\nCONFIG_A=m\n", {"CONFIG_A": "m"}) == []


@pytest.mark.parametrize(
    ("wanted", "config", "words"),
    [
        ("CONFIG_A=y\n", {}, "CONFIG_A: wanted y, got off"),
        ("# CONFIG_A is not set\n", {"CONFIG_A": "y"}, "CONFIG_A: wanted off, got y"),
        ("CONFIG_HZ=100\n", {"CONFIG_HZ": "250"}, "CONFIG_HZ: wanted 100, got 250"),
    ],
)
def test_an_option_that_was_not_taken_is_named(wanted: str, config: dict[str, str], words: str) -> None:
    assert not_granted(wanted, config) == [words]


def test_what_another_version_has_instead_is_listed() -> None:
    wanted = "CONFIG_A=y\nCONFIG_GONE=y\n# CONFIG_B is not set\n"
    listed = not_granted(wanted, {"CONFIG_A": "y", "CONFIG_B": "y"})
    assert listed == ["CONFIG_GONE: wanted y, got off", "CONFIG_B: wanted off, got y"]


def test_a_configuration_is_read_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / ".config"
    file.write_text('# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_NAME="a b"\n')
    assert read_config(file) == {"CONFIG_B": "y", "CONFIG_NAME": '"a b"'}


@pytest.mark.parametrize(
    ("config", "booster", "preemption"),
    [
        ({"CONFIG_KPROBES": "y", "CONFIG_PREEMPT_NONE": "y"}, "yes", "none"),
        ({"CONFIG_KPROBES": "y", "CONFIG_PREEMPT": "y", "CONFIG_PREEMPTION": "y"}, "no", "full"),
        ({"CONFIG_KPROBES": "y", "CONFIG_PREEMPT_VOLUNTARY": "y"}, "yes", "voluntary"),
        (
            {
                "CONFIG_KPROBES": "y",
                "CONFIG_PREEMPT_VOLUNTARY": "y",
                "CONFIG_PREEMPT_DYNAMIC": "y",
                "CONFIG_PREEMPTION": "y",
            },
            "no",
            "dynamic",
        ),
        ({"CONFIG_KPROBES": "y", "CONFIG_PREEMPT_LAZY": "y", "CONFIG_PREEMPTION": "y"}, "no", "lazy"),
        ({"CONFIG_PREEMPT_LAZY": "y", "CONFIG_PREEMPT_DYNAMIC": "y", "CONFIG_PREEMPTION": "y"}, "no", "dynamic"),
        ({"CONFIG_PREEMPT": "y", "CONFIG_PREEMPT_RT": "y", "CONFIG_PREEMPTION": "y"}, "no", "real time"),
        ({}, "no", "none"),
    ],
)
def test_what_a_kernel_can_do_follows_from_its_configuration(
    config: dict[str, str], booster: str, preemption: str
) -> None:
    can = features(config)
    assert (can["booster"], can["preemption"]) == (booster, preemption)


def test_how_kprobes_are_found_follows_from_its_configuration() -> None:
    patched = features({"CONFIG_KPROBE_HASH_BITS": "12", "CONFIG_KPROBE_CACHE": "y"})
    assert (patched["kprobe lists"], patched["kprobe cache"]) == ("2^12", "yes")
    assert (features({"CONFIG_LAB_MARKERS": "y"})["markers"], features({})["markers"]) == ("yes", "no")
    assert (features({})["kprobe lists"], features({})["kprobe cache"]) == ("2^6", "no")


# Does a build tree that changes its source forget the old one, and nothing else?


def test_a_build_tree_belongs_to_its_new_source(tmp_path: Path) -> None:
    old, new, build = tmp_path / "old/linux", tmp_path / "new/linux", tmp_path / "build"
    for folder in (old, new, build / "kernel"):
        folder.mkdir(parents=True)
    command = build / "kernel/.fork.o.cmd"
    command.write_text(f"cmd := gcc -I{old}/include {old}/kernel/fork.c\ndeps := {old}-other/x.h\n")
    user_path = build / "kernel/.tool.o.cmd"
    user_path.write_text(f"cmd_{tmp_path}/elsewhere/tool.o := gcc {tmp_path}/elsewhere-not/x.c\n")
    (build / "Makefile").write_text(f"include {old}/Makefile\n")
    (build / "include").mkdir()
    (build / "include/auto.conf.cmd").write_text(f"root = {old}\n")
    binary = build / "kernel/fork.o"
    binary.write_bytes(f"{old}/kernel/fork.c".encode())
    os.utime(binary, (1, 1))
    (build / "source").symlink_to(old)

    relocate(build, tmp_path / "elsewhere", old, new)

    assert command.read_text() == f"cmd := gcc -I{new}/include {new}/kernel/fork.c\ndeps := {old}-other/x.h\n"
    assert user_path.read_text() == f"cmd_{build}/tool.o := gcc {tmp_path}/elsewhere-not/x.c\n"
    assert (build / "Makefile").read_text() == f"include {new}/Makefile\n"
    assert (build / "include/auto.conf.cmd").read_text() == f"root = {new}\n"
    assert (build / "source").readlink() == new
    # What was made stays as it is: make decides by the times.
    assert binary.read_bytes() == f"{old}/kernel/fork.c".encode()
    assert binary.stat().st_mtime == 1


def test_what_came_from_a_file_that_differs_is_made_again(tmp_path: Path) -> None:
    old, new, build = tmp_path / "old", tmp_path / "new", tmp_path / "build"
    for folder in (old, new, build):
        (folder / "kernel").mkdir(parents=True)
    for name in ("same.c", "changed.c", "gone.h"):
        (old / "kernel" / name).write_text(name)
    (new / "kernel/same.c").hardlink_to(old / "kernel/same.c")
    (new / "kernel/changed.c").write_text("changed.c")  # the same text, yet who knows
    for name, source in {"same": "same.c", "changed": "changed.c", "wanting": "gone.h", "changed.c": "same.c"}.items():
        (build / f"kernel/{name}.o").touch()
        (build / f"kernel/.{name}.o.cmd").write_text(f"deps := \\\n  {old}/kernel/{source} \\\n")
    (build / "auto.conf").touch()
    (build / "auto.conf.cmd").write_text(f"deps := {old}/kernel/changed.c\n")

    relocate(build, tmp_path / "elsewhere", old, new)

    left = {file.name for file in build.rglob("*") if file.is_file() and file.suffix != ".cmd"}
    assert left == {"same.o", "changed.c.o", "auto.conf"}


def test_the_same_source_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.cmd"
    file.write_text(f"cmd := {tmp_path}/a.c\n")
    os.utime(file, (1, 1))
    relocate(tmp_path, tmp_path, tmp_path, tmp_path)
    assert file.stat().st_mtime == 1


# Is of the kernel's source taken what a build needs, its build system whole, and nothing changed in the source?


@pytest.mark.parametrize(
    ("folder", "names", "taken"),
    [
        (".", ["Makefile", "Kbuild", "Kconfig", "COPYING"], ["Makefile", "Kbuild", "Kconfig", "COPYING"]),
        ("kernel/locking", ["mutex.c", "Makefile"], ["mutex.c", "Makefile"]),
        ("arch", ["Kconfig"], ["Kconfig"]),
        ("arch/x86/kernel", ["setup.c", "vmlinux.lds.S"], ["setup.c", "vmlinux.lds.S"]),
        ("arch/x86/boot/dts", ["a.dts"], []),
        ("arch/arm", ["Kconfig", "Kconfig.debug", "Makefile", "head.S"], ["Kconfig", "Kconfig.debug", "Makefile"]),
        ("arch/arm64/kernel", ["setup.c", "Makefile"], ["Makefile"]),
        ("net", ["Kconfig", "socket.c"], ["Kconfig"]),
        ("net/ipv4", ["Kconfig", "tcp.c"], ["Kconfig"]),
        ("include/net", ["tcp.h"], ["tcp.h"]),
        ("drivers/net/ethernet", ["Kconfig", "dummy.c"], ["Kconfig"]),
        ("drivers/char", ["mem.c"], ["mem.c"]),
        ("drivers/clk/x86", ["clk.c"], []),
        ("drivers/clocksource", ["i8253.c"], ["i8253.c"]),
        ("fs/ext4", ["super.c", "Makefile"], ["Makefile"]),
        ("fs/ext4x", ["super.c"], ["super.c"]),
        ("lib", ["README.rst", "sort.c"], ["sort.c"]),
    ],
)
def test_the_chosen_files(folder: str, names: list[str], taken: list[str]) -> None:
    assert build_source_choice().takes(folder, names) == taken


def test_the_source_is_that_of_the_lab_s_kernels() -> None:
    default = kernels()["lab-i386-up"]
    assert default.source == build_source_choice().package


def test_the_tree_shares_its_files_with_the_source(tmp_path: Path) -> None:
    source, tree = tmp_path / "source", tmp_path / "tree"
    files = ("Makefile", "kernel/fork.c", "net/Kconfig", "net/socket.c", "arch/mips/Kbuild", "sound/core/pcm.c")
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "kernel/link.c").symlink_to("nowhere.c")
    link_chosen(build_source_choice(), source, tree)
    found = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if not path.is_dir()}
    assert found == {"Makefile", "kernel/fork.c", "kernel/link.c", "net/Kconfig", "arch/mips/Kbuild"}
    assert (tree / "sound/core").is_dir()
    assert (tree / "kernel/link.c").readlink() == Path("nowhere.c")
    assert (tree / "kernel/fork.c").samefile(source / "kernel/fork.c")
    assert all((source / name).read_text() == name for name in files)
