# SPDX-License-Identifier: GPL-2.0-only
"""Is a bpftrace program read as bpftrace reads it: its texts as they are, its first probe outside of them?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cost.subjects import AttachPlace, place_of_one_liner, read_script
from orchestrator.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('BEGIN { printf("a kprobe:foo b"); } kprobe:vfs_read { @ = count(); }', AttachPlace("vfs_read")),
        ('BEGIN { @x = 1; kprobe:foo } kprobe:vfs_read { @["}"] = count(); }', AttachPlace("vfs_read")),
        ('kprobe:vfs_read / comm == "a kprobe:b" / { @ = count(); }', AttachPlace("vfs_read")),
        ("tracepoint:syscalls:sys_enter_re* { @ = count(); }", AttachPlace(system_call="re*")),
        ("tracepoint:sys*:sys_enter_read { @ = count(); }", AttachPlace(event="sys*:sys_enter_read")),
        ("tracepoint:syscalls:sys_*_read { @ = count(); }", AttachPlace(event="syscalls:sys_*_read")),
        ('kprobe:"vfs_read" { @ = count(); }', AttachPlace("vfs_read")),
        ('tracepoint:"syscalls":"sys_enter_read" { @ = count(); }', AttachPlace(system_call="read")),
        ("/* kprobe:vfs_open { */ kprobe:vfs_read { @ = count(); }", AttachPlace("vfs_read")),
        ("kprobe:vfs_read /* was: kprobe:vfs_open */ { @ = count(); }", AttachPlace("vfs_read")),
        ("kprobe:vfs_read", AttachPlace()),
        ("tracepoint:syscalls:sys_enter_read { @ = count(); }", AttachPlace(system_call="read")),
    ],
)
def test_the_first_probe_is_outside_of_texts_and_actions(text: str, place: AttachPlace) -> None:
    assert place_of_one_liner(text) == place


def test_spaces_and_slashes_in_texts_stay(tmp_path: Path) -> None:
    file = tmp_path / "own.bt"
    file.write_text('#!/usr/bin/bpftrace\n// reads\nkprobe:vfs_read\n{\n  printf("a  // b\\n");  /* c\n */ @ = 1;\n}\n')
    assert read_script(file) == 'kprobe:vfs_read { printf("a  // b\\n"); @ = 1; }'


def test_slashes_and_stars_of_a_path_are_no_comment(tmp_path: Path) -> None:
    file = tmp_path / "own.bt"
    file.write_text("uprobe:/usr//lib/x:f { @ = 1; }\n// the end")
    assert read_script(file) == "uprobe:/usr//lib/x:f { @ = 1; }"


def test_a_script_is_measured_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "own.bt"
    file.write_text("kprobe:vfs_read { @ = 1; }\n" + "// a comment\n" * 2000 + "kprobe:vfs_read { @b = 1; }\n")
    with pytest.raises(ConfigError, match="more than 16384 characters"):
        read_script(file)
