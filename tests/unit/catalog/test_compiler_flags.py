# SPDX-License-Identifier: GPL-2.0-only
"""Are clang's flags for users' sources taken in one spelling, with paths of one folder, and are the others refused?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.catalog.compiler_flags import FLAGS_FILE, CompilerFlags, flags_beside
from orchestrator.catalog.probes import parameters_of, probe_kind
from orchestrator.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-I include -Iother", ["-I", "include", "-I", "other"]),
        ("-I'with space' -DX", ["-I", "with space", "-DX"]),
        ("-D X=1 -U Y -O3", ["-DX=1", "-UY", "-O3"]),
        ("-DTEXT='\"a b\"'", ['-DTEXT="a b"']),
        ("-include config.h -isystem /usr/x", ["-include", "config.h", "-isystem", "/usr/x"]),
        ("-target bpf --target=bpf -mcpu=v3", ["-target", "bpf", "--target=bpf", "-mcpu=v3"]),
        ("-Wno-unused -Werror -w -fno-stack-protector -std=gnu11 -g", None),
        ("", []),
    ],
)
def test_flags_have_one_spelling(text: str, words: list[str] | None) -> None:
    flags = CompilerFlags.of_text(text)
    assert flags.words == (text.split() if words is None else words)
    assert CompilerFlags.of_text(flags.text) == flags


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("-o x.o", "found '-o'; the lab names the object itself"),
        ("-ox.o", "found '-ox.o'; the lab names the object itself"),
        ("-c", "the lab makes an object of each source by itself"),
        ("-x c++", "the lab takes a source for C"),
        ("-fplugin=evil.so", "the lab loads no code into the compiler"),
        ("-fpass-plugin=evil.so", "the lab loads no code into the compiler"),
        ("-Xclang -load -Xclang evil.so", "found '-Xclang'; the lab passes nothing around clang's driver"),
        ("-load evil.so", "the lab loads no code"),
        ("-mllvm -load=evil.so", "the lab passes nothing to LLVM"),
        ("-Wp,-MD,file", "the lab passes nothing to other programs"),
        ("-MF file", "the lab lists a source's headers itself"),
        ("-MMD", "the lab lists a source's headers itself"),
        ("-save-temps=obj", "the lab takes one file"),
        ("-gsplit-dwarf", "the lab takes one file"),
        ("-fno-integrated-as", "the lab assembles BPF by clang itself"),
        ("-include-pch x", "the lab compiles from text alone"),
        ("@flags.rsp", "found '@flags.rsp'; a file of flags is named compile_flags.txt and is beside the source"),
        ("other.c", "found 'other.c'; the source is all that is compiled"),
        ("-ftime-trace", "found '-ftime-trace', a flag that the lab does not know; it takes -W, -I, "),
        ("--config=x", "a flag that the lab does not know"),
        ("-mcpu=probe", "found -mcpu= with 'probe'; allowed: -mcpu=generic, "),
        ("-target x86_64", "found -target with 'x86_64'; allowed: bpf, bpfel"),
        ("-O9", "found -O with '9'; allowed: -O, -O0"),
        ("-I", "found -I without its value"),
        ("-include", "found -include without its value"),
        ("-D 'X", 'found "-D \'X"; no closing quotation: quotes are as in a shell'),
        ("-DX='a\nb'", "a flag is one line of printable characters"),
        ("-DX=" + "x" * 20000, "found flags of 20004 characters; at most 16384 are allowed"),
    ],
)
def test_what_is_not_taken_is_refused_by_name(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        CompilerFlags.of_text(text, "here")
    assert what in str(refused.value)
    assert refused.value.where == "here"


def test_later_flags_win_over_earlier_ones() -> None:
    later, earlier = CompilerFlags.of_text("-I new -DX=2 -O3"), CompilerFlags.of_text("-I old -DX=1 -O1")
    assert later.behind(earlier).text == "-I new -I old -DX=1 -O1 -DX=2 -O3"


def test_paths_are_those_of_a_folder_or_seen_from_another(tmp_path: Path) -> None:
    flags = CompilerFlags.of_text(f"-I include -I ../x -I /usr/y -include {tmp_path}/here/z.h -include w.h -DX=a/b")
    here, there = tmp_path / "here", tmp_path / "src" / "bpf"
    here.mkdir()
    (here / "z.h").touch()
    seen = flags.seen_from(here, there)
    assert seen.text == "-I ../../here/include -I ../../x -I /usr/y -include ../../here/z.h -include w.h -DX=a/b"
    there.mkdir(parents=True)
    assert seen.below(there) == flags.below(here)


def test_the_file_beside_a_source_has_an_argument_on_each_line(tmp_path: Path) -> None:
    source, file = tmp_path / "x.bpf.c", tmp_path / FLAGS_FILE
    assert flags_beside(source) == CompilerFlags()
    (tmp_path / "config.h").touch()
    file.write_text('-Iinclude\n\n-I\n  my headers \n-DTEXT="a"\n-include\nconfig.h\n-I x\n')
    folders = ("-I", f"{tmp_path}/include", "-I", f"{tmp_path}/my headers")
    rest = ('-DTEXT="a"', "-include", f"{tmp_path}/config.h", "-I", f"{tmp_path}/x")
    assert flags_beside(source).words == [*folders, *rest]
    file.write_text("-Iinclude\n-Xclang\n-load\n")
    with pytest.raises(ConfigError, match="found '-Xclang'") as refused:
        flags_beside(source)
    assert refused.value.where == str(file)
    file.write_bytes(b"-I\xff\n")
    with pytest.raises(ConfigError, match="cannot be read: not UTF-8 text"):
        flags_beside(source)


def test_flags_are_a_parameter_of_a_row_and_folders_no_part_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "own.bpf.c").touch()
    (tmp_path / "own.o").touch()
    file = f"{tmp_path}/own.bpf.c"
    plain, searched = probe_kind(f"{file} program=on_read"), probe_kind(f"{file} program=on_read cflags=-Iinclude")
    assert plain.name == searched.name == "own.bpf.c.program-on_read"
    assert (plain.flags, searched.flags, searched.one_program) == ("", "-I include", "on_read")
    defined = [probe_kind(f"{file} program=on_read 'cflags=-I include -DX={value}'") for value in "12"]
    assert len({kind.name for kind in [plain, *defined]}) == 3
    assert defined[0].name.startswith("own.bpf.c.program-on_read.cflags--DX_1.")
    assert parameters_of(f"{file} cflags=''") == {}
    with pytest.raises(ConfigError, match=r"found cflags after own\.o; an object is compiled already"):
        probe_kind(f"{tmp_path}/own.o cflags=-DX")
    with pytest.raises(ConfigError, match="BPF programs take program=NAME, one of the file's, together=all "):
        probe_kind(f"{file} size=1")
