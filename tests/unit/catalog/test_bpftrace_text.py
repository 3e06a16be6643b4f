# SPDX-License-Identifier: GPL-2.0-only
"""Is the text of a bpftrace program read by the rules of bpftrace's lexer: its attach points, and its comments?"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.catalog.bpftrace_text import (
    PROVIDERS,
    AttachPoint,
    UnreadTextError,
    attach_points,
    needs_newer,
    tokens,
)

ACTION = "{ @ = count(); }"


@pytest.mark.parametrize(
    ("text", "points"),
    [
        (f"kprobe:vfs_read {ACTION}", ["kprobe:vfs_read"]),
        (f'kprobe:"vfs_read" {ACTION}', ["kprobe:vfs_read"]),
        ('k:"vfs_read"{@=count()}', ["k:vfs_read"]),
        (f'tracepoint:"syscalls":"sys_enter_read" {ACTION}', ["tracepoint:syscalls:sys_enter_read"]),
        ('BEGIN { printf("kprobe:f {"); } k:g /comm != "k:h {"/ { @ = 1; }', ["BEGIN", "k:g"]),
        (f"kprobe:vfs_read /* was: kprobe:vfs_open */ {ACTION}", ["kprobe:vfs_read"]),
        (f"/* kprobe:vfs_open {{ */ kprobe:vfs_read {ACTION}", ["kprobe:vfs_read"]),
        # A path takes what follows a colon, slashes and stars and all.
        ("uprobe:/usr//lib/x:f {}", ["uprobe:/usr//lib/x:f"]),
        ("kprobe:vfs_*/*c*/ {}", ["kprobe:vfs_*/*c*/"]),
        ("kprobe:vfs_read/pid == 1/ {}", None),
        # Several at one action; spaces and comments between the tokens; an empty one is left out.
        ("kprobe:f,kretprobe:g , t:a:b {}", ["kprobe:f", "kretprobe:g", "t:a:b"]),
        ("kprobe:f, {}", ["kprobe:f"]),
        ("kprobe : /* a */ vfs_ /* b */ read {}", ["kprobe:vfs_read"]),
        ("k:f+0x10 {} k:g + 1_6 {} k:h+1e1 {}", ["k:f+16", "k:g+16", "k:h+10"]),
        # Quotes hide colons, escapes are replaced, a part of a name may be in quotes.
        (r'usdt:"/a:b":"p\x72obe" {}', ["usdt:/a:b:probe"]),
        (r'k:vfs_"re\141d" {}', ["k:vfs_read"]),
        (r'k:"a\"b" {}', ['k:a"b']),
        ('k:"a\\\\\\\\b" {}', ["k:a\\b"]),
        ("k:$1x {} u:$2:f {}", None),
        ("u:$2:f {}", ["u::f"]),
        # Predicates, and actions with braces, texts, comments and types in them.
        ("k:f / 4 / 2 == arg0 / { if (1) { @a = 1; } else { @b = 1; } } k:g {}", ["k:f", "k:g"]),
        ('k:f { printf("}"); } k:g { @["{"] = 1; } k:h {}', ["k:f", "k:g", "k:h"]),
        ("k:f { /* } */ @ = ((struct file *)arg0)->f_mode; } k:g {}", ["k:f", "k:g"]),
        ("k:f { @ = sizeof(struct page); } k:g {}", ["k:f", "k:g"]),
        # Before the probes.
        ("struct a { int b[2]; struct { int c; } d; }; k:f {}", ["k:f"]),
        ("struct a { int b; } union c { int d; }; k:f {}", ["k:f"]),
        ("#include <linux/fs.h>\nk:f {}", ["k:f"]),
        ("#!/usr/bin/env bpftrace\n// k:g {\nk:f {}", ["k:f"]),
        ('config = { max_map_keys = 2; missing_probes = "ignore" } k:f {}', ["k:f"]),
        # What bpftrace refuses, or reads by rules of another version.
        ("k:f", None),
        ("k:f {", None),
        ("k:f {} }", None),
        ("k:f /1 {}", None),
        ("k:f {} // k:g", None),
        ("k:f ! {}", None),
        ('k:"f {}', None),
        (r'k:"\q" {}', None),
        ("k:f /* {}", None),
        ("k:f 'x' {}", None),
        ("k:f+1e99 {}", None),
        ("macro a($b) { $b } k:f {}", None),
        ("(struct a", None),
        ("", []),
    ],
)
def test_a_program_has_these_attach_points(text: str, points: list[str] | None) -> None:
    if points is None:
        with pytest.raises(UnreadTextError):
            attach_points(text)
    else:
        assert list(map(str, attach_points(text))) == points


@pytest.mark.parametrize(
    ("point", "kind", "function", "event"),
    [
        (AttachPoint("k", ("vfs_read",)), "kprobe", "vfs_read", None),
        (AttachPoint("kretprobe", ("nfs", "nfs_open")), "kretprobe", "nfs_open", None),
        (AttachPoint("kfunc", ("vmlinux", "vfs_rea*")), "fentry", "vfs_rea*", None),
        (AttachPoint("fr", ("vfs_read",)), "fexit", "vfs_read", None),
        (AttachPoint("kprobe", ("vfs_read+16",)), "kprobe", "vfs_read", None),
        (AttachPoint("kprobe", ()), "kprobe", None, None),
        (AttachPoint("t", ("sched", "sched_switch")), "tracepoint", None, "sched:sched_switch"),
        (AttachPoint("t", ("sched_switch",)), "tracepoint", None, None),
        (AttachPoint("rt", ("sys_enter",)), "rawtracepoint", None, "sys_enter"),
        (AttachPoint("interval", ("s", "1")), "interval", None, None),
        (AttachPoint("BEGIN", ()), "BEGIN", None, None),
        (AttachPoint("k*", ("vfs_read",)), None, None, None),
        (AttachPoint("kporbe", ("vfs_read",)), None, None, None),
    ],
)
def test_an_attach_point_is_of_a_kind(
    point: AttachPoint, kind: str | None, function: str | None, event: str | None
) -> None:
    assert (point.kind, point.function, point.event) == (kind, function, event)


@pytest.mark.parametrize(
    ("text", "is_newer"),
    [
        (f"kprobe:vfs_read {ACTION}", False),
        (f"kfunc:vfs_read {ACTION}", False),
        (f"fentry:vfs_read {ACTION}", True),
        (f"rawtracepoint:sys_enter {ACTION}", True),
        (f"kprobe:vmlinux:vfs_read {ACTION}", True),
        ('k:f { printf("%s", comm); }', True),
        ("t:syscalls:sys_enter_execve { join (args->argv); }", True),
        ("k:f { let $a = 1; }", True),
        ('k:f { @["printf("] = count(); /* printf( */ }', False),
        ("k:f { @print = 1; }", False),
        ("k:f {", False),
    ],
)
def test_what_the_older_bpftrace_lacks_is_known(text: str, is_newer: bool) -> None:
    assert needs_newer(text) == is_newer


# --- any text -------------------------------------------------------------------------------------

SIGNS = list(":*+.,{}/\\#()@[]'=x\"\n\t ")
PARTS = [":vfs_read", "//", "/*", "*/", " / ", "struct", "$1", "$x", "0x1", "1e3", "config", "#!"]
WORDS = st.sampled_from([*PROVIDERS, *SIGNS, *PARTS])
PROGRAMS = st.lists(WORDS, max_size=30).map("".join) | st.text(max_size=60)
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True)
GAPS = st.sampled_from([" ", "  ", "\n", "/* k:x { */", ' /* } " */ ', "// k:y {\n", "\t"])


def read(text: str) -> list[AttachPoint] | None:
    try:
        return list(attach_points(text))
    except UnreadTextError:
        return None


@given(PROGRAMS)
@example("/" * 200)
@example("/*/" * 200)
@example('"' * 201)
@example("struct" * 50)
def test_any_text_is_read_or_not(text: str) -> None:
    read(text)
    try:
        ends = [(token.start, token.end) for token in tokens(text)]
    except UnreadTextError:
        return
    assert all(start < end for start, end in ends)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


@given(
    st.lists(st.tuples(st.sampled_from(["kprobe", "k", "kfunc"]), NAMES, st.booleans(), GAPS), min_size=1, max_size=4)
)
def test_gaps_and_quotes_change_no_attach_point(probes: list[tuple[str, str, bool, str]]) -> None:
    text = "".join(
        f"{gap}{kind}{gap}:" + (f' {gap}"{name}"' if is_quoted else name) + f' {gap}{{ @ = "{{"; }}'
        for kind, name, is_quoted, gap in probes
    )
    assert read(text) == [AttachPoint(kind, (name,)) for kind, name, _, _ in probes]
