# SPDX-License-Identifier: GPL-2.0-only
"""Is a recorder made for the events that were asked for, at places that a module has room for?"""

from __future__ import annotations

import re
from typing import get_args

import pytest

from orchestrator.arch import Arch
from orchestrator.artifacts.kernel_code import KernelCode, Symbol
from orchestrator.artifacts.module_source import Value, render
from orchestrator.catalog.kernels import kernel, kernels
from orchestrator.catalog.probes import standard_events
from orchestrator.errors import UsageError
from orchestrator.paths import data_dir
from orchestrator.probes.recorder import MECHANISMS, MOST_PLACES, MOST_SITES, Mechanism, recorder_values

ARCHITECTURES: tuple[Arch, ...] = get_args(Arch)
HEADERS = {"djprobe": "djprobe.h", "jprobe": "jprobe.h", "kprobe": "optimiser.h"}


def number(file: str, name: str) -> int:
    """What a source of ``kmods`` defines a name as."""
    found = re.search(rf"^#define {name}\s+(\d+)", (data_dir("kmods") / file).read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_event_has_its_places(mechanism: Mechanism, arch: Arch) -> None:
    values = recorder_values(mechanism, arch)
    symbols, events_of, events = values["symbols"], values["events_of"], values["events"]
    assert isinstance(symbols, tuple)
    assert isinstance(events_of, tuple)
    assert events == tuple(standard_events())
    assert len(set(symbols)) == len(symbols) == len(events_of)
    assert set(events_of) == set(range(len(standard_events())))
    if mechanism == "marker":
        assert (values["calls"], len(symbols)) == (0, len(standard_events()))
    else:
        assert isinstance(values["calls"], int)
        assert all("_sys_" in str(symbol) for symbol in symbols[: values["calls"]])
        assert values["calls"] >= 40
        assert len(symbols) <= number("djprobe/djprobe_stub.h", "DETOUR_COUNT")
    source = render("recorder", values)
    assert source.name == "lab_recorder"
    main = source.files["lab_recorder_main.c"]
    assert all(f'"{symbol}"' in main for symbol in symbols)
    for family, header in HEADERS.items():
        assert (header in source.files) == (mechanism.partition("-")[0] == family)


def test_the_reader_takes_as_much_as_the_module_reports() -> None:
    assert number("recorder/places.h", "RECORDER_PLACES_MAX") == MOST_PLACES
    assert number("recorder/places.c", "RECORDER_SITES_MAX") == MOST_SITES


def test_some_events_are_chosen_and_numbered_anew() -> None:
    assert recorder_values("djprobe", "x86_64", ["process_fork", "file_read"]) == {
        "mechanism": "djprobe",
        "events": ("process_fork", "file_read"),
        "calls": 0,
        "symbols": ("wake_up_new_task", "vfs_read"),
        "events_of": (0, 1),
    }


def test_the_function_of_an_event_is_the_one_that_the_kernel_has() -> None:
    def closing(*functions: str) -> Value:
        symbols = [Symbol(0xC1000000 + 16 * place, "T", name) for place, name in enumerate(functions)]
        code = KernelCode(symbols, b"", 4, (), {})
        return recorder_values("kprobe", "i386", ["file_close"], code)["symbols"]

    assert closing("close_fd") == ("close_fd",)
    assert closing("close_fd", "file_close_fd") == ("file_close_fd",)
    assert closing("vfs_read") == ("file_close_fd",)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (["file_raed"], "did you mean 'file_read'"),
        ([], "one event at least"),
        (["file_read", "file_read"], "each once"),
    ],
)
def test_events_that_cannot_be_chosen_are_refused(events: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        recorder_values("kprobe", "i386", events)


@pytest.mark.parametrize("version", ["6.1", "6.12", "7.3"])
def test_every_marker_of_an_event_is_in_the_kernel_s_patch(version: str) -> None:
    (name,) = kernel(f"lab-i386-up-markers@{version}").patches
    patch = (data_dir("images") / "patches" / f"{name}.patch").read_text()
    placed = set(re.findall(r"^\+\s+KERNEL_MARK\((\w+), ", patch, re.MULTILINE))
    assert {event.marker for event in standard_events().values()} <= placed
    assert len(placed) == 14


def test_kernels_with_markers_are_built_with_the_modules_own_files() -> None:
    marked = [spec for name, spec in kernels().items() if name.partition("@")[0].endswith("-markers")]
    assert len(marked) == 12
    for spec in marked:
        assert spec.patches in (["markers"], [f"{spec.version}/markers"])
        assert "markers" in spec.fragments
        assert ("preempt" in spec.fragments) == ("-preempt-" in spec.name)
        assert sorted(spec.files.values()) == ["lib/ktext.c", "lib/ktext.h", "marker/marker.c", "marker/marker.h"]
        assert all((data_dir("kmods") / name).is_file() for name in spec.files.values())
    assert all(spec in marked for spec in kernels().values() if spec.files)


@pytest.mark.parametrize("bad", [("a b",), (1 << 40,), ("x",) * 2000, ('"; evil',), (True,), (("nested",),)])
def test_a_value_that_is_a_tuple_is_checked_element_by_element(bad: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="value symbols"):
        render("recorder", {**recorder_values("kprobe", "i386"), "symbols": bad})
