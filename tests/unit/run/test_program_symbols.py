# SPDX-License-Identifier: GPL-2.0-only
"""Does a debugger read the symbols of BPF programs from any folder?"""

from __future__ import annotations

import shlex
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.run.program_symbols import added_programs

PROGRAMS = {0xFFFFFFFFC0000000: "BPF program count", 0xFFFFFFFFC0000200: "BPF trampoline"}


def test_a_folder_with_a_space_is_one_word_of_the_command(tmp_path: Path) -> None:
    """gdb splits the words of this command as a shell does."""
    folder = tmp_path / "my lab's"
    folder.mkdir()
    command, file, *places = shlex.split(added_programs(folder, PROGRAMS, "x86_64"))
    assert (command, Path(file).parent) == ("add-symbol-file", folder)
    assert places == ["-s", ".bpf0", "0xffffffffc0000000", "-s", ".bpf1", "0xffffffffc0000200"]
    with Path(file).open("rb") as opened:
        table = ELFFile(opened).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        assert {"bpf_prog_count", "bpf_trampoline"} <= {symbol.name for symbol in table.iter_symbols()}
