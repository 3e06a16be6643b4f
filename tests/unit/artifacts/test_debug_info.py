# SPDX-License-Identifier: GPL-2.0-only
"""Is debug information only taken of the very code that was measured, and is what is missing one sentence?"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from debian_archive import DebianArchive, SigningKey
from tiny_modules import tiny_kernel, tiny_module

from orchestrator.artifacts import debian_mirror, debug_info, pinned_packages
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debug_info import (
    NoDebugInfoError,
    has_debug_info,
    is_same_code,
    kernel_debug_info,
    module_debug_info,
)
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.debian_release import Suites

SOURCE = "int number;\nvoid _start(void)\n{\n\tnumber = 5;\n}\n"


def linked(file: Path, *flags: str, source: str = SOURCE) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-nostdlib", "-static", "-no-pie", "-x", "c", "-", "-o", str(file), *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return file


def own_kernel(folder: Path) -> Kernel:
    """A user's tree without vmlinux, whose image is not packed."""
    kernel = tiny_kernel(folder)
    kernel.image.write_bytes(b"no bzImage")
    spec = kernel.spec.model_copy(update={"name": "own", "packages": None, "tree": kernel.headers})
    return replace(kernel, spec=spec)


def test_code_is_the_same_with_and_without_debug_information(tmp_path: Path) -> None:
    plain = linked(tmp_path / "plain", "-Wl,--build-id=none")
    debug = linked(tmp_path / "debug", "-g", "-Wl,--build-id=sha1")
    other_path = linked(tmp_path / "other", "-g", source=SOURCE.replace("5", "6"))
    assert [has_debug_info(file) for file in (plain, debug, other_path)] == [False, True, True]
    assert is_same_code(plain, debug)
    assert not is_same_code(plain, other_path)


def test_files_of_one_build_id_are_the_same(tmp_path: Path) -> None:
    first = linked(tmp_path / "first", "-Wl,--build-id=0x1234")
    second = linked(tmp_path / "second", "-g", "-Wl,--build-id=0x1234", source=SOURCE.replace("5", "6"))
    assert is_same_code(first, second)


@pytest.mark.parametrize("content", [None, b"", b"no ELF", b"\x7fELF" + bytes(60)])
def test_a_user_s_tree_without_a_kernel(context: BuildContext, tmp_path: Path, content: bytes | None) -> None:
    kernel = own_kernel(tmp_path)
    if content is not None:
        (kernel.headers / "vmlinux").write_bytes(content)
    with pytest.raises(NoDebugInfoError, match=r"no debug information|cannot be read"):
        kernel_debug_info(context, kernel)


def test_a_user_s_tree(context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = own_kernel(tmp_path)
    vmlinux = linked(kernel.headers / "vmlinux")
    with pytest.raises(NoDebugInfoError, match="kernel own has no debug information") as raised:
        kernel_debug_info(context, kernel)
    assert "-e DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT" in raised.value.hint
    linked(vmlinux, "-g")
    assert kernel_debug_info(context, kernel) == vmlinux
    booted = linked(tmp_path / "booted", source=SOURCE.replace("5", "6"))
    monkeypatch.setattr(debug_info, "extract", lambda image: booted.read_bytes())
    with pytest.raises(NoDebugInfoError, match="another build's vmlinux than that of kernel own"):
        kernel_debug_info(context, kernel)


def test_a_module_is_compiled_again(context: BuildContext, tmp_path: Path) -> None:
    kernel = tiny_kernel(tmp_path / "kernel")
    (module,) = build_modules(context, kernel, [tiny_module({})])
    assert isinstance(module, Module)
    assert not has_debug_info(module.file)
    path = module_debug_info(context, kernel, module)
    assert has_debug_info(path)
    assert path.name == module.file.name
    printed = subprocess.run(["readelf", "--debug-dump=info", path], check=True, capture_output=True, text=True).stdout
    assert str(path.parent / "sources") in printed
    assert (path.parent / "sources" / "lab_tiny_main.c").is_file()
    changed = replace(module, file=linked(tmp_path / "other.ko"))
    with pytest.raises(NoDebugInfoError, match="another build's code than that of module lab_tiny"):
        module_debug_info(context, kernel, replace(changed, file=changed.file.rename(tmp_path / "lab_tiny.ko")))


def test_a_user_s_module(context: BuildContext, tmp_path: Path) -> None:
    kernel = tiny_kernel(tmp_path / "kernel")
    file = linked(tmp_path / "mine.ko", "-g")
    module = Module("mine", file, "a-key", None)
    assert module_debug_info(context, kernel, module) == file
    subprocess.run(["strip", file], check=True)
    with pytest.raises(NoDebugInfoError, match="module mine has no debug information") as raised:
        module_debug_info(context, kernel, module)
    assert raised.value.hint == "compile it with -g, and do not strip it"


def test_only_vmlinux_of_debians_package_is_kept(
    context: BuildContext, said: list[str], tmp_path: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = DebianArchive(tmp_path / "archive", "stable", key)
    name = "linux-image-1.0-dbg"
    built = linked(tmp_path / "built", "-g")
    archive.publish(name, "1.0-2", "amd64", files={"usr/lib/debug/boot/vmlinux-1.0": built})
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", archive.uri)
    monkeypatch.setattr(debian_mirror, "archive_keyring", lambda: key.public)
    suites = Suites(release="stable", title="a test's Debian", suites=["stable"])
    monkeypatch.setattr(pinned_packages, "debian", lambda: suites)
    folder = tmp_path / "code"
    measured = replace(
        tiny_kernel(tmp_path / "kernel"),
        code_folder=linked(folder / "vmlinux").parent,
        packages={"linux-image-1.0:amd64": "1.0-2"},
    )
    path = kernel_debug_info(context, measured)
    assert path.read_bytes() == built.read_bytes()
    assert {path.name for path in path.parent.iterdir()} == {"vmlinux", "manifest.json", "digests.txt"}
    said.clear()
    assert kernel_debug_info(context, measured) == path
    assert said == []
    linked(folder / "vmlinux", source=SOURCE.replace("5", "6"))
    with pytest.raises(NoDebugInfoError, match="another build's vmlinux"):
        kernel_debug_info(context, measured)
    newer = replace(measured, release="1.1")
    with pytest.raises(NoDebugInfoError, match="no debug information of kernel debian-amd64 any more"):
        kernel_debug_info(context, newer)
