# SPDX-License-Identifier: GPL-2.0-only
"""Is a bpftrace program read as bpftrace reads it: its texts as they are, its first probe outside of them?"""

from __future__ import annotations

import pytest

from orchestrator.cost.subjects import AttachPlace, place_of_one_liner


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
