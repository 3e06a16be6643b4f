# SPDX-License-Identifier: GPL-2.0-only
"""Are sections of BPF programs divided as libbpf divides them, and is the nearest one found?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.bpf_sections import Section, nearest_section, section_words
from orchestrator.catalog.probes import probes


def test_each_kind_is_in_the_catalogue_of_probes() -> None:
    assert {word.kind for word in section_words().values() if word.kind} <= probes().keys()


def test_what_programs_run_on_is_known_where_it_is_no_place() -> None:
    assert [word.name for word in section_words().values() if not word.kind and not word.runs_on] == ["usdt"]
    assert not [word.name for word in section_words().values() if word.kind and word.runs_on]


@pytest.mark.parametrize(
    ("text", "word", "target"),
    [
        ("fentry/vfs_read", "fentry", "vfs_read"),
        ("?fentry.s/vfs_read", "fentry", "vfs_read"),
        ("kprobe", "kprobe", ""),
        ("kprobe/vfs_read+0x5", "kprobe", "vfs_read+0x5"),
        ("raw_tp.w/sys_enter", "raw_tp.w", "sys_enter"),
        ("xdp", "xdp", ""),
        ("xdp/cpumap", "xdp/cpumap", ""),
        ("uprobe//bin/sh:main", "uprobe", "/bin/sh:main"),
        # libbpf takes these words whole, or without .s.
        ("xdp/mine", None, "mine"),
        ("kprobe.s/vfs_read", None, "vfs_read"),
        ("xdp.s", None, ""),
        ("kprobes/vfs_read", None, "vfs_read"),
        ("", None, ""),
    ],
)
def test_a_section_has_a_word_and_a_target(text: str, word: str | None, target: str) -> None:
    section = Section.of(text)
    assert (section.word and section.word.name, section.target) == (word, target)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("fentyr/vfs_read", "fentry/vfs_read"),
        ("fentyr.s/vfs_read", "fentry.s/vfs_read"),
        ("kprobe.s/vfs_read", "kprobe/vfs_read"),
        ("Kprobe/vfs_read", "kprobe/vfs_read"),
        ("kprobe_multi/vfs_rea*", "kprobe.multi/vfs_rea*"),
        ("trace_point/sched/sched_switch", "tracepoint/sched/sched_switch"),
        ("tp_bft/sched_switch", "tp_btf/sched_switch"),
        ("xdp_pass", "xdp"),
        ("cgroup/conect4", "cgroup/connect4"),
        ("nonsense/vfs_read", None),
        ("", None),
    ],
)
def test_the_nearest_section_of_a_wrong_one(text: str, nearest: str | None) -> None:
    assert Section.of(text).word is None
    assert nearest_section(text) == nearest


@given(st.text(max_size=40))
def test_the_nearest_section_is_one_of_libbpfs(text: str) -> None:
    nearest = nearest_section(text)
    assert nearest is None or Section.of(nearest).word is not None
