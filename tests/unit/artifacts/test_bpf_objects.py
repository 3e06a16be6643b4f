# SPDX-License-Identifier: GPL-2.0-only
"""Is a file that holds no BPF programs refused before a guest starts, and is a missing compiler named?"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from host_toolchain import a_kernel

from orchestrator.artifacts import bpf_objects, libbpf_headers
from orchestrator.artifacts.bpf_objects import bpf_object
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.libbpf_headers import newer_libbpf
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import BuildError, HostError, UnsupportedError

CLANG = ("clang", "-g", "-O2", "-target", "bpf", "-c")
PROGRAM = '__attribute__((section("{section}"), used)) int program(void *context) {{ return 0; }}\n'


@pytest.fixture
def kernel() -> Kernel:
    """A kernel without the options of any section."""
    return a_kernel("debian-amd64")


def compiled(folder: Path, text: str, *compiler: str) -> Path:
    """An object of a line of C."""
    source, target = folder / "mine.c", folder / "mine.o"
    source.write_text(text)
    subprocess.run([*compiler, str(source), "-o", str(target)], check=True)
    return target


def test_an_object_is_taken_as_it_is(context: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    file = compiled(tmp_path, PROGRAM.format(section="kprobe/vfs_read"), *CLANG)
    own_object = bpf_object(context, kernel, file)
    assert own_object.file.read_bytes() == file.read_bytes()
    assert own_object.file != file
    assert own_object.loader.stat().st_mode & 0o100


def test_a_section_that_needs_an_option_is_unsupported_without_it(
    context: BuildContext, kernel: Kernel, tmp_path: Path
) -> None:
    text = PROGRAM.format(section="kprobe.multi/vfs_read") + PROGRAM.format(section="kprobe/vfs_read").replace(
        "program", "other"
    )
    own_object = bpf_object(context, kernel, compiled(tmp_path, text, *CLANG))
    lacking = "this kernel was built without CONFIG_FPROBE; lab-x86_64-smp-bpf has it"
    reason = rf"^kprobe\.multi/vfs_read needs fprobes: {lacking}$"
    for chosen in (None, "program"):
        with pytest.raises(UnsupportedError, match=reason):
            own_object.chosen(kernel, [chosen] if chosen else [])
    assert own_object.chosen(kernel, ["other"]).programs == {"other": "kprobe/vfs_read"}


def test_programs_are_the_global_functions_with_sections(context: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    helper = "__attribute__((noinline)) int helper(int x) { return x ? x * 3 : 7; }\n"
    text = helper + "".join(
        PROGRAM.format(section=section).replace("program", name)
        for name, section in (("second", "kprobe/vfs_read"), ("first", "tp/a/b"), ("target", "kprobe"))
    )
    own_object = bpf_object(context, kernel, compiled(tmp_path, text, *CLANG))
    assert own_object.programs == {"second": "kprobe/vfs_read", "first": "tp/a/b", "target": "kprobe"}
    assert own_object.chosen(kernel, []) == own_object
    with pytest.raises(BuildError, match=r"unknown program 'secnod'.*did you mean 'second'") as refused:
        own_object.chosen(kernel, ["secnod"])
    assert refused.value.where == str(tmp_path / "mine.o")


def test_an_object_without_a_program_is_refused(context: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    for text in ("int global;\n", PROGRAM.format(section=".text")):
        with pytest.raises(BuildError, match="this object file has no program"):
            bpf_object(context, kernel, compiled(tmp_path, text, *CLANG))


@pytest.mark.parametrize("size", [0, 100, 600])
def test_truncated_object_is_refused(context: BuildContext, kernel: Kernel, tmp_path: Path, size: int) -> None:
    file = compiled(tmp_path, PROGRAM.format(section="kprobe/vfs_read"), *CLANG)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(BuildError, match="not a complete object file of BPF programs"):
        bpf_object(context, kernel, file)


def test_the_hosts_own_object_is_refused(context: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    file = compiled(tmp_path, PROGRAM.format(section="kprobe/vfs_read"), "gcc", "-c")
    with pytest.raises(BuildError, match="not a complete object file of BPF programs"):
        bpf_object(context, kernel, file)


def test_a_missing_compiler_is_named_with_its_package(
    context: BuildContext, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "mine.bpf.c"
    source.write_text(PROGRAM.format(section="kprobe/vfs_read"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match=r"mine\.bpf\.c, which is to be compiled, needs clang") as raised:
        bpf_object(context, kernel, source)
    assert "install -y --no-install-recommends clang" in raised.value.hint


def test_a_kernel_without_type_information_takes_no_source(
    context: BuildContext, kernel: Kernel, tmp_path: Path
) -> None:
    file = tmp_path / "mine.bpf.c"
    file.write_text(PROGRAM.format(section="kprobe/vfs_read"))
    reason = r"^vmlinux\.h needs type information: this kernel was built without CONFIG_DEBUG_INFO_BTF; debian-amd64"
    with pytest.raises(UnsupportedError, match=reason):
        bpf_object(context, kernel, file)


def a_tree(folder: Path, text: str) -> Path:
    """A source in a folder of its own, and a vmlinux.h that is not beside it."""
    for name in ("src", "include"):
        (folder / name).mkdir(parents=True)
    (folder / "include" / "vmlinux.h").write_text("#define FROM_INCLUDE\n")
    (folder / "include" / "mine.h").write_text("#define MINE\n")
    source = folder / "src" / "own.bpf.c"
    source.write_text(f"#include <vmlinux.h>\n{text}\n{PROGRAM.format(section='kprobe/vfs_read')}")
    return source


NEEDS = "#ifndef {0}\n#error lacks {0}\n#endif"


def test_the_users_vmlinux_h_wins_over_that_of_the_kernel(
    context: BuildContext, kernel: Kernel, tmp_path: Path
) -> None:
    source = a_tree(tmp_path / "with space", NEEDS.format("FROM_INCLUDE"))
    with pytest.raises(UnsupportedError, match="needs type information"):  # this kernel has none to make one of
        bpf_object(context, kernel, source)
    for flags in ("-I ../include", f"-I '{tmp_path}/with space/include'", "-isystem ../include"):
        assert bpf_object(context, kernel, source, flags).programs == {"program": "kprobe/vfs_read"}
    (source.parent / "vmlinux.h").write_text("#define FROM_INCLUDE\n#define BESIDE\n")
    bpf_object(context, kernel, source)
    source.write_text(source.read_text() + NEEDS.format("BESIDE"))
    bpf_object(context, kernel, source)
    with pytest.raises(BuildError, match="lacks BESIDE") as refused:  # as with a compiler: the named folder is first
        bpf_object(context, kernel, source, "-I ../include")
    assert refused.value.where.startswith(f"{source}:")


def test_flags_of_a_file_beside_the_source_are_overridden_by_the_rows(
    context: BuildContext, kernel: Kernel, tmp_path: Path
) -> None:
    source = a_tree(tmp_path, "#if X != 2 || !defined MINE\n#error wrong\n#endif")
    (source.parent / "compile_flags.txt").write_text("-I../include\n-DX=1\n-include\nmine.h\n-w\n")
    with pytest.raises(BuildError, match="wrong"):
        bpf_object(context, kernel, source)
    made = bpf_object(context, kernel, source, "-DX=2")
    assert made.programs


def test_all_that_decides_an_object_is_recorded(context: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    source = a_tree(tmp_path, "#ifdef MORE\nint more;\n#endif")
    flags = "-I ../include -include mine.h"
    (source.parent / "compile_flags.txt").write_text("-DX\n")
    made = bpf_object(context, kernel, source, flags)
    titles = {"own.bpf.c", "../include/vmlinux.h", "../include/mine.h", "compile_flags.txt", "clang's flags"}
    assert set(made.source.digests) == titles
    assert bpf_object(context, kernel, source, flags) == made
    assert bpf_object(context, kernel, source, f"{flags} -DMORE").file.read_bytes() != made.file.read_bytes()
    assert bpf_object(context, kernel, source, f"{flags} -DMORE").source.key != made.source.key
    (tmp_path / "include" / "mine.h").write_text("int mine;\n")
    changed = bpf_object(context, kernel, source, flags)
    assert (changed.source.key != made.source.key, changed.file != made.file) == (True, True)


def test_a_missing_header_names_the_option(context: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    source = a_tree(tmp_path, '#include "bits.bpf.h"')
    with pytest.raises(BuildError, match=r"'bits\.bpf\.h' file not found") as refused:
        bpf_object(context, kernel, source, "-I ../include")
    assert refused.value.where == f"{source}:2"
    hint = "name the folder that has bits.bpf.h: cost -I FOLDER, or compile_flags.txt beside the source"
    assert refused.value.hint == hint


def test_headers_of_a_newer_libbpf_are_taken_by_sources_that_need_them(
    context: BuildContext, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = tmp_path / "newer" / "include"
    (newer / "bpf").mkdir(parents=True)
    (newer / "bpf" / "newest.h").write_text("#define NEWEST\n")
    asked: list[str] = []

    def fetched(_: BuildContext, text: str) -> Path:
        asked.append(text)
        return newer

    monkeypatch.setattr(bpf_objects, "newer_libbpf", fetched)
    source = a_tree(tmp_path, "#include <bpf/bpf_endian.h>")
    flags = "-I ../include -include linux/types.h"
    made = bpf_object(context, kernel, source, flags)
    assert ("/usr/include/bpf/bpf_endian.h" in made.source.digests, asked) == (True, [])
    source.write_text(source.read_text().replace("bpf_endian", "newest"))
    made = bpf_object(context, kernel, source, flags)
    assert ("lab:bpf/newest.h" in made.source.digests, len(asked)) == (True, 1)
    assert "bpf/newest.h' file not found" in asked[0]


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        ("int BPF_UPROBE(on_entry, size_t size)", True),
        ("'___bpf_kprobe_args6' is undeclared", True),
        ("int BPF_KPROBE(on_entry) { return nothing; }", False),
        ("int MY_BPF_UPROBE(on_entry)", False),
    ],
)
def test_newer_headers_are_fetched_for_their_names_alone(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_needed: bool
) -> None:
    wanted: list[str] = []

    def unpacked(_: BuildContext, name: str, *others: object, **more: object) -> None:
        wanted.append(name)
        raise HostError("no network")

    said: list[str] = []
    monkeypatch.setattr(libbpf_headers, "_version", lambda folder: "1.1")
    monkeypatch.setattr(libbpf_headers, "unpacked_packages", unpacked)
    assert newer_libbpf(replace(context, say=said.append), text) is None
    assert (wanted, len(said)) == ((["libbpf-dev-1.5"], 1) if is_needed else ([], 0))
