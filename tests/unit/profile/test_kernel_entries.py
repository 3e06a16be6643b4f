# SPDX-License-Identifier: GPL-2.0-only
"""Do the parts of a program's run add up to the run, each named after what entered the kernel?"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts.kernel_code import KernelCode, Symbol
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.counted.counts import Code, Counts, Region, Stack
from orchestrator.profile.counted.kernel_entries import counted_runs, has_landmarks, landmarks, part_of, run_counts
from orchestrator.profile.counted.places import Places, places_of
from orchestrator.results.contract import BACKGROUND

START = 0xFFFFFFFF81000000
NAMES = (
    *("_stext", "entry_SYSCALL_64", "do_syscall_64", "__x64_sys_read", "__ia32_compat_sys_read", "vfs_read"),
    *("asm_exc_page_fault", "asm_exc_int3", "asm_sysvec_reboot", "irq_entries_start", "asm_common_interrupt"),
    *("__switch_to_asm", "do_task_dead", "_etext"),
)
AT = {name: START + 0x20 * at for at, name in enumerate(NAMES)}
USER: Stack = (0,)


def places() -> Places:
    listing = "".join(f"{address:x} T {name}\n" for name, address in AT.items()).encode()
    return places_of(Symbols(listing), [], None, "all programs")


def region(stacks: dict[Stack, int], entered: dict[str, int] | None = None) -> Region:
    total, counts = sum(stacks.values()), {Code(AT[name], "90"): Counts(n) for name, n in (entered or {}).items()}
    counts[Code(0, "")] = Counts(total - sum(one.executed for one in counts.values()))
    return Region(total, counts, stacks)


def named(*names: str) -> Stack:
    return tuple(AT[name] for name in names)


CASES = {
    named("__x64_sys_read", "entry_SYSCALL_64", "do_syscall_64", "vfs_read"): ("call", "read"),
    named("__ia32_compat_sys_read", "entry_SYSCALL_64", "vfs_read"): ("call", "read (32 bit)"),
    named("__x64_sys_read", "entry_SYSCALL_64", "asm_exc_int3", "asm_exc_int3"): ("call", "read"),
    named("__x64_sys_read", "entry_SYSCALL_64", "asm_exc_page_fault", "vfs_read"): ("exception", "page_fault"),
    named("__x64_sys_read", "asm_exc_page_fault", "asm_sysvec_reboot", "vfs_read"): ("interrupt", ""),
    named("irq_entries_start", "asm_common_interrupt"): ("interrupt", ""),
    named("asm_exc_page_fault", "asm_exc_page_fault"): ("exception", "page_fault"),
    named("asm_exc_int3", "vfs_read"): ("exception", "int3"),
    named("vfs_read"): ("kernel", ""),
    named("entry_SYSCALL_64", "do_syscall_64"): ("kernel", ""),  # no function of a system call was entered
    USER: ("user", ""),
}


@pytest.mark.parametrize("stack", CASES)
def test_a_part_is_what_entered_the_kernel(stack: Stack) -> None:
    parts = counted_runs([region({USER: 10, stack: 7} if stack != USER else {USER: 17})], places()).parts
    found = {(part.kind, part.name): part.instructions for part in parts}
    assert found == Counter({("user", ""): 9}) + Counter({CASES[stack]: 7})  # less the last reading of the clock


STACKS = st.dictionaries(st.sampled_from([*CASES]), st.integers(1, 10**6)).map(lambda some: {USER: 1, **some})


@given(st.lists(STACKS, min_size=1, max_size=5), st.lists(STACKS, max_size=4))
def test_the_parts_of_each_run_add_up_to_it(probed: list[dict[Stack, int]], without: list[dict[Stack, int]]) -> None:
    regions, plain = ([region(stacks) for stacks in runs] for runs in (probed, without))
    found = counted_runs(regions, places(), run_counts(plain, places()))
    sums = [sum(run) for run in zip(*(part.runs for part in found.parts), strict=True)]
    assert sums == [one.total - 1 for one in regions]
    own = [part for part in found.parts if part.kind not in BACKGROUND]
    assert found.instructions == [sum(run) for run in zip(*(part.runs for part in own), strict=True)]
    assert found.plain == [sum(run) for run in zip(*(part.plain for part in own), strict=True)]
    assert sum(part.instructions for part in own) == sorted(found.instructions)[(len(found.instructions) - 1) // 2]


def test_a_part_is_begun_as_often_as_its_first_instruction_is_executed() -> None:
    entered = {"__x64_sys_read": 3, "asm_exc_page_fault": 2, "irq_entries_start": 4, "asm_sysvec_reboot": 1}
    stacks = dict.fromkeys(CASES, 10)
    parts = counted_runs([region(stacks, {**entered, "vfs_read": 5})], places()).parts
    assert {part.name or part.kind: part.calls for part in parts} == {
        "user": 0,
        "read": 3,
        "read (32 bit)": 0,
        "page_fault": 2,
        "int3": 0,
        "interrupt": 5,
        "kernel": 0,
    }


def test_landmarks_are_in_order_and_have_every_stub() -> None:
    code = KernelCode([Symbol(address, "T", name) for name, address in AT.items()], b"", 8, [], {})
    assert has_landmarks(code)
    lines = (line.split() for line in landmarks(code).splitlines())
    found = {int(address, 16): kind for address, kind in lines}
    assert list(found) == sorted(found)
    stubs = [AT["irq_entries_start"] + 8 * at for at in range(4)]
    kinds = {"__x64_sys_read": "c", "vfs_read": "f", "asm_exc_int3": "t", "__switch_to_asm": "s", "do_task_dead": "d"}
    assert {address: found[address] for address in stubs} == dict.fromkeys(stubs, "t")
    assert {name: found[AT[name]] for name in kinds} == kinds
    assert found[AT["_etext"]] == "e"


def test_a_kernel_without_symbols_has_none() -> None:
    assert not has_landmarks(KernelCode([], b"", 8, [], {}))
    assert not has_landmarks(None)


@pytest.mark.parametrize(("name", "older"), [("asm_exc_page_fault", "page_fault"), ("__x64_sys_read", "sys_read")])
def test_a_kernel_with_other_names_has_none(name: str, older: str) -> None:
    listed = {older if one == name else one: at for one, at in AT.items() if one != "__ia32_compat_sys_read"}
    assert not has_landmarks(KernelCode([Symbol(at, "T", one) for one, at in listed.items()], b"", 8, [], {}))


def test_on_a_32_bit_kernel_all_calls_are_its_own() -> None:
    assert part_of("__ia32_sys_read", is_64_bit=False) == ("call", "read")
