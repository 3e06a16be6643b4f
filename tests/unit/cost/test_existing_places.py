# SPDX-License-Identifier: GPL-2.0-only
"""Is a place that a kernel lacks refused with the nearest name that it has, and no other place?"""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.artifacts.kernel_code import CodePart, KernelCode, Symbol
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.cost.existing_places import lacking
from orchestrator.cost.subjects import AttachPlace

TEXT, DATA = 0x1000, 0x2000
FUNCTIONS = ["vfs_read", "vfs_readv", "vfs_write", "bpf_lsm_file_open", "__x64_sys_read", "__x64_sys_openat"]
EVENTS = {
    "sched_switch": "sched",
    "sched_wakeup": "sched",
    "enter__read": "syscalls",
    "exit__read": "syscalls",
    "block_rq_issue": "block",
}
TEXT_OF_FUNCTION = bytes.fromhex("0f1f440000") + b"\xc3" * 11


def kernel(**other: Any) -> Kernel:
    """A kernel of functions with five bytes of a nop, and of events whose classes have the names of systems."""
    symbols = [Symbol(TEXT + 16 * index, "T", name) for index, name in enumerate(FUNCTIONS)]
    symbols.append(Symbol(TEXT + 16 * len(FUNCTIONS), "T", "_etext"))
    image = bytearray(TEXT_OF_FUNCTION * (len(FUNCTIONS) + 1)).ljust(DATA - TEXT, b"\0")
    for name, system in EVENTS.items():
        event = TEXT + len(image)
        image += struct.pack("<QQQQ", 0, 0, event + 32, 0) + struct.pack("<Q", event + 40)
        image += system.encode().ljust(24, b"\0")
        symbols.append(Symbol(event, "d", f"event_{name}"))
    symbols += [Symbol(DATA + 0x10000, "D", f"__tracepoint_{name}") for name in ("sched_switch", "sys_enter")]
    symbols.append(Symbol(DATA + 0x20000, "D", "event_of_nothing"))
    part = CodePart(TEXT, len(image), 0)
    code = KernelCode(symbols, bytes(image), 8, [part], {".text": CodePart(TEXT, DATA - TEXT, 0)})
    nowhere = {"modules": Path("/nowhere"), "headers": Path("/nowhere")}
    return cast(Kernel, SimpleNamespace(**{"code": code, "spec": SimpleNamespace(arch="x86_64"), **nowhere, **other}))


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (AttachPlace("vfs_read"), None),
        (AttachPlace("vfs_read", offset=5), None),
        (AttachPlace("vfs_rea*"), None),
        (AttachPlace("libc.so.6:mallloc"), None),
        (AttachPlace(), None),
        (AttachPlace(wrong="anything"), None),
        (AttachPlace(system_call="read"), None),
        (AttachPlace(system_call="re*"), None),
        (AttachPlace(event="sched:sched_switch"), None),
        (AttachPlace(event="sched_switch"), None),
        (AttachPlace(event="sched:sched_*"), None),
        (AttachPlace(event="xfs:xfs_file_read"), None),  # a module may have it
        (AttachPlace("vfs_raed"), "it has no function vfs_raed of its own; did you mean vfs_read or"),
        (AttachPlace("vfs_raed*"), "it has no function vfs_raed* of its own; did you mean vfs_read or"),
        (
            AttachPlace("vfs_read", offset=3),
            "vfs_read+0x3 is inside the instruction at +0x0 (5 bytes): instructions begin at",
        ),
        (
            AttachPlace("bpf_lsm_file_opn"),
            "it has no function bpf_lsm_file_opn of its own; did you mean bpf_lsm_file_open",
        ),
        (AttachPlace(system_call="raed"), "it has no system call raed; did you mean read?"),
        (AttachPlace(system_call="zzzz"), "it has no system call zzzz"),
        (
            AttachPlace(event="shced:sched_switch"),
            "it has no tracepoint shced:sched_switch of its own; did you mean sched:",
        ),
        (AttachPlace(event="sched:sched_swich"), "did you mean sched:sched_switch?"),
        (AttachPlace(event="syscall:sys_enter_read"), "did you mean syscalls:sys_enter_read?"),
        (AttachPlace(event="syscalls:sys_entr_read"), "did you mean syscalls:sys_enter_read?"),
        (AttachPlace(event="block:zzzzzzzz"), "it has no tracepoint block:zzzzzzzz of its own"),
        (AttachPlace(event="sched_swich"), "it has no tracepoint sched_swich of its own; did you mean sched_switch?"),
    ],
)
def test_a_kernel_has_a_place_or_lacks_it(place: AttachPlace, reason: str | None) -> None:
    found = lacking(kernel(), place)
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")


def test_a_function_of_a_module_that_calls_load_is_not_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    place, modules = AttachPlace("ext4_file_open"), {"ext4_file_open": "ext4"}
    assert lacking(kernel(), place) is not None
    monkeypatch.setattr("orchestrator.cost.existing_places.missing_module_reason", lambda _, __: None)
    monkeypatch.setattr(
        "orchestrator.cost.existing_places.loaded_code", lambda _, there, name: modules.get(name) in there
    )
    assert lacking(kernel(), place) is None
    assert lacking(kernel(), AttachPlace("ext4_file_opn")) is not None


def test_a_kernel_without_its_image_is_not_asked() -> None:
    assert lacking(kernel(code=None), AttachPlace("vfs_raed")) is None
