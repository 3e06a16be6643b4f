# SPDX-License-Identifier: GPL-2.0-only
"""Is a file that holds no BPF programs refused before a guest starts, and is a missing compiler named?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from host_toolchain import a_kernel

from orchestrator.artifacts.bpf_objects import bpf_object
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel
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
            own_object.chosen(kernel, chosen)
    assert own_object.chosen(kernel, "other").programs == {"other": "kprobe/vfs_read"}


def test_programs_are_the_global_functions_with_sections(context: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    helper = "__attribute__((noinline)) int helper(int x) { return x ? x * 3 : 7; }\n"
    text = helper + "".join(
        PROGRAM.format(section=section).replace("program", name)
        for name, section in (("second", "kprobe/vfs_read"), ("first", "tp/a/b"), ("target", "kprobe"))
    )
    own_object = bpf_object(context, kernel, compiled(tmp_path, text, *CLANG))
    assert own_object.programs == {"second": "kprobe/vfs_read", "first": "tp/a/b", "target": "kprobe"}
    assert own_object.chosen(kernel, None) == own_object
    with pytest.raises(BuildError, match=r"unknown program 'secnod'.*did you mean 'second'") as refused:
        own_object.chosen(kernel, "secnod")
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
