# SPDX-License-Identifier: GPL-2.0-only
"""Are programs and libraries of an image found as libbpf and the loader find them, and its code as it is built?"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_program_code import linked

from orchestrator.artifacts.image_files import ImageFile, TreeRecord
from orchestrator.artifacts.program_code import find_in_image
from orchestrator.errors import BuildError

TREE = TreeRecord.of(
    """\
d 755 0:0 ./usr
f 755 0:0 1922136 ./usr/lib/x86_64-linux-gnu/libc.so.6
f 755 0:0 6831736 ./usr/bin/python3.11
l 777 0:0 ./bin usr/bin
l 777 0:0 ./lib usr/lib
l 777 0:0 ./usr/bin/python3 python3.11
l 777 0:0 ./etc/alternatives/py /usr/bin/python3
l 777 0:0 ./usr/lib/loop loop
l 777 0:0 ./usr/lib/out ../../../../etc/passwd
"""
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/usr/bin/python3.11", "usr/bin/python3.11"),
        ("/bin/python3", "usr/bin/python3.11"),
        ("/etc/alternatives/py", "usr/bin/python3.11"),
        ("/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("python3", "usr/bin/python3.11"),
        ("libc", None),
        ("/lib/loop", None),
        ("/lib/out", None),
        ("/usr", None),
        ("/../../usr/bin/python3", "usr/bin/python3.11"),
    ],
)
def test_a_file_is_where_all_links_lead(name: str, path: str | None) -> None:
    assert TREE.found(name, "x86_64") == path


def test_similar_names_are_named_as_the_user_names_them() -> None:
    assert TREE.alike("/usr/bin/python3.12", "x86_64")[0] == "/usr/bin/python3.11"
    assert TREE.alike("libc.so.7", "x86_64") == ["libc.so.6"]


@pytest.mark.parametrize(
    ("options", "is_relative", "is_program"),
    [
        (("-static", "-no-pie"), False, True),
        (("-fpic", "-shared"), True, False),
        (("-fpie", "-pie", "-Wl,--dynamic-linker=/lib/ld.so"), True, True),
    ],
)
def test_code_of_an_image_says_how_it_is_loaded(
    tmp_path: Path, options: tuple[str, ...], is_relative: bool, is_program: bool
) -> None:
    place = find_in_image(ImageFile("/usr/bin/it", linked(tmp_path, *options)), "inner", 0)
    assert (place.is_relative, place.is_program, place.code[:3]) == (is_relative, is_program, b"\x90\x90\x90")


def test_a_file_of_32_bits_is_refused(tmp_path: Path) -> None:
    library = linked(tmp_path, "-m32", "-fpic", "-shared")
    with pytest.raises(BuildError, match=r"/lib32/libit.so is a 32-bit file, and probes are in those of 64-bit"):
        find_in_image(ImageFile("/lib32/libit.so", library), "inner", 0)


def test_a_stripped_program_is_said_to_be(tmp_path: Path) -> None:
    library = linked(tmp_path, "-fpic", "-shared", "-s")
    with pytest.raises(BuildError, match="it has no function iner; it is stripped, so only what it exports") as refused:
        find_in_image(ImageFile("/lib/it", library), "iner", 0)
    assert refused.value.hint == "did you mean inner"


CPP = """
void wide(void) __asm__("_ZN4text5widenEi");
__attribute__((noinline)) void wide(void) { __asm__ volatile("nop"); }
void rust(void) __asm__("_RNvCs1234_4text6narrow");
__attribute__((noinline)) void rust(void) { __asm__ volatile("nop; nop"); }
void _start(void) { wide(); rust(); }
"""


@pytest.mark.parametrize(
    ("symbol", "hint"),
    [
        ("text::widen", "did you mean _ZN4text5widenEi (text::widen(int))"),
        ("text::widen(int)", "did you mean _ZN4text5widenEi (text::widen(int))"),
        ("other::narrow", "did you mean _RNvCs1234_4text6narrow (text"),
        ("text::gone", "none of it is like it"),
        ("_ZN4text5widenEv", "did you mean _ZN4text5widenEi (text::widen(int))"),
    ],
)
def test_a_name_of_a_source_is_given_its_symbol(tmp_path: Path, symbol: str, hint: str) -> None:
    library = linked(tmp_path, "-fpic", "-shared", source=CPP)
    with pytest.raises(BuildError) as refused:
        find_in_image(ImageFile("/lib/it", library), symbol, 0)
    assert refused.value.hint.startswith(hint)
