# SPDX-License-Identifier: GPL-2.0-only
"""Is what no kernel writes an error of the cell, in bounded memory, and never a traceback?"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from guest_with_files import guest_with

from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.scaling.kind import scaling_files
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.channel import kernel_value, whole_number
from orchestrator.guest.guest import Guest
from orchestrator.probes.arming import ModuleAttachment
from orchestrator.probes.attachment import Called
from orchestrator.probes.events import read_events
from orchestrator.probes.kernel_text import TextLayout
from orchestrator.probes.placement import RefusedPlaces
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import ModuleMemory, Symbols
from orchestrator.run.guests import KernelFunctions, check_pace

POSSIBLE = "/sys/devices/system/cpu/possible"
RING = "/sys/kernel/debug/lab_kprobe/cpu{}"
PARAMETERS = "/sys/module/lab_kprobe/parameters"
SYMBOLS = b"c1000000 T _stext\nc1001000 T _etext\nc1800000 T _sinittext\n"


def ring(cpu: int, slots: int) -> bytes:
    return struct.pack("<8sIIIHHQ", b"labring", 1, cpu, slots, 64, 4, 0) + bytes(64 * slots)


def attachment(**parameters: bytes) -> ModuleAttachment:
    guest = guest_with({f"{PARAMETERS}/{name}": value for name, value in parameters.items()})
    module = Module("lab_kprobe", Path("lab_kprobe.ko"), "key", None)
    return ModuleAttachment(guest, probes()["kprobe"], module, ProbePoint("vfs_read", 0, 0xC1000000, bytes(16)))


@pytest.mark.parametrize("text", ["", "-1", "1.0", "0x1", "²", "٣", "9" * 21, "9" * 5000, "1\n2"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert whole_number(text) is None


def test_a_value_has_a_page_at_most() -> None:
    guest = guest_with({"/proc/value": b" 12 \n", "/proc/flood": b"1" * 4097, "/proc/odd": b"\xff\n"})
    assert kernel_value(guest, "/proc/value") == "12"
    assert kernel_value(guest, "/proc/odd") == "\N{REPLACEMENT CHARACTER}"
    with pytest.raises(GuestError, match="more than 4096 bytes"):
        kernel_value(guest, "/proc/flood")


@pytest.mark.parametrize("possible", ["0-1", "0-1023", "0-9999", "1", "0,2", "", "-1", "0-" + "9" * 4000])
def test_a_guest_has_no_more_rings_than_its_machine_has_cpus(possible: str) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest's possible CPUs are .{0,44}, and its machine has 1$"):
        read_events(guest_with({POSSIBLE: possible.encode()}), "lab_kprobe")


def test_rings_of_all_the_machines_cpus_are_read() -> None:
    files = {POSSIBLE: b"0-1\n", RING.format(0): ring(0, 4096), RING.format(1): ring(1, 8)}
    assert len(read_events(guest_with(files, smp=2), "lab_kprobe").rings) == 2
    assert len(read_events(guest_with({**files, POSSIBLE: b"0\n"}, smp=2), "lab_kprobe").rings) == 1


def test_a_ring_is_no_larger_than_the_module_makes_it() -> None:
    with pytest.raises(GuestError, match="more than"):
        read_events(guest_with({POSSIBLE: b"0\n", RING.format(0): ring(0, 8192)}), "lab_kprobe")


@pytest.mark.parametrize("number", [b"", b"many", b"-1", b"9" * 4000, b"\xff", b"1 2"])
def test_a_modules_number_is_quoted_when_it_is_none(number: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the module reports missed='.{0,44}'$"):
        attachment(missed=number).check_missed()
    with pytest.raises(EvidenceError, match=r"^the module reports counts='.{0,44}'$"):
        attachment(counts=number).counts(Called("sysenter", 1, frozenset({1})))


@pytest.mark.parametrize("uptime", [b"", b"\n", b"soon", b"nan 1.00", b"1e300 1.00", b"1.00", b"\xff"])
def test_a_guest_that_does_not_say_how_long_it_has_run_is_refused(uptime: bytes) -> None:
    with pytest.raises(EvidenceError, match="does not say how long it has run"):
        check_pace(guest_with({"/proc/uptime": uptime}))


def test_a_list_of_symbols_has_an_end() -> None:
    symbols = Symbols(SYMBOLS + b"c1000000 t a\n" * 500_000)
    with pytest.raises(EvidenceError, match="more than 500000 symbols"):
        symbols.address("a")


def test_a_section_of_another_module_is_passed_over() -> None:
    files = {"/proc/modules": b"ext4 4096 0 - Live 0xd0000000\n"}
    printed = b"/sys/module/other/sections/.data:0xd0000800\n/sys/module/ext4/sections/.data:0xd0000800\n"
    layout = TextLayout.of(guest_with(files, printed=printed), Symbols(SYMBOLS))
    assert [(one.name, one.size) for one in layout.text] == [("kernel", 4096), ("ext4", 2048)]


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_text_and_data_apart_end_where_nothing_is_mapped(pages: int) -> None:
    """Since Linux 6.4 the size of a module is that of all its parts, and the next part may be anywhere."""
    text, data = range(0xD0000000, 0xD0000000 + pages * 4096), range(0xD0010000, 0xD0012000)
    printed = b"/sys/module/ext4/sections/.text:0xd0000000\n/sys/module/ext4/sections/__jump_table:0xd0010800\n"
    files = {"/proc/modules": b"ext4 40960 0 - Live 0xd0000000\n"}
    layout = TextLayout.of(guest_with(files, printed=printed, memory=[text, data]), Symbols(SYMBOLS))
    assert [(one.start, one.end) for one in layout.text[1:]] == [(text.start, text.stop)]
    assert [(one.start, one.end) for one in layout.data[1:]] == [(0xD0010800, data.stop)]


def test_modules_cannot_have_any_amount_of_text() -> None:
    modules = b"".join(b"m%d 33554432 0 - Live 0xd0000000\n" % number for number in range(5))
    with pytest.raises(EvidenceError, match="more than 128 MiB"):
        TextLayout.of(guest_with({"/proc/modules": modules}), Symbols(SYMBOLS))


@pytest.mark.parametrize(
    ("file", "line", "read"),
    [
        ("/proc/modules", b"a 1 0 - Live 0x1\n", ModuleMemory.all_of),
        (
            "/sys/kernel/debug/kprobes/blacklist",
            b"0x1-0x1\t\n",
            lambda guest: RefusedPlaces.of(guest, Symbols(SYMBOLS)),
        ),
    ],
)
def test_a_list_that_becomes_objects_has_an_end(file: str, line: bytes, read: Callable[[Guest], object]) -> None:
    read(guest_with({file: line}))
    with pytest.raises(GuestError, match="more than"):
        read(guest_with({file: line * 200_000}))


def test_a_function_beyond_an_architectures_memory_fails_the_cell() -> None:
    listing = b"ffffffff81000000 T _stext\nffffffff81000100 T one\nffffffff81001000 T _etext\n"
    lists = KernelFunctions(listing, b"")
    sites = scaling_files("kpcache_scaling", lists, "x86_64", 1, 0)[0]["sites"]
    assert isinstance(sites, bytes)
    assert len(sites) >= 8
    with pytest.raises(EvidenceError, match=r"a function at 0xffffffff81000\d00, where i386 has no memory"):
        scaling_files("kpcache_scaling", lists, "i386", 1, 0)
