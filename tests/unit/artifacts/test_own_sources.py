# SPDX-License-Identifier: GPL-2.0-only
"""Is every file that a user's file is built from known, however it is included, and is the program built anew then?"""

from __future__ import annotations

import hashlib
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from host_toolchain import HOST_TOOLCHAIN

from orchestrator.artifacts import sources, user_programs
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.sources import files_read, user_source
from orchestrator.artifacts.user_programs import compiled_workload, shared_library
from orchestrator.errors import ConfigError, HostError
from orchestrator.paths import data_dir

pytestmark = pytest.mark.usefixtures("host_compiles")

HEADERS = {
    "beside.h": "plain",
    "sub/below.h": "in a folder",
    "sub/of a name.h": "included by one in a folder",
    "../above/other.h": "in another folder",
    "named.h": "by a macro",
}


@pytest.fixture
def main(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    for name, text in HEADERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"/* {text} */\n")
    (folder / "sub/below.h").write_text('#include "of a name.h"\n')
    file = folder / "mine.c"
    file.write_text(
        '#include "workload.h"\n#include "beside.h"\n#include "sub/below.h"\n#include "../above/other.h"\n'
        '#define NAMED "named.h"\n#include NAMED\n#include <linux/limits.h>\nvoid workload(void) { }\n'
    )
    return file


@pytest.mark.parametrize("arch", ["i386", "x86_64"])
def test_what_the_compiler_reads_is_known(main: Path, tmp_path: Path, arch: str) -> None:
    source = compiled_workload(BuildContext(Cache(tmp_path / "cache")), arch, main).source
    assert {*source.texts} == {"mine.c", *HEADERS}
    assert source.texts["sub/of a name.h"] == "/* included by one in a folder */\n"
    assert {
        "lab:guest/runtime.h",
        "lab:workload/workload.c",
        "/usr/include/linux/limits.h",
    } <= source.digests.keys() - source.texts.keys()
    assert not any("stddef.h" in title for title in source.digests)  # the compiler's own: its version names them


UAPI = ("fcntl", "mman", "socket", "in", "io_uring", "eventpoll", "futex", "stat", "time", "sched", "prctl", "elf")


@pytest.mark.parametrize("arch", ["i386", "x86_64"])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_kernel_s_headers_are_included_in_any_order(tmp_path: Path, arch: str, is_first: bool) -> None:
    headers = [*(f"#include <linux/{name}.h>" for name in UAPI), "#include <asm/unistd.h>", "#include <asm/signal.h>"]
    own = ['#include "workload.h"']
    file = tmp_path / "mine.c"
    body = "void workload(void) { sys2(SYS_io_uring_setup, IORING_SETUP_SQPOLL | O_RDONLY | MAP_PRIVATE, 0); }"
    file.write_text("\n".join([*(headers + own if is_first else own + headers), body, ""]))
    source = compiled_workload(BuildContext(Cache(tmp_path / "cache")), arch, file).source
    assert {"/usr/include/linux/io_uring.h", "lab:guest/system_calls.h"} <= source.digests.keys()


def test_a_host_without_the_kernel_s_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda file: "linux/fcntl" not in str(file))
    file = tmp_path / "mine.c"
    file.write_text("#include <linux/mman.h>\nvoid workload(void) { }\n")
    with pytest.raises(HostError, match=r"mine\.c, which includes headers of the kernel, needs linux-libc-dev"):
        compiled_workload(BuildContext(Cache(tmp_path / "cache")), "x86_64", file)


def test_another_header_makes_another_program(main: Path, tmp_path: Path) -> None:
    context = BuildContext(Cache(tmp_path / "cache"))
    other_path = main.with_name("libmine.c")
    other_path.write_text(main.read_text().replace('#include "workload.h"', ""))
    first, library = compiled_workload(context, "x86_64", main), shared_library(context, "x86_64", other_path)
    assert compiled_workload(context, "x86_64", main) == first
    programs = [first]
    for number, name in enumerate(("sub/of a name.h", "sub/below.h")):  # the second includes the first
        (main.parent / name).write_text(f"static const int another_{number} = 1;\n")
        programs.append(compiled_workload(context, "x86_64", main))
        before, after = (program.source.digests for program in programs[-2:])
        assert [title for title in after if before.get(title) != after[title]] == [name]
    assert len({program.file for program in programs}) == len(programs)
    assert shared_library(context, "x86_64", other_path).file != library.file


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        user_source(tmp_path / "gone.c")
    assert caught.value.where == str(tmp_path / "gone.c")


def test_file_that_does_not_compile_has_no_facts(tmp_path: Path) -> None:
    (tmp_path / "broken.c").write_text('#include "nowhere.h"\n')
    assert files_read(["gcc", str(tmp_path / "broken.c")], {"LC_ALL": "C"}) == []


@pytest.mark.parametrize("name", ["results.h", "runtime.h", "lab/results.h"])
def test_a_header_of_the_name_of_one_of_the_lab_s_is_known_beside_that(tmp_path: Path, name: str) -> None:
    main, path = tmp_path / "mine.c", tmp_path / name
    main.write_text(f'#include "{name}"\n')
    path.parent.mkdir(exist_ok=True)
    path.write_text("/* mine */\n")
    read = [path, data_dir("images") / "guest" / path.name]
    first = user_source(main, read)
    assert first.texts[name] == "/* mine */\n"
    assert len(first.digests) == 3
    path.write_text("/* changed */\n")
    assert user_source(main, read).key != first.key


@pytest.mark.parametrize("folder", ["x/usr/lib/mine", "usr/lib/gcc/x86_64-linux-gnu/12/include"])
def test_a_header_of_the_user_s_is_known_in_a_folder_named_as_the_compiler_s(tmp_path: Path, folder: str) -> None:
    main, path = tmp_path / "mine.c", tmp_path / folder / "own.h"
    main.touch()
    path.parent.mkdir(parents=True)
    path.write_text("/* mine */")
    assert user_source(main, [path]).texts[f"{folder}/own.h"] == "/* mine */"


@pytest.mark.parametrize("folder", ["/usr/lib/gcc/x86_64-linux-gnu/12/include", "/usr/lib/llvm-14/lib/clang/14.0.6"])
def test_a_header_of_the_compiler_s_is_left_out(tmp_path: Path, folder: str) -> None:
    (tmp_path / "mine.c").touch()
    assert {*user_source(tmp_path / "mine.c", [Path(folder, "stddef.h")]).digests} == {"mine.c"}


def test_a_header_of_a_compiler_in_the_cache_is_left_out(main: Path, tmp_path: Path) -> None:
    """It is unpacked there, beside the programs that call it."""
    packages, made = tmp_path / "cache/debian/packages", tmp_path / "cache/toolchains/made"
    header = packages / "usr/lib/gcc/x86_64-linux-gnu/12/include/own.h"
    header.parent.mkdir(parents=True)
    header.touch()
    (made / "bin").mkdir(parents=True)
    (made / "packages").symlink_to(packages)
    gcc = made / "bin/gcc"
    gcc.write_text(f'#!/bin/sh\nexec gcc -isystem "{made}/packages/usr/lib/gcc/x86_64-linux-gnu/12/include" "$@"\n')
    gcc.chmod(0o755)
    main.write_text(f"#include <own.h>\n{main.read_text()}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_programs, "guest_toolchain", lambda context: replace(HOST_TOOLCHAIN, folder=made / "bin"))
        source = compiled_workload(BuildContext(Cache(tmp_path / "cache")), "x86_64", main).source
    assert not any("own.h" in title for title in source.digests)
    assert {*source.texts} == {"mine.c", *HEADERS}


def test_what_an_administrator_installs_is_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No package names what is in /usr/local and /usr/src."""
    main, path = tmp_path / "mine.c", tmp_path / "usr/local/include/own.h"
    path.parent.mkdir(parents=True)
    path.write_text("/* mine */")
    main.touch()
    (tmp_path / "usr/include").mkdir()
    header = tmp_path / "usr/include/their.h"
    header.touch()
    monkeypatch.setattr(sources, "_SYSTEM", [tmp_path / one.relative_to("/") for one in sources._SYSTEM])
    source = user_source(main, [path, header])
    assert {*source.digests} == {"mine.c", "usr/local/include/own.h", str(header)}
    assert {*source.texts} == {"mine.c", "usr/local/include/own.h"}


def test_a_folder_behind_a_link_is_left_out(tmp_path: Path) -> None:
    """A cache is often a link to a larger disk."""
    types, link = tmp_path / "disk/types", tmp_path / "cache"
    types.mkdir(parents=True)
    (types / "vmlinux.h").touch()
    (tmp_path / "mine.bpf.c").touch()
    link.symlink_to("disk")
    source = user_source(tmp_path / "mine.bpf.c", [link / "types/vmlinux.h"], link / "types")
    assert {*source.digests} == {"mine.bpf.c"}


def test_a_large_file_is_known_without_a_copy_in_memory(tmp_path: Path) -> None:
    size = 32 << 20
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    source = user_source(tmp_path / "disk.img")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert source.digests == {"disk.img": hashlib.sha256(bytes(size)).hexdigest()}
    assert source.texts == {}
    assert peak < size // 4


@pytest.mark.parametrize(("size", "kept"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_a_text_is_kept_up_to_a_size(tmp_path: Path, size: int, kept: bool) -> None:
    (tmp_path / "mine.c").write_text("x" * size)
    assert ("mine.c" in user_source(tmp_path / "mine.c").texts) is kept
