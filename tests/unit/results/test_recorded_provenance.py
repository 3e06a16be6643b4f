# SPDX-License-Identifier: GPL-2.0-only
"""Is all that two runs were not made with alike named, and nothing else?"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import LabError
from orchestrator.results.recorded_provenance import (
    FILE_NAME,
    RecordedProvenance,
    host_differences,
    provenance_differences,
    provenance_of,
)

SESSION: dict[str, Any] = {
    "orchestrator": "0.1.0",
    "python": "3.11.7",
    "qemu": "QEMU emulator version 7.2.22",
    "compiler": "gcc 12.2.0",
    "guests": "Debian 12",
    "host": {"kernel": "6.18.44", "machine": "x86_64", "cpus": 2},
}
BOOT: dict[str, Any] = {
    "name": "boot1/guest1-pentium4-debian-686",
    "qemu": ["qemu-system-x86_64", "-cpu", "pentium3", "-append", "nokaslr", "-kernel", "/a/vmlinuz"],
    "kernel": {
        "name": "debian-686",
        "release": "6.1.0-50-686",
        "packages": {"linux-image-6.1.0-50-686:i386": "6.1.176-1", "linux-kbuild-6.1:amd64": "6.1.176-1"},
        "origin": {"linux-image-6.1.0-50-686:i386": "6.1.176-1 (bookworm)"},
        "image_sha256": "aa",
    },
    "initramfs_sha256": "bb",
    "modules": {
        "pentium4/debian-686/kprobe/noop": {"name": "lab_kprobe", "file_sha256": "cc", "key": "k1"},
        "pentium4/debian-686/kprobe/count": {"name": "lab_kprobe", "file_sha256": "cc", "key": "k1"},
    },
    "sources": {"k1": {"lab_kprobe_main.c": "s1", "ring.c": "s2", "Kbuild": "s3"}},
}
RUN: dict[str, Any] = {"sessions": [SESSION], "boots": [BOOT]}


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    """The run's provenance with another value at ``path``."""
    content = copy.deepcopy(RUN)
    holder: Any = content
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = to
    return content


def sentences(after: dict[str, Any], before: dict[str, Any] = RUN) -> list[str]:
    differences = provenance_differences(
        RecordedProvenance.model_validate(before), RecordedProvenance.model_validate(after)
    )
    return [difference.sentence for difference in differences]


def test_the_same_run_differs_in_nothing() -> None:
    assert sentences(RUN) == []


@pytest.mark.parametrize(
    ("path", "to", "sentence"),
    [
        (("sessions", 0, "orchestrator"), "0.2.0", "this program: 0.1.0 -> 0.2.0"),
        (("sessions", 0, "qemu"), "QEMU 10", "QEMU: QEMU emulator version 7.2.22 -> QEMU 10"),
        (("sessions", 0, "compiler"), "gcc 14", "compiler of guests' programs: gcc 12.2.0 -> gcc 14"),
        (("sessions", 0, "guests"), "Debian 13", "release of guests' packages: Debian 12 -> Debian 13"),
        (("boots", 0, "kernel", "image_sha256"), "xx", "kernel debian-686: its image changed"),
        (("boots", 0, "initramfs_sha256"), "xx", "programs in guests with kernel debian-686: changed"),
        (("boots", 0, "qemu", 4), "kaslr", "kernel command line of pentium4-debian-686: nokaslr -> kaslr"),
        (("boots", 0, "qemu", 2), "pentium4", "CPU of pentium4-debian-686: pentium3 -> pentium4"),
        (("boots", 0, "sources", "k1", "ring.c"), "xx", "module lab_kprobe: ring.c changed"),
        (("boots", 0, "sources", "k1", "lab_kprobe_main.c"), "xx", "module lab_kprobe: its template changed"),
    ],
)
def test_one_thing_that_changed(path: tuple[str | int, ...], to: Any, sentence: str) -> None:
    assert sentences(changed(*path, to=to)) == [sentence]


CELL, OTHER = "pentium4/debian-686/kprobe/noop", "pentium4/debian-686/kprobe/count"
OWN: dict[str, Any] = {
    "inputs": {
        CELL: {
            "workload": {"name": "reading.c", "file": "/a/reading.c", "key": "w1"},
            "probe": {"name": "mine.c", "key": "p1"},
        },
        OTHER: {"workload": {"name": "reading.c", "file": "/a/reading.c", "key": "w1"}},
    },
    "sources": {**BOOT["sources"], "w1": {"reading.c": "d1", "shared.h": "d2"}, "p1": {"mine.c": "d3"}},
}
WITH_OWN: dict[str, Any] = {"sessions": [SESSION], "boots": [{**BOOT, **OWN}]}


def another(key: str, to: str, title: str, **session: str) -> dict[str, Any]:
    """The run with another digest of a file of the user's, for all cells."""
    run = copy.deepcopy(WITH_OWN)
    (boot,) = run["boots"]
    boot["sources"][to] = {**boot["sources"][key], title: "changed"}
    for inputs in boot["inputs"].values():
        for one in inputs.values():
            one["key"] = to if one["key"] == key else one["key"]
    run["sessions"][0] |= session
    return run


def test_a_changed_file_of_the_user_s_is_named_first() -> None:
    assert sentences(WITH_OWN, WITH_OWN) == []
    after = another("w1", "w2", "shared.h", qemu="QEMU 10")
    assert sentences(after, WITH_OWN) == [
        "workload reading.c: shared.h changed",
        "QEMU: QEMU emulator version 7.2.22 -> QEMU 10",
    ]
    assert sentences(another("p1", "p2", "mine.c"), WITH_OWN) == ["probe mine.c: mine.c changed"]


def test_a_module_of_the_user_s_that_changed_is_not_named_twice() -> None:
    after = another("p1", "p2", "mine.c")
    after["boots"][0]["modules"][CELL]["key"] = "k2"
    after["boots"][0]["sources"]["k2"] = {**BOOT["sources"]["k1"], "lab_kprobe_main.c": "changed"}
    assert sentences(after, WITH_OWN) == ["probe mine.c: mine.c changed"]


def test_lines_of_cells_with_two_ids_are_named() -> None:
    ones, others = (copy.deepcopy(WITH_OWN) for _ in range(2))
    ones["boots"][0]["inputs"] = {"a": {"probe": {"name": "bpftrace: kprobe:x { }", "key": "l1"}}}
    others["boots"][0]["inputs"] = {"b": {"probe": {"name": "bpftrace: kprobe:y { }", "key": "l2"}}}
    differences = provenance_differences(
        RecordedProvenance.model_validate(ones), RecordedProvenance.model_validate(others), [("a", "b")]
    )
    assert [difference.sentence for difference in differences] == [
        "probe: bpftrace: kprobe:x { } -> bpftrace: kprobe:y { }"
    ]


def test_a_run_of_a_version_that_recorded_no_sources_differs_in_nothing_known() -> None:
    assert sentences(WITH_OWN) == sentences(RUN, WITH_OWN) == []


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("sessions", 0, "python"), "3.13"),
        (("sessions", 0, "host", "kernel"), "6.19"),
        (("boots", 0, "name"), "boot7/guest2-pentium4-debian-686"),
        (("boots", 0, "qemu", 6), "/b/vmlinuz"),
        (("boots", 0, "kernel", "origin", "linux-image-6.1.0-50-686:i386"), "6.1.176-1 (bookworm-security)"),
        (("boots", 0, "modules", "pentium4/debian-686/djprobe/noop"), {"name": "lab_djprobe", "key": "k2"}),
    ],
)
def test_what_no_exact_number_depends_on_is_not_said(path: tuple[str | int, ...], to: Any) -> None:
    assert sentences(changed(*path, to=to)) == []


def test_another_kernel_package_is_named_with_both_versions() -> None:
    newer = copy.deepcopy(RUN)
    kernel = newer["boots"][0]["kernel"]
    kernel |= {"release": "6.1.0-56-686", "packages": {"linux-image-6.1.0-56-686:i386": "6.1.187-1"}}
    kernel["image_sha256"] = "xx"  # as it must, and not said again
    assert sentences(newer) == ["kernel debian-686: 6.1.0-50-686 (6.1.176-1) -> 6.1.0-56-686 (6.1.187-1)"]


def test_a_restored_guest_s_memory_is_no_difference() -> None:
    booted = changed("boots", 0, "qemu", to=["qemu", "-machine", "pc-i440fx-7.0,usb=off"])
    restored = changed("boots", 0, "qemu", to=["qemu", "-machine", "pc-i440fx-7.0,usb=off,memory-backend=pc.ram"])
    assert sentences(restored, booted) == []
    newer = changed("boots", 0, "qemu", to=["qemu", "-machine", "pc-i440fx-10.0,usb=off"])
    assert sentences(newer, booted) == [
        "machine of pentium4-debian-686: pc-i440fx-7.0,usb=off -> pc-i440fx-10.0,usb=off"
    ]


def test_a_kernel_from_source_has_the_sources_version() -> None:
    built = changed("boots", 0, "kernel", "packages", to={})
    newer = copy.deepcopy(built)
    newer["boots"][0]["kernel"]["origin"] = {"linux-image-6.1.0-50-686:i386": "6.1.187-1 (bookworm)"}
    assert sentences(newer, built) == ["kernel debian-686: 6.1.0-50-686 (6.1.176-1) -> 6.1.0-50-686 (6.1.187-1)"]


def test_a_module_of_several_cells_is_named_once() -> None:
    content = copy.deepcopy(RUN)
    boot = content["boots"][0]
    for module in boot["modules"].values():
        module["key"] = "k2"
    boot["sources"] = {"k2": {"lab_kprobe_main.c": "x1", "ring.c": "x2", "Kbuild": "s3"}}
    assert sentences(content) == ["module lab_kprobe: its template, ring.c changed"]


def test_a_module_of_the_users_own_has_a_main_file() -> None:
    before, after = copy.deepcopy(RUN), copy.deepcopy(RUN)
    for content, digest in [(before, "s1"), (after, "s2")]:
        boot = content["boots"][0]
        boot["modules"] = {"a/b": {"name": "own_mine", "key": "k1"}}
        boot["sources"] = {"k1": {"own_mine_main.c": digest}}
    assert sentences(after, before) == ["module own_mine: its main file changed"]


def test_a_run_of_an_earlier_version_says_what_it_can() -> None:
    old = copy.deepcopy(RUN)
    boot = old["boots"][0]
    del boot["sources"]
    for module in boot["modules"].values():
        del module["name"]
    newer = copy.deepcopy(old)
    newer["boots"][0]["modules"]["pentium4/debian-686/kprobe/noop"]["key"] = "k2"
    assert sentences(newer, old) == ["module of pentium4/debian-686/kprobe/noop: its sources changed"]
    # With another kernel a module is another file, whatever its sources are.
    newer["boots"][0]["kernel"]["image_sha256"] = "xx"
    assert sentences(newer, old) == ["kernel debian-686: its image changed"]


def test_an_image_names_its_packages() -> None:
    image = {"name": "debian-i386", "key": "i1", "packages": {"bash": "5.2", "dash": "0.5"}}
    before = changed("boots", 0, "image", to=image)
    after = changed("boots", 0, "image", to={**image, "key": "i2", "packages": {"bash": "5.3", "dash": "0.5"}})
    assert sentences(after, before) == ["image debian-i386: bash changed"]


def test_the_host_is_apart() -> None:
    moved = RecordedProvenance.model_validate(changed("sessions", 0, "host", "cpus", to=8))
    (difference,) = host_differences(RecordedProvenance.model_validate(RUN), moved)
    assert difference.sentence == "host's cpus: 2 -> 8"


def test_unknown_provenance_is_no_difference(tmp_path: Path) -> None:
    assert sentences(RUN, {}) == []
    assert sentences({"sessions": [{}], "boots": []}) == []
    assert provenance_of(tmp_path) == RecordedProvenance.model_validate({"sessions": [{}]})


def test_the_file_comes_before_what_the_store_has(tmp_path: Path) -> None:
    assert provenance_of(tmp_path, SESSION).sessions[0].qemu == SESSION["qemu"]
    (tmp_path / FILE_NAME).write_text(json.dumps(changed("sessions", 0, "qemu", to="another")))
    assert provenance_of(tmp_path, SESSION).sessions[0].qemu == "another"


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"boots": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(LabError, match=f"{FILE_NAME}: damaged"):
        provenance_of(tmp_path)


@given(st.text(max_size=2000))
def test_texts_of_others_are_short_and_printable(text: str) -> None:
    for sentence in sentences(changed("sessions", 0, "qemu", to=text)):
        assert sentence.isprintable()
        assert len(sentence) < 700
