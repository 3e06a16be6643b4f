# SPDX-License-Identifier: GPL-2.0-only
"""Is a place in a program or a library found by its name, and what cannot be found refused with what to do?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.artifacts.program_code import find_in_library, find_in_program
from orchestrator.errors import BuildError
from orchestrator.paths import data_dir

SOURCE = """
__attribute__((noinline)) void inner(void) { __asm__ volatile("nop; nop; nop"); }
void _start(void) { inner(); for (;;); }
"""
AT = 0x500000


def linked(folder: Path, *options: str, source: str = SOURCE) -> Path:
    file, program = folder / "program.c", folder / "program"
    file.write_text(source)
    argv = [
        "gcc",
        "-O2",
        "-ffreestanding",
        "-nostdlib",
        "-fcf-protection=none",
        *options,
        "-o",
        str(program),
        str(file),
    ]
    subprocess.run(argv, check=True, timeout=600)
    return program


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return linked(tmp_path, "-static", "-no-pie", f"-Wl,-Ttext={AT:#x}")


def test_a_function_is_where_the_file_has_it(program: Path) -> None:
    first, third = (find_in_program(program, "inner", offset) for offset in (0, 2))
    assert AT <= first.address < AT + 0x1000
    assert first.code.startswith(bytes.fromhex("909090c3"))
    assert program.read_bytes()[first.file_offset :].startswith(first.code)
    assert (third.address - first.address, third.file_offset - first.file_offset) == (2, 2)
    assert third.code.startswith(bytes.fromhex("90c3"))


def test_missing_symbols_are_refused(program: Path) -> None:
    with pytest.raises(BuildError, match=r"^the program has no function iner; the compiler may have") as caught:
        find_in_program(program, "iner", 0)
    assert caught.value.hint == "did you mean inner"
    with pytest.raises(BuildError, match=r"^inner\+0x10 is beyond the end of inner, which has 0x4 bytes"):
        find_in_program(program, "inner", 16)


def test_one_of_two_functions_of_a_name_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "other.c").write_text("static __attribute__((used)) void inner(void) { for (;;); }")
    program = linked(tmp_path, "-static", "-no-pie", str(tmp_path / "other.c"), source=f"static {SOURCE.lstrip()}")
    with pytest.raises(BuildError, match=r"^the program has several functions inner: the name is ambiguous"):
        find_in_program(program, "inner", 0)


def test_a_program_that_cannot_be_probed_by_name(tmp_path: Path) -> None:
    moving = linked(tmp_path, "-static-pie")
    with pytest.raises(BuildError, match=r"^program is position-independent, and has no fixed address"):
        find_in_program(moving, "inner", 0)
    stripped = linked(tmp_path, "-static", "-no-pie", "-s")
    with pytest.raises(BuildError, match=r"^the program has no symbols"):
        find_in_program(stripped, "inner", 0)
    stripped.write_bytes(stripped.read_bytes()[:80])
    with pytest.raises(BuildError, match=r"^program is damaged"):
        find_in_program(stripped, "inner", 0)


MARKED = """
#include "usdt.h"
USDT_SEMAPHORE(lab, wanted);
static inline __attribute__((always_inline)) void twice(void) { USDT(lab, twice); }
void _start(void)
{
    USDT(lab, passed);
    if (USDT_IS_PROBED(lab, wanted))
        USDT_COUNTED(lab, wanted);
    twice(); twice();
    for (;;);
}
"""
WIDTHS = [pytest.param("-m32", id="32 bits"), pytest.param("-m64", id="64 bits")]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_static_point_is_where_its_note_says(tmp_path: Path, width: str) -> None:
    program = linked(tmp_path, "-static", "-no-pie", width, f"-I{data_dir('images') / 'workload'}", source=MARKED)
    content = program.read_bytes()
    passed, program_place = (find_in_program(program, f"lab:{name}", 0) for name in ("passed", "wanted"))
    assert passed.address != program_place.address
    for place in (passed, program_place):
        assert place.code.startswith(b"\x90")
        assert content[place.file_offset :].startswith(place.code)
    assert passed.semaphore == 0
    assert program_place.semaphore != 0
    assert content[program_place.semaphore : program_place.semaphore + 2] == bytes(2)
    with pytest.raises(BuildError, match=r"^the program has the static probe point lab:twice at 2 places"):
        find_in_program(program, "lab:twice", 0)
    with pytest.raises(BuildError, match=r"^the program has no static probe point lab:past") as caught:
        find_in_program(program, "lab:past", 0)
    assert caught.value.hint.startswith("did you mean lab:passed")


def test_the_notes_are_those_that_other_tools_read(tmp_path: Path) -> None:
    program = linked(tmp_path, "-static", "-no-pie", f"-I{data_dir('images') / 'workload'}", source=MARKED)
    said = subprocess.run(
        ["readelf", "-n", str(program)], check=True, timeout=60, capture_output=True, text=True
    ).stdout
    place = find_in_program(program, "lab:passed", 0)
    assert f"Provider: lab\n    Name: passed\n    Location: {place.address:#018x}" in said


def test_a_note_whose_owner_does_not_end(tmp_path: Path) -> None:
    program = linked(tmp_path, "-static", "-no-pie", f"-I{data_dir('images') / 'workload'}", source=MARKED)
    program.write_bytes(program.read_bytes().replace(b"\3\0\0\0stapsdt\0", b"\3\0\0\0stapsdt!"))
    with pytest.raises(BuildError, match=r"^program is damaged"):
        find_in_program(program, "lab:passed", 0)


def test_a_program_without_static_points(program: Path) -> None:
    with pytest.raises(BuildError, match=r"^the program has no static probe point lab:passed") as caught:
        find_in_program(program, "lab:passed", 0)
    assert caught.value.hint == "it has none at all; USDT() of usdt.h makes one"


def test_a_place_inside_an_instruction_is_refused(tmp_path: Path) -> None:
    source = SOURCE.replace("nop; nop; nop", "push %r12; nop")
    program = linked(tmp_path, "-static", "-no-pie", source=source)
    assert find_in_program(program, "inner", 2).code.startswith(b"\x90")
    with pytest.raises(
        BuildError, match=r"^inner\+0x1 is inside the instruction at \+0x0 \(2 bytes\): the next one"
    ) as no:
        find_in_program(program, "inner", 1)
    assert no.value.what.endswith("begins at +0x2")


LIBRARY = """
#include "usdt.h"
void before(void) { __asm__ volatile("int3"); }
void today(void) { __asm__ volatile("hlt"); }
__asm__(".symver before,versioned@ONE\\n.symver today,versioned@@TWO");
static void fast(void) { }
static void (*choose(void))(void) { return fast; }
void chosen(void) __attribute__((ifunc("choose")));
void marked(void) { USDT(lab, passed); }
"""


@pytest.mark.parametrize("stripped", [(), ("-s",)])
def test_a_place_in_a_library_is_relative_to_where_it_is_loaded(tmp_path: Path, stripped: tuple[str, ...]) -> None:
    versions = tmp_path / "versions"
    versions.write_text("ONE { global: chosen; marked; local: *; }; TWO { } ONE;")
    options = ["-shared", "-fPIC", f"-I{data_dir('images') / 'workload'}", f"-Wl,--version-script={versions}"]
    library = linked(tmp_path, *options, *stripped, source=LIBRARY)
    content = library.read_bytes()
    place = find_in_library(library, "libtwo.so", "versioned", 0)
    assert place.code.startswith(b"\xf4")  # hlt: today's version
    for symbol in ("versioned", "marked", "lab:passed"):
        program_place = find_in_library(library, "libtwo.so", symbol, 0)
        assert content[program_place.file_offset :].startswith(program_place.code)
        assert program_place.address < 1 << 16
    with pytest.raises(BuildError, match=r"^chosen of libtwo\.so is selected for the CPU when the library is loaded"):
        find_in_library(library, "libtwo.so", "chosen", 0)
    with pytest.raises(BuildError, match=r"^libtwo\.so has no function choosen;"):
        find_in_library(library, "libtwo.so", "choosen", 0)
    with pytest.raises(BuildError, match=r"^libtwo\.so has no static probe point lab:past"):
        find_in_library(library, "libtwo.so", "lab:past", 0)
    library.write_bytes(content[:80])
    with pytest.raises(BuildError, match=r"^libtwo\.so is damaged"):
        find_in_library(library, "libtwo.so", "versioned", 0)


NOTE = r"""
__asm__(".pushsection .note.stapsdt, \"{flags}\", \"note\"\n.balign 4\n.4byte 8, 774f - 773f, 3\n.asciz \"stapsdt\"\n"
        ".balign 4\n773: {word} {place}, {base}, {semaphore}\n.asciz \"lab\"\n.asciz \"{name}\"\n.asciz \"\"\n"
        "774: .balign 4\n.popsection");
"""


def note(width: str, name: str, place: str, **fields: str) -> str:
    """A static point's note; the linker fills in 0 for a base, a place or a semaphore whose section it drops."""
    word = ".4byte" if width == "-m32" else ".8byte"
    return NOTE.format(
        **{"word": word, "name": name, "place": place, "base": "0", "semaphore": "0", "flags": ""} | fields
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_notes_that_linkers_have_left_incomplete(tmp_path: Path, width: str) -> None:
    """Beside a note of the macro's, which brings a section for the base."""
    notes = [
        note(width, "baseless", "inner"),
        note(width, "counted", "inner + 1", semaphore="baseless_semaphore"),
        note(width, "dropped_once", "inner + 1"),
        note(width, "dropped_once", "0"),
        note(width, "twice_noted", "inner + 2"),
        note(width, "twice_noted", "inner + 2"),
    ]
    counter = 'unsigned short baseless_semaphore __attribute__((section(".probes")));'
    source = MARKED.replace("USDT(lab, passed);", "USDT(lab, passed); inner();") + counter + "".join(notes)
    source = SOURCE.splitlines()[1] + source
    other_path = tmp_path / "other.c"
    other_path.write_text(note(width, "allocated", "inner + 2", base="_.stapsdt.base", flags="a"))
    options = ["-static", "-no-pie", width, f"-I{data_dir('images') / 'workload'}", str(other_path)]
    program = linked(tmp_path, *options, source=source)
    inner = find_in_program(program, "inner", 0).address
    expected = {"baseless": 0, "counted": 1, "allocated": 2, "dropped_once": 1, "twice_noted": 2}
    places = {name: find_in_program(program, f"lab:{name}", 0) for name in expected}
    assert {name: place.address - inner for name, place in places.items()} == expected
    assert places["counted"].semaphore
    assert find_in_program(program, "lab:passed", 0).code.startswith(b"\x90")


BARE = r"""
__asm__(".text\n"
        ".globl sizeless\n.type sizeless, @function\nsizeless: push %ebx\nloop: nop\nret\n"
        ".globl typeless\ntypeless: nop\nret\n"
        ".globl usual, label\n.type usual, @function\nlabel: usual: nop\nret\n.size usual, . - usual\n"
        ".globl other_name\n.set other_name, usual\n"
        "last: nop\nret\n"
        ".pushsection .text.apart, \"ax\"\napart: nop\n.popsection\n"
        ".globl numbers\n.data\nnumbers: .long 1\n.text");
void _start(void) { for (;;); }
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_functions_as_assemblers_leave_them(tmp_path: Path, width: str) -> None:
    source = BARE.replace("%ebx", "%ebx" if width == "-m32" else "%rbx")
    program = linked(tmp_path, "-static", "-no-pie", width, source=source)
    sizes = {"sizeless": 3, "typeless": 2, "usual": 2, "label": 2, "other_name": 2}
    for symbol, size in sizes.items():
        assert find_in_program(program, symbol, size - 1).code.startswith(b"\xc3")
        with pytest.raises(BuildError, match=rf"is beyond the end of {symbol}, which has {size:#x} bytes"):
            find_in_program(program, symbol, size)
    assert find_in_program(program, "loop", 0).code.startswith(b"\x90\xc3")
    for symbol in ("last", "apart"):
        assert find_in_program(program, symbol, 0).code.startswith(b"\x90")
    with pytest.raises(BuildError, match=r"^apart\+0x1 is beyond the end of apart, which has 0x1 bytes"):
        find_in_program(program, "apart", 1)
    with pytest.raises(BuildError, match=r"^numbers of the program is not a function: it is not in executable code"):
        find_in_program(program, "numbers", 0)


def test_a_label_is_no_second_function_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "other.c").write_text(r'__asm__("inner: nop\nret\nsame: nop");')
    (tmp_path / "third.c").write_text(r'__asm__("same: nop");')
    others = [str(tmp_path / name) for name in ("other.c", "third.c")]
    program = linked(tmp_path, "-static", "-no-pie", *others)
    assert find_in_program(program, "inner", 0).code.startswith(bytes.fromhex("909090c3"))
    with pytest.raises(BuildError, match=r"^the program has several functions same"):
        find_in_program(program, "same", 0)


def test_an_exported_label_of_a_library(tmp_path: Path) -> None:
    source = r'__asm__(".globl entry\nentry: nop\nret\n.globl behind\nbehind: ret"); int value = 1;'
    source += "extern void imported(void); void calls(void) { imported(); }"
    library = linked(tmp_path, "-shared", "-fPIC", "-s", source=source)
    assert find_in_library(library, "libasm.so", "entry", 1).code.startswith(b"\xc3")
    with pytest.raises(BuildError, match=r"^entry\+0x2 is beyond the end of entry, which has 0x2 bytes"):
        find_in_library(library, "libasm.so", "entry", 2)
    with pytest.raises(BuildError, match=r"^value of libasm\.so is not a function"):
        find_in_library(library, "libasm.so", "value", 0)
    with pytest.raises(BuildError, match=r"^libasm\.so has no function imported of its own: it calls a lib") as no:
        find_in_library(library, "libasm.so", "imported", 0)
    assert no.value.hint == "name the library: LIBRARY:imported"
