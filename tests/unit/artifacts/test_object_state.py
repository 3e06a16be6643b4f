# SPDX-License-Identifier: GPL-2.0-only
"""Are constants, sizes and contents of maps set as the object's types say, and is everything else refused?"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.object_state import in_state
from orchestrator.artifacts.object_types import ObjectTypes
from orchestrator.artifacts.sources import user_source
from orchestrator.catalog.program_state import ProgramState
from orchestrator.errors import BuildError, ConfigError

SOURCE = Path(__file__).with_name("constants.bpf.c")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("object") / "constants.o"
    argv = ["clang", "-g", "-O2", "-target", "bpf", "-c", str(SOURCE), "-o", str(target)]
    subprocess.run(argv, check=True)
    return target


@pytest.fixture
def built(compiled: Path) -> BpfObject:
    return BpfObject(compiled, compiled, compiled, user_source(compiled), {"program": "kprobe/vfs_read"})


def constants(made: BpfObject) -> dict[str, bytes]:
    """The bytes of the object's constants by name."""
    with made.file.open("rb") as opened:
        elf = ELFFile(opened)
        section = elf.get_section_by_name(".rodata")
        table = elf.get_section_by_name(".symtab")
        assert section is not None
        assert isinstance(table, SymbolTableSection)
        return {
            symbol.name: section.data()[symbol["st_value"] : symbol["st_value"] + symbol["st_size"]]
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_OBJECT" and elf.get_section(symbol["st_shndx"]).name == ".rodata"
        }


def given(context: BuildContext, built: BpfObject, *assignments: str) -> BpfObject:
    return in_state(context, built, ProgramState.of(assignments), built.file)


@pytest.mark.parametrize(
    ("assignment", "name", "value"),
    [
        ("pid=7", "pid", b"\7\0\0\0"),
        ("pid=0xffffffff", "pid", b"\xff\xff\xff\xff"),
        ("least=-1", "least", b"\xff" * 8),
        ("is_on=true", "is_on", b"\1"),
        ("kind=SECOND", "kind", b"\5\0\0\0"),
        ("kind=3", "kind", b"\3\0\0\0"),
        ("comm=sh", "comm", b"sh".ljust(8, b"\0")),
        ("ports=80,443", "ports", b"\x50\0\xbb\1" + bytes(4)),
        ("ports[3]=1", "ports", bytes(6) + b"\1\0"),
        ("filter.uid=9", "filter", b"\1\0\0\0\x09\0\0\0" + bytes(8)),
        ("filter.inner.tid=2", "filter", b"\1\0\0\0" + bytes(4) + b"\2\0\0\0" + bytes(4)),
    ],
)
def test_a_constant_is_set_by_its_type(
    context: BuildContext, built: BpfObject, assignment: str, name: str, value: bytes
) -> None:
    before, after = constants(built), constants(given(context, built, assignment))
    assert after[name] == value
    assert {other: content for other, content in after.items() if other != name} == {
        other: content for other, content in before.items() if other != name
    }


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("pdi=1", "unknown constant 'pdi'; allowed: .*; did you mean 'pid'?"),
        ("pid=-1", "pid is an unsigned integer of 4 bytes, 0 to 4294967295; found -1"),
        ("pid=4294967296", "0 to 4294967295; found 4294967296"),
        ("pid=me", "pid is an unsigned integer of 4 bytes; found 'me'"),
        ("pid.x=1", "pid has no members: it is an unsigned integer of 4 bytes"),
        ("least=9223372036854775808", "a signed integer of 8 bytes, .* found 9223372036854775808"),
        ("is_on=2", "is_on is a bool, 0 to 1; found 2"),
        ("kind=SECNOD", "unknown value of kind 'SECNOD'; allowed: FIRST, SECOND; did you mean 'SECOND'?"),
        ("comm=eightabc", "comm has room for 7 bytes of text; found 8"),
        ("ports=1,2,3,4,5", "ports is an array of 4 elements; found 5 of them"),
        ("ports[4]=1", r"ports has 4 elements: the last is ports\[3\]"),
        ("filter=1", "filter is struct filter: name a member of it, filter.pid or filter.uid"),
        ("filter.gid=1", "unknown member of filter 'gid'; allowed: pid, uid, inner, flag; did you mean 'uid'?"),
        ("filter.flag=1", "filter.flag is a bit field"),
        ("counted=1", "counted is no const volatile variable"),
        ("folded=1", "folded is no const volatile variable"),
    ],
)
def test_a_constant_that_does_not_fit_is_refused(
    context: BuildContext, built: BpfObject, assignment: str, complaint: str
) -> None:
    with pytest.raises(BuildError, match=complaint):
        given(context, built, assignment)


def test_sizes_are_of_maps_that_the_object_has(context: BuildContext, built: BpfObject) -> None:
    made = in_state(context, built, ProgramState.of(sizes=["seen=0x10"]), built.file)
    assert (made.sizes, made.file) == ({"seen": 16}, built.file)
    with pytest.raises(BuildError, match="unknown map 'sene'; allowed: seen, of_each_cpu, ring; did you mean 'seen'"):
        in_state(context, built, ProgramState.of(sizes=["sene=16"]), built.file)


def entries(context: BuildContext, built: BpfObject, text: str, name: str = "seen", size: int = 4) -> BpfObject:
    (built.file.parent / "entries.json").write_text(text)
    folder = built.file.parent
    state = ProgramState.of(sizes=[f"{name}={size}"], contents=[f"{name}=entries.json"])
    return in_state(context, built, state, folder / "constants.o")


RAW = [{"key": ["0x01", "0x00", "0x00", "0x00"], "value": ["0x2"] * 16}]
TYPED = [{"key": 1, "value": {"pid": 258, "inner": {"tid": 1}}}]


def test_entries_are_what_bpftool_prints(context: BuildContext, built: BpfObject) -> None:
    made = entries(context, built, json.dumps(RAW))
    assert made.contents["seen"].read_bytes() == b"\1\0\0\0" + b"\2" * 16
    assert made.source.key != built.source.key
    typed = entries(context, built, json.dumps([*RAW, *TYPED]))
    assert typed.contents["seen"].read_bytes()[20:] == b"\1\0\0\0" + b"\2\1\0\0" + bytes(4) + b"\1\0\0\0" + bytes(4)
    assert typed.source.key != made.source.key


@pytest.mark.parametrize(
    ("text", "name", "complaint"),
    [
        ("[", "seen", "not JSON, expecting value"),
        ("[" * 100_000, "seen", "not JSON"),
        ("{}", "seen", "not a list of entries"),
        ('[{"key": ["0x01"]}]', "seen", "entry 0 has no value"),
        (json.dumps([{**RAW[0], "key": ["0x1"]}]), "seen", "the key of entry 0 has 1 bytes; .* a map that has 4 there"),
        (json.dumps([{**RAW[0], "value": ["2"]}]), "seen", "the value of entry 0 is struct filter"),
        (json.dumps(RAW * 5), "seen", "found 5 entries, and map seen has room for 4"),
        (json.dumps(RAW), "of_each_cpu", "map of_each_cpu has values for each CPU"),
        (json.dumps(RAW), "ring", "map ring is neither a hash, an array nor a trie"),
    ],
)
def test_entries_that_the_map_cannot_have_are_refused(
    context: BuildContext, built: BpfObject, text: str, name: str, complaint: str
) -> None:
    with pytest.raises(BuildError, match=complaint):
        entries(context, built, text, name)


def test_a_file_of_entries_that_is_missing_is_refused(context: BuildContext, built: BpfObject) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json: cannot be read: no such file or directory"):
        in_state(context, built, ProgramState.of(contents=["seen=gone.json"]), built.file)


def test_damaged_type_information_is_refused(built: BpfObject) -> None:
    with built.file.open("rb") as opened:
        types = ELFFile(opened).get_section_by_name(".BTF")
        assert types is not None
        section = types.data()
    for damaged in (b"", section[:30], b"\0" + section[1:], section[:24] + b"\xff" * 200 + section[224:]):
        with pytest.raises(BuildError, match="damaged"):
            _ = ObjectTypes(damaged).maps
