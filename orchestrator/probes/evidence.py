# SPDX-License-Identifier: GPL-2.0-only
"""The evidence required at a probe point before a number measured there is valid.

Two sources must agree: the guest's kernel (``kprobes/list``, the function tracer's list) and the live bytes, which QEMU
reads from outside. The kernel alone may be early: it lists a probe as optimised before its jump is in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from orchestrator.arch import CALL, INT3, JMP
from orchestrator.catalog.probes import Mechanism, ProbeKind, Site
from orchestrator.errors import EvidenceError, OtherMechanism
from orchestrator.guest.guest import Guest
from orchestrator.probes import traced_functions
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols

KPROBES_LIST = "/sys/kernel/debug/kprobes/list"
OUT_OF_TREE = 1 << 12
UNSIGNED = 1 << 13
"""The kernel's taint bits for out-of-tree and unsigned modules (Documentation/admin-guide)."""

JUMP_BYTES = 5
_SHORT = 0xEB

MISSED_RETURNS = (
    "the kernel follows the returns of a limited number of threads at a time (maxactive): probe a function in which "
    "fewer of them sleep"
)
"""The hint for missed returns."""


class _Look(NamedTuple):
    """The look of an armed place: its first byte (None: any but the original), and the kernel's flags for it."""

    described: str
    first: Sequence[int] | None
    flags: str = ""


_LOOKS: dict[tuple[Site, Mechanism], _Look] = {
    ("kprobe", "int3"): _Look("int3", [INT3]),
    ("kprobe", "jump"): _Look("the kernel's jump optimisation", [JMP], "[OPTIMIZED]"),
    ("kprobe", "detour"): _Look("int3, waiting to be optimised", [INT3], "[OPTIMIZED]"),
    ("kprobe", "ftrace"): _Look("the function tracer", [CALL], "[FTRACE]"),
    ("kprobe", "jmp"): _Look("a djprobe's own jump", [JMP]),
    ("ftrace", "ftrace"): _Look("the function tracer", [CALL], "[TRACED]"),
    ("ftrace", "direct"): _Look("a direct call", [CALL, JMP], "[TRACED]"),
    ("tracepoint", "tracepoint"): _Look("a static branch that is taken", [JMP, _SHORT], "[ENABLED]"),
    ("hook", "pointer"): _Look("a pointer", None),
    ("program", "int3"): _Look("a uprobe's int3", [INT3]),
    ("program", "call"): _Look("a uprobe's int3, until its first hit", [INT3]),
}


@dataclass(frozen=True)
class Observation:
    """A probe point's current bytes, and how the kernel lists it (None: not at all).

    ``probes`` is the number of kprobes that the kernel lists there, ``traced`` the function in the tracer's list, and
    ``called`` the function that the tracer calls for it, if known.
    """

    live: bytes
    flags: str | None
    probes: int = 1
    traced: traced_functions.Traced | None = None
    called: str | None = None

    @property
    def jump_target(self) -> int | None:
        if self.live[0] not in (CALL, JMP):
            return None
        return JUMP_BYTES + int.from_bytes(self.live[1:JUMP_BYTES], "little", signed=True)

    @property
    def pointer(self) -> int:
        return int.from_bytes(self.live, "little")


def observe(guest: Guest, point: ProbePoint, site: Site = "kprobe") -> Observation:
    """Read both sources at a probe point. The kernel lists no hooks and no tracepoint probes."""
    live = guest.read_memory(point.address, len(point.original))
    if site == "ftrace":
        traced = _traced(guest, point)
        return Observation(live, "[TRACED]" if traced else None, traced=traced)
    if site not in ("function", "kprobe"):
        return Observation(live, None)
    listing = guest.get(KPROBES_LIST).decode("ascii", errors="replace")
    # "c1107745  k  __ia32_sys_gettimeofday+0x5    [FTRACE]"; root sees full addresses. Each kprobe has a line; a
    # module's name follows its function.
    entries = re.findall(rf"^0*{point.address:x} +[krj] +\S+(?: +\w+)?((?: *\[[A-Z]+\])*)", listing, re.MULTILINE)
    flags = re.sub(r"\s+", "", entries[0]) if entries else None
    return Observation(live, flags, len(entries), _traced(guest, point) if flags == "[FTRACE]" else None)


def listed_probes(guest: Guest) -> Sequence[str]:
    """Where the kernel lists kprobes, and the functions that it traces: ``do_sys_openat2+0x5``. No tracepoints."""
    kprobes = re.findall(r"^[0-9a-f]+ +[krj] +(\S+)", guest.get(KPROBES_LIST).decode(errors="replace"), re.MULTILINE)
    traced = re.findall(
        r"^(\S+) \(", guest.get(traced_functions.TRACED_FUNCTIONS).decode(errors="replace"), re.MULTILINE
    )
    return list(dict.fromkeys([*kprobes, *traced]))


def followed(
    guest: Guest,
    symbols: Symbols,
    kind: ProbeKind,
    point: ProbePoint,
    seen: Observation,
    known: MutableMapping[tuple[bytes, traced_functions.Traced], str],
) -> Observation:
    """Add to an observation what the function tracer calls at the probe point, if that is the kind's mechanism.

    ``known`` caches direct calls by the bytes at the point and the kernel's line: finding one takes 0.4 s, as it reads
    all symbols. It is valid for one attachment, as trampolines come and go.
    """
    if seen.traced is None or seen.jump_target is None:
        return seen
    target, place = point.address + seen.jump_target, (seen.live, seen.traced)
    if kind.mechanism == "ftrace":
        return replace(seen, called=traced_functions.called_by_tracer(guest, symbols, seen.traced, target))
    # What calls BPF programs is proved where their addresses are known.
    is_of_programs = kind.program is not None or kind.has_own_programs
    if is_of_programs or kind.mechanism not in ("direct", "own") or seen.traced.direct is None:
        return seen
    if place not in known:
        known[place] = traced_functions.direct_trampoline(guest, target)
    return replace(seen, called=known[place])


def _traced(guest: Guest, point: ProbePoint) -> traced_functions.Traced | None:
    listing = guest.get(traced_functions.TRACED_FUNCTIONS).decode("ascii", errors="replace")
    return traced_functions.find_traced(listing, {point.symbol, *point.aliases}, point.module)


def check_armed(kind: ProbeKind, point: ProbePoint, seen: Observation, when: str) -> None:
    """Raise EvidenceError unless the probe is there, by its mechanism and no other; ``when`` is for the text."""
    if kind.mechanism == "none":
        check_untouched(point, seen, when)
    if kind.mechanism in ("none", "own"):
        return
    look = _LOOKS[kind.site, kind.mechanism]
    if seen.flags is None and kind.site != "hook":
        raise EvidenceError(f"{when}, the kernel lists no probe at {point.name}")
    flags = seen.flags or ""
    opened = seen.live != point.original if look.first is None else seen.live[0] in look.first
    if flags != look.flags or not opened:
        # One kprobe with an int3: the form of every kprobe that the kernel has not marked for optimisation.
        is_breakpoint = kind.site == "kprobe" and seen.probes == 1 and seen.live[0] == INT3 and not flags
        raise (OtherMechanism if is_breakpoint else EvidenceError)(
            f"{when}, {point.name} is not armed by {look.described}: its bytes are {seen.live[:6].hex(' ')} "
            f"and the kernel lists it {f'as {flags}' if flags else 'without a flag'}; that is {_described(kind, seen)}"
        )
    # Some capabilities put several probes at one place.
    if kind.site == "kprobe" and seen.probes != 1 and kind.capability is None:
        raise EvidenceError(f"{when}, the kernel lists {seen.probes} kprobes at {point.name}, not one")
    if kind.is_traced and (seen.traced is None or seen.traced.users != 1):
        raise EvidenceError(f"{when}, the function tracer has {_users(seen)} users of {point.symbol}, not one")
    # Since Linux 6.19 (DYNAMIC_FTRACE_WITH_JMP) a BPF trampoline that calls the function itself is reached by a jump.
    if kind.mechanism == "direct" and seen.traced is not None and seen.traced.jumps != (seen.live[0] == JMP):
        listed = "a jump" if seen.traced.jumps else "a call"
        live = seen.live[:JUMP_BYTES].hex(" ")
        raise EvidenceError(f"{when}, the kernel lists {listed} at {point.symbol}, and there is {live}")
    if kind.mechanism in ("int3", "detour", "call") and seen.live[1:] != point.original[1:]:
        raise EvidenceError(f"{when}, more than the first byte changed at {point.name}: {seen.live.hex(' ')}")


def check_untouched(point: ProbePoint, seen: Observation, when: str) -> None:
    """Raise EvidenceError unless the original bytes are there and the kernel lists no probe."""
    if seen.live != point.original:
        raise EvidenceError(
            f"{when}, the bytes at {point.name} are {seen.live.hex(' ')}, not the original {point.original.hex(' ')}"
        )
    if seen.flags is not None:
        raise EvidenceError(f"{when}, the kernel still lists a probe at {point.name}")


def check_same(kind: ProbeKind, before: Observation, after: Observation, point: ProbePoint, when: str) -> None:
    """Raise EvidenceError if the probe is armed differently than before: a kprobe may have been optimised since."""
    # The tracer's trampoline changes with each handler, so the call differs after the handler was changed and back.
    bytes_kept = 1 if kind.site == "ftrace" else None
    if (before.live[:bytes_kept], before.flags) != (after.live[:bytes_kept], after.flags):
        raise EvidenceError(
            f"{when}, {point.name} changed from {before.live[:6].hex(' ')} ({_described(kind, before)}) "
            f"to {after.live[:6].hex(' ')} ({_described(kind, after)})"
        )
    for what, was, became in (
        (f"kprobes at {point.name}", before.probes, after.probes),
        (f"function tracer's users of {point.symbol}", _users(before), _users(after)),
    ):
        if was != became:
            raise EvidenceError(f"{when}, the {what} became {became}, from {was}")
    if before.called != after.called:
        raise EvidenceError(
            f"{when}, the function tracer came to call {after.called} at {point.symbol}, and no longer {before.called}"
        )


def check_called(
    kind: ProbeKind, point: ProbePoint, seen: Observation, module: str, when: str, symbols: Symbols
) -> None:
    """Raise EvidenceError unless the tracer calls the kprobe handler or, for its own probes, the ``module``'s.

    For an fprobe it must call what the kernel, by its ``symbols``, uses for fprobes. If users have no trampolines of
    their own (i386), it calls all users for a module's handler or fprobe: this must then be the only traced function. A
    direct call must lead into the module, or into BPF's trampoline.
    """
    assert seen.traced is not None
    is_sole_user = seen.called == traced_functions.ALL_USERS and seen.traced.functions == 1
    is_modules = str(seen.called).endswith(f" [{module}]") and " by way of " not in str(seen.called)
    if kind.fprobe:
        expected = traced_functions.called_for_fprobe(symbols, at_return=kind.at_return)
        right = seen.called == expected or is_sole_user
    elif kind.event == "graph":
        expected = "the function graph tracer alone"
        # Older kernels do not list what it calls.
        listed = [traced_functions.graph_sides(kind.option, records=records) for records in (False, True)]
        right = seen.called in ("ftrace_graph_func", *(f"ftrace_graph_func for {sides}" for sides in listed))
    elif kind.mechanism == "direct" and kind.template is not None:
        right, expected = is_modules, f"a trampoline of {module}"
    elif kind.site == "ftrace" and kind.mechanism != "direct":
        right, expected = is_modules or is_sole_user, f"a handler of {module} alone"
    elif kind.mechanism == "direct":
        expected = traced_functions.BPF_TRAMPOLINE
        right = seen.called == expected
    else:
        expected = traced_functions.KPROBES_HANDLER
        right = seen.called in (expected, traced_functions.GUARDED_KPROBES_HANDLER)
    if not right:
        raise EvidenceError(
            f"{when}, the function tracer calls {seen.called} at {point.symbol}, not {expected}",
            hint="" if seen.traced.functions == 1 else f"it traces {seen.traced.functions} functions",
        )


def check_step(kind: ProbeKind, step: str) -> None:
    """Raise EvidenceError unless the kernel continues after the handler as the kind of probe says.

    ``step`` is what the module reads from the kernel: whether it single-steps, boosts or emulates the probed
    instruction. Otherwise a boosted kprobe looks like a single-stepped one if traps are not counted (KVM).
    """
    expected = {1: "boosted", 2: "single-stepped", 3: "single-stepped"}.get(kind.int3_per_hit or 0)
    if kind.mechanism == "int3" and step != expected:
        raise OtherMechanism(
            f"the probed instruction is {step[:40]}, and for {kind.name} it must be {expected}",
            hint="kprobes emulate a call or a jump: probe another instruction" if step == "emulated" else "",
        )


def check_traps(kind: ProbeKind, hits: int, hits_of_others: int, int3: int) -> None:
    """Raise EvidenceError unless the hits took as many breakpoint traps as their mechanism needs.

    Otherwise a boosted kprobe looks like a single-stepped one. ``hits_of_others`` are hits by other processes; some
    may have come while traps were not counted.
    """
    each = kind.int3_per_hit
    if each is not None and not hits * each <= int3 <= (hits + hits_of_others) * each:
        raise EvidenceError(
            f"{hits} hits took {int3} breakpoint traps, not {each} each: the probe is not handled the way it should be",
            hint="an instruction that kprobes emulate, such as a call or a jump, takes one"
            if kind.site == "kprobe" and hits_of_others == 0
            else "",
        )


def mechanism_seen(kind: ProbeKind, point: ProbePoint, seen: Observation) -> str:
    """The mechanism to store with a number: the kind's, or for a user's module what is at the probe point.

    ``elsewhere`` if nothing is there: the module gets its hits from another place.
    """
    if kind.mechanism != "own":
        return kind.mechanism
    if seen.live == point.original:
        return "elsewhere"
    if seen.called == traced_functions.BPF_TRAMPOLINE:
        return "direct"
    return next((mechanism for mechanism, _ in _looks_seen(kind, seen)), "patched")


def check_taint(mask: int, also: int = 0) -> None:
    """Raise EvidenceError for any taint except those of loading the lab's own modules, and ``also``."""
    if mask & ~(OUT_OF_TREE | UNSIGNED | also):
        raise EvidenceError(f"the guest's kernel is tainted ({mask}), by more than the lab's modules")


def _users(seen: Observation) -> int:
    return seen.traced.users if seen.traced else 0


def _looks_seen(kind: ProbeKind, seen: Observation) -> Iterator[tuple[Mechanism, _Look]]:
    for (site, mechanism), look in _LOOKS.items():
        if site == kind.site and look.first and seen.live[0] in look.first and (seen.flags or "") == look.flags:
            yield mechanism, look


def _described(kind: ProbeKind, seen: Observation) -> str:
    for _, look in _looks_seen(kind, seen):
        return look.described
    if seen.flags == "[OPTIMIZED]":
        return "the kernel's jump optimisation, listed before the jump is in place"
    return "no mechanism of the lab's" if seen.flags is not None else "no probe"
