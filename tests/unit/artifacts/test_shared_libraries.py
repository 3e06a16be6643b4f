# SPDX-License-Identifier: GPL-2.0-only
"""Are the libraries of a workload found, compiled and linked so that its own loader finds them again?"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.arch import Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.disk_images import Image
from orchestrator.artifacts.guest_programs import guest_programs
from orchestrator.artifacts.program_code import find_in_library, library_of_image, library_path, obtain_library
from orchestrator.artifacts.user_programs import compiled_workload
from orchestrator.benchmarks.calls.program_output import parse_called
from orchestrator.catalog.image_recipes import image
from orchestrator.catalog.user_files import find_library
from orchestrator.errors import BuildError

ON_X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86_64 programs on the host")
pytestmark = pytest.mark.usefixtures("host_compiles")
LIBRARY = 'void inner(void); void inner(void) { __asm__ volatile("nop; nop; nop; nop"); }\n'
WORKLOAD = '#include "workload.h"\nvoid inner(void);\nvoid workload(void) { inner(); }\n'
RECORD = """\
d 755 0:0 ./usr
f 755 0:0 1922136 ./usr/lib/x86_64-linux-gnu/libc.so.6
f 755 0:0 90000000 ./usr/lib/x86_64-linux-gnu/libhuge.so.1
f 644 0:0 121280 ./usr/lib/x86_64-linux-gnu/libz.so.1.2.13
l 777 0:0 ./lib usr/lib
l 777 0:0 ./usr/lib/x86_64-linux-gnu/libz.so.1 libz.so.1.2.13
l 777 0:0 ./usr/lib64/libc.so.6 ../lib/x86_64-linux-gnu/libc.so.6
l 777 0:0 ./usr/lib64/libloop.so libloop.so
f 755 0:0 1922136 ./opt/libfar.so.1
8b8fc0e5299310235f0238db8d1bfeeafed24bb68201879e6dbc2fe0576eb593  ./usr/lib/x86_64-linux-gnu/libc.so.6
"""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("libz.so.1", "usr/lib/x86_64-linux-gnu/libz.so.1.2.13"),
    ],
)
def test_a_library_of_an_image_is_where_all_links_lead(name: str, path: str) -> None:
    assert library_path(RECORD, "x86_64", name, "debian-amd64") == path


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        (
            "libz.so.2",
            "image debian-amd64 has no library libz.so.2 in usr/lib/x86_64-linux-gnu or",
            "did you mean libz.so",
        ),
        ("libfar.so.1", "image debian-amd64 has no library libfar.so.1", "did you mean"),
        ("libloop.so", "image debian-amd64 has no library libloop.so", "did you mean"),
        ("QQQQ.so", "image debian-amd64 has no library QQQQ.so", "a recipe of your own can add"),
        ("libhuge.so.1", "usr/lib/x86_64-linux-gnu/libhuge.so.1 of image debian-amd64 is larger than 64 MiB", ""),
    ],
)
def test_library_missing_in_an_image_is_named(name: str, words: str, hint: str) -> None:
    with pytest.raises(BuildError) as refused:
        library_path(RECORD, "x86_64", name, "debian-amd64")
    assert refused.value.what.startswith(words)
    assert refused.value.hint.startswith(hint)


@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="needs squashfs-tools")
def test_a_library_is_read_out_of_an_image(context: BuildContext, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    folder = tree / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libz.so.1.2.13").write_bytes(bytes(range(256)) * 100)
    (folder / "libz.so.1").symlink_to("libz.so.1.2.13")
    (tmp_path / "files.txt").write_text(RECORD)
    packed = tmp_path / "root.squashfs"
    subprocess.run(["mksquashfs", tree, packed, "-quiet", "-no-progress"], check=True, timeout=600)
    made = Image(image("debian-amd64"), "key", tmp_path / "base", packed, {}, "")
    library = library_of_image(context, "x86_64", made, "libz.so.1")
    assert library.path == "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13"
    assert library.file.read_bytes() == (folder / "libz.so.1.2.13").read_bytes()
    assert not library.is_brought
    with pytest.raises(BuildError, match=r"libc\.so\.6 cannot be read out of image debian-amd64"):
        library_of_image(context, "x86_64", made, "libc.so.6")


def written(folder: Path, library: str = LIBRARY) -> tuple[Path, Path]:
    files = folder / "libinner.c", folder / "calling.c"
    for file, text in zip(files, (library, WORKLOAD), strict=True):
        file.write_text(text)
    return files


@pytest.mark.parametrize("arch", ["i386", "x86_64"])
def test_a_c_file_becomes_a_library_that_a_workload_is_linked_with(
    context: BuildContext, tmp_path: Path, arch: Arch
) -> None:
    source, calling = written(tmp_path)
    library = obtain_library(context, arch, "", find_library(str(source)))
    assert (library.name, library.path, library.is_brought) == ("libinner.so", "/tmp/libraries/libinner.so", True)
    assert find_in_library(library.file, library.name, "inner", 0).code
    program = compiled_workload(context, arch, calling, [library.file]).file
    with program.open("rb") as file:
        elf = ELFFile(file)
        dynamic, symbols = (elf.get_section_by_name(name) for name in (".dynamic", ".dynsym"))
        assert isinstance(dynamic, DynamicSection)
        assert isinstance(symbols, SymbolTableSection)
        tags = {tag["d_tag"]: str(tag) for tag in dynamic.iter_tags()}
        assert elf["e_type"] == "ET_EXEC"
        # memcpy() of runtime.c is none that a library could be led to.
        names = {symbol.name for symbol in symbols.iter_symbols()}
    assert "libinner.so" in tags["DT_NEEDED"]
    assert "/tmp/libraries" in tags["DT_RPATH"]
    assert "DT_BIND_NOW" in tags or "DT_FLAGS" in tags
    assert names == {"", "inner"}


@ON_X86_64
def test_the_program_runs_and_is_looked_at_in_its_library(context: BuildContext, tmp_path: Path) -> None:
    source, calling = written(tmp_path)
    library = obtain_library(context, "x86_64", "", find_library(str(source)))
    program = compiled_workload(context, "x86_64", calling, [library.file]).file
    place = find_in_library(library.file, library.name, "inner", 0)
    here = {"LD_LIBRARY_PATH": str(library.file.parent)}
    peek = guest_programs(context, "x86_64").path / "peek"

    def said(*argv: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, check=False, env=here, capture_output=True, text=True, timeout=600)

    assert parse_called(said(program, "-c", "7").stdout, 7).calls == 7
    code = place.code[:4].hex()
    looked = said(peek, "-l", library.file, str(place.file_offset), "4", program)
    assert (looked.stdout, looked.stderr) == (f"process {code}\nfile {code}\n", "")
    other_path = tmp_path / "libinner.so"
    other_path.write_bytes(library.file.read_bytes())
    refused = said(peek, "-l", other_path, str(place.file_offset), "4", program)
    assert (refused.returncode, refused.stderr) == (2, f"peek: the program has not mapped {other_path}\n")
    assert said(peek, "-l", library.file, "1").returncode == 2
    here.clear()
    alone = said(peek, "-l", library.file, str(place.file_offset), "4", program)
    assert alone.returncode == 2
    assert alone.stderr.endswith(f"peek: the loader did not start {program}\n")


def test_a_library_is_looked_for_by_its_own_name(context: BuildContext, tmp_path: Path) -> None:
    source, calling = written(tmp_path)
    built = tmp_path / "libmine.so"
    for options, name in (["-Wl,-soname,libmine.so.3"], "libmine.so.3"), ([], "libmine.so"):
        argv = ["gcc", "-shared", "-fPIC", "-nostdlib", *options, "-o", str(built), str(source)]
        subprocess.run(argv, check=True, timeout=600)
        library = obtain_library(context, "x86_64", "", find_library(str(built)))
        assert (library.name, library.path) == ("libmine.so", f"/tmp/libraries/{name}")
        needed = subprocess.run(
            ["readelf", "-d", compiled_workload(context, "x86_64", calling, [library.file]).file],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        assert f"Shared library: [{name}]" in needed
    argv = ["gcc", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,../escaped", "-o", str(built), str(source)]
    subprocess.run(argv, check=True, timeout=600)
    with pytest.raises(BuildError, match=r"^libmine\.so calls itself '\.\./escaped', which is not a library's name"):
        obtain_library(context, "x86_64", "", find_library(str(built)))


def test_what_no_library_has_is_said(context: BuildContext, tmp_path: Path) -> None:
    source, calling = written(tmp_path, "int nothing;\n")
    library = obtain_library(context, "x86_64", "", find_library(str(source)))
    with pytest.raises(BuildError, match=r"^calling\.c does not compile") as failed:
        compiled_workload(context, "x86_64", calling, [library.file])
    assert any("undefined reference to `inner'" in line for line in failed.value.detail)
    assert failed.value.hint == "functions that it calls must be in one of benchmark.libraries, or in runtime.h"
