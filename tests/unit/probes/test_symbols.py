# SPDX-License-Identifier: GPL-2.0-only
"""Are a kernel's functions and objects found in its list, and nothing that only looks like one?"""

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
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value, whole_number
from orchestrator.probes.arming import ModuleAttachment
from orchestrator.probes.attachment import Called
from orchestrator.probes.events import read_events
from orchestrator.probes.placement import RefusedPlaces
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import KALLSYMS, ModuleMemory, Symbols
from orchestrator.probes.text_layout import TextLayout
from orchestrator.run.guest_checks import check_pace
from orchestrator.run.kernel_functions import KernelFunctions

LISTING = b"""\
c1000000 T _stext
c17a8ee0 d kpcache
c17cceb0 d behind
c1800000 d twice
c1800010 d twice
c1900000 T kpcache_get
c2000000 b last
"""


def test_an_object_ends_at_the_next_symbol() -> None:
    assert Symbols(LISTING).object_size("kpcache") == 0x23FD0


def test_size_is_unknown_for_functions_duplicates_and_the_last_symbol() -> None:
    for name in ("kpcache_get", "twice", "last", "nothing", "kp.ache"):
        assert Symbols(LISTING).object_size(name) is None


FUNCTIONS = Symbols(b"""\
c1000000 T _stext
c1000010 t twice
c1000020 t twice
c1000040 T __ia32_sys_getpid
c1000040 t __do_sys_getpid
c1000040 r table
c1000060 t module_like
nonsense
d0846050 t module_like\t[mine]
d0846090 t only_in_a_module\t[mine]
""")


def test_a_function_of_the_kernels_own_has_one_address() -> None:
    assert FUNCTIONS.address("__do_sys_getpid") == 0xC1000040
    assert FUNCTIONS.address("module_like") == 0xC1000060
    assert FUNCTIONS.size("__ia32_sys_getpid") == 0x20
    for name, message in (
        ("twice", "2 functions twice"),
        ("table", "no function"),
        ("only_in_a_module", "no function"),
    ):
        with pytest.raises(EvidenceError, match=message):
            FUNCTIONS.address(name)


def test_a_function_of_a_module_that_is_named_is_found_where_the_kernel_has_none() -> None:
    with_mine = Symbols(FUNCTIONS.listing, frozenset({"mine", "other"}))
    assert with_mine.address("only_in_a_module") == 0xD0846090
    assert with_mine.address("module_like") == 0xC1000060
    assert [with_mine.functions(name) for name in ("only_in_a_module", "nothing")] == [1, 0]
    assert [with_mine.module(address) for address in (0xD0846092, 0xC1000060)] == ["mine", None]
    with pytest.raises(EvidenceError, match="no function only_in_a_module"):
        Symbols(FUNCTIONS.listing, frozenset({"other"})).address("only_in_a_module")


def test_all_names_of_a_function_are_known_and_no_object_is_one() -> None:
    assert FUNCTIONS.names(0xC1000040) == {"__ia32_sys_getpid", "__do_sys_getpid"}
    assert FUNCTIONS.names(0xC1000041) == frozenset()


MODULES = b"""\
c1000060 T vfs_read
d0846050 t exit_mine\t[mine]
d0846050 t cleanup_module\t[mine]
d0846090 t vfs_read\t[mine]
d08460a0 t helper\t[mine]
d08460c0 r table\t[mine]
d0849000 t helper\t[other]
d0849040 t vfs_read\t[other]
d0849080 t alone\t[third]
"""


def test_a_module_s_function_has_aliases_as_one_of_the_kernel_has() -> None:
    symbols = Symbols(MODULES, frozenset({"mine"}))
    assert symbols.names(0xD0846050) == {"exit_mine", "cleanup_module"}
    assert symbols.address("cleanup_module") == symbols.address("exit_mine")


def test_modules_that_share_a_kernel_functions_name_are_listed() -> None:
    symbols = Symbols(MODULES)
    assert symbols.address("vfs_read") == 0xC1000060
    assert [symbols.sharing(name) for name in ("vfs_read", "table", "alone")] == [["mine", "other"], [], ["third"]]


def test_a_name_that_two_modules_share_is_no_function() -> None:
    with pytest.raises(EvidenceError, match="has 2 functions helper in modules mine and other: the name is ambiguous"):
        Symbols(MODULES, frozenset({"mine"})).address("helper")
    with pytest.raises(EvidenceError, match="no function helper"):
        Symbols(MODULES, frozenset({"third"})).address("helper")


def test_an_address_has_the_symbol_before_it_a_modules_too() -> None:
    assert FUNCTIONS.at(0xC1000015) == "twice+0x5"
    assert FUNCTIONS.at(0xC1000040) == "table"
    assert FUNCTIONS.at(0xD0846092) == "only_in_a_module+0x2"
    assert FUNCTIONS.at(0x1000) == "0x1000"


def test_guests_share_what_was_parsed_only_where_their_lists_are_equal() -> None:
    texts = (LISTING, bytes(bytearray(LISTING)), LISTING.replace(b"c1900000", b"c1900010"))
    first, same, other_symbols = (Symbols.of(guest_with({KALLSYMS: text})) for text in texts)
    assert same is first
    assert other_symbols is not first
    assert (first.address("kpcache_get"), other_symbols.address("kpcache_get")) == (0xC1900000, 0xC1900010)


# Is what no kernel writes an error of the cell, in bounded memory, and never a traceback?

POSSIBLE = "/sys/devices/system/cpu/possible"


RING = "/sys/kernel/debug/lab_kprobe/cpu{}"


PARAMETERS = "/sys/module/lab_kprobe/parameters"


SYMBOLS = b"c1000000 T _stext\nc1001000 T _etext\nc1800000 T _sinittext\n"


def ring(cpu: int, slots: int) -> bytes:
    return struct.pack("<8sIIIHHQ", b"labring", 1, cpu, slots, 64, 4, 0) + bytes(64 * slots)


def attachment(**parameters: bytes) -> ModuleAttachment:
    guest = guest_with({f"{PARAMETERS}/{name}": value for name, value in parameters.items()})
    module = Module("lab_kprobe", Path("lab_kprobe.ko"), "key", None)
    point = ProbePoint("vfs_read", 0, 0xC1000000, bytes(16))
    return ModuleAttachment(guest, probes()["kprobe"], module, point, Symbols(b""))


@pytest.mark.parametrize("text", ["", "-1", "1.0", "0x1", "²", "٣", "9" * 21, "9" * 5000, "1\n2"])
def test_text_without_a_number_is_none(text: str) -> None:
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
    assert [(span.name, span.size) for span in layout.text] == [("kernel", 4096), ("ext4", 2048)]


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_text_and_data_apart_end_where_nothing_is_mapped(pages: int) -> None:
    """Since Linux 6.4 the size of a module is that of all its parts, and the next part may be anywhere."""
    text, data = range(0xD0000000, 0xD0000000 + pages * 4096), range(0xD0010000, 0xD0012000)
    printed = b"/sys/module/ext4/sections/.text:0xd0000000\n/sys/module/ext4/sections/__jump_table:0xd0010800\n"
    files = {"/proc/modules": b"ext4 40960 0 - Live 0xd0000000\n"}
    layout = TextLayout.of(guest_with(files, printed=printed, memory=[text, data]), Symbols(SYMBOLS))
    assert [(span.start, span.end) for span in layout.text[1:]] == [(text.start, text.stop)]
    assert [(span.start, span.end) for span in layout.data[1:]] == [(0xD0010800, data.stop)]


def test_text_ends_with_the_page_of_its_last_function_where_other_code_follows() -> None:
    """Since Linux 6.13 there may be a trampoline on the next page, in the same mapping."""
    printed = b"/sys/module/ext4/sections/.text:0xd0000000\n/sys/module/ext4/sections/__jump_table:0xd0010800\n"
    listing = SYMBOLS + b"d0000010 t ext4_first\t[ext4]\nd0001ff0 t ext4_last\t[ext4]\nd0002000 t bpf_prog\t[bpf]\n"
    files = {"/proc/modules": b"ext4 40960 0 - Live 0xd0000000\n"}
    layout = TextLayout.of(guest_with(files, printed=printed), Symbols(listing))
    assert [(span.start, span.end) for span in layout.text[1:]] == [(0xD0000000, 0xD0002000)]
    assert [span.start for span in layout.data[1:]] == [0xD0010800]


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
