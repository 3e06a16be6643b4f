# SPDX-License-Identifier: GPL-2.0-only
"""Which kinds of probe can be at each instruction of a function, by the kernel's image: a prediction.

The rules for kprobes are those of Linux 6.1 and 6.12: check_kprobe_address_safe() of kernel/kprobes.c,
arch_prepare_kprobe() of arch/x86/kernel/kprobes/core.c and arch_prepare_optimized_kprobe() of opt.c. Those for djprobes
are the lab's own (``kmods/djprobe/djprobe_site.c`` and ``djprobe_search.c``). A boot patches code for its CPU: what
depends on that is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernel_tables import unprobed_functions
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.machine_code import Instruction
from orchestrator.catalog.probes import ProbeKind
from orchestrator.guest.channel import kernel_value
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import OPTIMISATION
from orchestrator.probes.evidence import JUMP_BYTES, KPROBES_LIST
from orchestrator.probes.kprobe_code import (
    FunctionText,
    branch_target,
    can_boost,
    can_move,
    ends_flow,
    has_room_for_a_jump,
    is_call,
    is_emulated,
    is_int3,
    is_jump,
    is_nop,
    is_repeated,
    is_return,
    kprobe_refusal,
)
from orchestrator.probes.point import ProbePoint, wrong_point_reason
from orchestrator.probes.symbols import Symbols

# Which places of a kernel kprobes refuse, and why: by the list of one that runs, or by that of its image.

BLACKLIST = "/sys/kernel/debug/kprobes/blacklist"
BLACKLIST_MAX = 1 << 20
"""Bytes; a Debian kernel's has 40 KB."""
_LINE = re.compile(r"^0x([0-9a-f]{1,16})-0x([0-9a-f]{1,16})\t", re.MULTILINE)

# Sections of the text by the linker's names, in Linux 6.1 (include/asm-generic/vmlinux.lds.h).
_SECTIONS = {
    "noinstr": "it is noinstr: no trap may happen there",
    "entry": "it is entry code: the kernel is not yet, or no longer, in a state to take a trap",
}
_MARKED = "it is on kprobes' blacklist (NOKPROBE_SYMBOL)"


@dataclass(frozen=True)
class _Range:
    start: int
    end: int
    reason: str


@dataclass(frozen=True)
class RefusedPlaces:
    """Places that no kprobe may be at. ``is_complete``: none is left out that is marked in the source."""

    _ranges: Sequence[_Range]
    is_complete: bool = True

    @classmethod
    def of(cls, guest: Guest, symbols: Symbols) -> RefusedPlaces:
        """Read a guest's."""
        listed = guest.get(BLACKLIST, largest=BLACKLIST_MAX).decode("ascii", errors="replace")
        marked = [_Range(int(one[1], 16), int(one[2], 16), _MARKED) for one in _LINE.finditer(listed)]
        return cls([*_sections(symbols.anywhere), *marked])

    @classmethod
    def of_image(cls, code: KernelCode) -> RefusedPlaces:
        """Those that a kernel's image lists (populate_kprobe_blacklist() of kernel/kprobes.c)."""
        unprobed = unprobed_functions(code)
        marked = [_Range(one, code.following(one) or one, _MARKED) for one in sorted(unprobed or ())]
        first, behind = (code.address(f"__kprobes_text_{edge}") for edge in ("start", "end"))
        if first is not None and behind is not None:
            marked.append(_Range(first, behind, _MARKED))
        return cls([*_sections(code.address), *marked], unprobed is not None)

    def reason(self, address: int) -> str | None:
        """Why no kprobe may be at an address; None where the kernel names no reason."""
        return next((one.reason for one in self._ranges if one.start <= address < one.end), None)


def _sections(find: Callable[[str], int | None]) -> Iterator[_Range]:
    """The sections that are refused as a whole, by the addresses that ``find`` has of names."""
    for name, reason in _SECTIONS.items():
        start, end = (find(f"__{name}_text_{edge}") for edge in ("start", "end"))
        if start is not None and end is not None:
            yield _Range(start, end, reason)


# Whether something is possible, as far as a kernel's image says.


@dataclass(frozen=True)
class Verdict:
    """``is_possible`` is None where only the boot decides; ``reason`` is None where it is possible."""

    is_possible: bool | None
    reason: str | None = None


def no(reason: str) -> Verdict:
    """It is impossible."""
    return Verdict(is_possible=False, reason=reason)


YES = Verdict(is_possible=True)
PATCHED = Verdict(None, "the kernel may put other code there as it boots, for its CPU")


# Where a jump can be put, an optimised kprobe's or a djprobe's: over five bytes that nothing leads into.

_JUMP = 5
_COLD = ".cold"
_TOO_SHORT = "a jump takes five bytes, and the function ends before"


class JumpPlaces:
    """A function, of which kprobes refuse all where there is a ``refusal``."""

    def __init__(self, text: FunctionText, refusal: str | None) -> None:
        self._text, self._refusal = text, refusal

    def optimised(self, one: Instruction) -> Verdict:
        """The verdict on a place that takes a kprobe: can_optimize() and copy_optimized_instructions()."""
        text = self._text
        if not text.has("CONFIG_OPTPROBES"):
            return no("this kernel was built without CONFIG_OPTPROBES")
        if text.end - one.address < _JUMP:
            return no(_TOO_SHORT)
        if self._obstacle is not None:
            return no(self._obstacle)
        # A jump right behind the five bytes counts as well: insn_jump_into_range().
        first, last = one.address + 1, one.address + _JUMP
        found = self._into(text.jumps, first, last)
        if found is not None:
            return no(found)
        covered = self._covered(one.address)
        refusal = next(filter(None, map(self._copy_refusal, covered)), None)
        if refusal is not None:
            return no(refusal)
        if any(map(text.is_return_thunk, covered[:-1])) or text.is_return_thunk(one):
            return no("the five bytes reach what is behind a return")
        # A return is boosted where it is the fifth byte, and a jump to a thunk is not.
        if any(text.is_patched(each) or text.is_return_thunk(each) for each in covered):
            return PATCHED
        possible = self._into(text.possible_jumps, first, last)
        return YES if possible is None else Verdict(None, f"{possible}, if the kernel switches it so")

    @cached_property
    def _obstacle(self) -> str | None:
        """What keeps all of the function from being optimised."""
        text = self._text
        faulting = set(text.faulting)
        for one in text.decoded:
            if one.address in faulting:
                return f"the instruction at {self._at(one.address)} may fault, and its fixup may lead anywhere"
            # One through a thunk stays indirect, whatever the boot makes of it.
            if text.is_indirect_jump(one) and (is_jump(one) or not text.is_patched(one)):
                return f"the indirect jump at {self._at(one.address)} may lead anywhere in the function"
        return None if text.is_whole else "some bytes of the function are no instructions"

    def _covered(self, address: int) -> Sequence[Instruction]:
        """The whole instructions that five bytes cover."""
        return [one for one in self._text.decoded if one.end > address and one.address < address + _JUMP]

    def _copy_refusal(self, one: Instruction) -> str | None:
        text = self._text
        if one.address == text.traced:
            return "the five bytes reach the function tracer's site"
        if one.address in text.branches:
            return f"the five bytes reach the static branch at {self._at(one.address)}"
        if text.is_static_call(one):
            return f"the five bytes reach the static call at {self._at(one.address)}"
        if text.is_patched(one) or text.is_return_thunk(one):
            return None
        can_boost_it = one.address not in text.faulting and can_boost(one, since_6_9=text.since_6_9)
        if not can_boost_it or kprobe_refusal(one, since_6_9=text.since_6_9) is not None:
            return f"the jump would cover {self._at(one.address)}, which kprobes do not boost"
        return None

    def elsewhere(self, one: Instruction) -> Verdict | None:
        """The verdict on a place where no djprobe ever is; None for the function's entry."""
        if one.address == self._text.entry:
            return None
        return no(f"a djprobe is at the function's entry, at {self._at(self._text.entry)}")

    def djprobe(self, one: Instruction) -> Verdict:
        """The verdict on a function's entry: djprobe_site_refusal() of the lab's module."""
        text = self._text
        if self._refusal is not None:
            return no(self._refusal)
        covered = self._covered(one.address)
        refusal = next(filter(None, map(self._move_refusal, covered)), None)
        if refusal is None and (not covered or covered[-1].end - one.address < _JUMP):
            refusal = _TOO_SHORT
        refusal = refusal or self._searched(one.address, covered[-1].end)
        if refusal is not None:
            return no(refusal)
        if any(map(text.is_patched, covered)):
            return PATCHED
        possible = self._into(text.possible_jumps, one.address + 1, covered[-1].end - 1)
        return YES if possible is None else Verdict(None, f"{possible}, if the kernel switches it so")

    def _move_refusal(self, one: Instruction) -> str | None:
        text = self._text
        if is_return(one) or text.is_return_thunk(one):
            return _TOO_SHORT
        if not can_move(one) and not text.is_patched(one):
            return f"the jump would cover {self._at(one.address)}, which does not do the same elsewhere"
        if one.address in text.branches or text.is_static_call(one):
            return f"the jump would cover {self._at(one.address)}, which the kernel itself switches"
        return None

    def _searched(self, entry: int, behind: int) -> str | None:
        """What leads, or may lead, into the bytes under the jump, in the function and in its cold part."""
        text = self._text
        padding = False
        for part in (text, *self._cold_parts()):
            for one in part.decoded:
                if one.address < entry and part is text:
                    continue
                if is_int3(one) and not padding:
                    return f"there is a breakpoint at {self._at(one.address)}"
                if one.address in part.faulting:
                    return f"the instruction at {self._at(one.address)} may fault, and its fixup may lead anywhere"
                if part.is_indirect_jump(one):
                    return f"the indirect jump at {self._at(one.address)} may lead anywhere in the function"
                target = None if one.address in part.branches or part.is_patched(one) else branch_target(one)
                if target is not None and entry < target < behind:
                    return f"the {'call' if is_call(one) else 'jump'} at {self._at(one.address)} leads under the jump"
                padding = ends_flow(one) or (padding and is_nop(one))
        return None

    def _cold_parts(self) -> Iterator[FunctionText]:
        """The function that the compiler has split off, which jumps back."""
        text = self._text
        name = f"{text.symbol}{_COLD}"
        start = text.code.function(name)
        if start is None:
            return
        end = text.code.following(start) or start
        if any(start <= target < end for _, target in text.jumps):
            yield FunctionText(text.code, text.config, name)

    def _into(self, jumps: Iterable[tuple[int, int]], first: int, last: int) -> str | None:
        for place, target in jumps:
            if first <= target <= last:
                return f"the jump at {self._at(place)} leads to {self._at(target)}"
        return None

    def _at(self, address: int) -> str:
        behind = address - self._text.start
        return f"+{behind:#x}" if 0 <= behind < self._text.end - self._text.start else f"{address:#x}"


RULES_OF = ("6.1", "6.12")
"""The versions of Linux whose rules these are."""

Step = Literal["single-stepped", "boosted", "emulated"]
"""How the kernel goes on behind the handler of a kprobe that an int3 arms."""
Means = Literal["kprobe", "boosted", "optimised", "tracer", "djprobe"]
"""What kinds of probe are made of: an int3, the booster, the kernel's jump, the function tracer, a djprobe's jump."""
MEANS: tuple[Means, ...] = get_args(Means)


@dataclass(frozen=True)
class ProbePlace:
    """An instruction, and the verdict on each means; ``step`` is that of a kprobe without a post-handler.

    ``step`` is None where no kprobe can be there, or the boot decides. One that ``is_repeated`` counts as several
    instructions; one that ``is_entry`` is not behind the function's first own one.
    """

    offset: int
    code: bytes
    step: Step | None
    is_emulated: bool
    is_repeated: bool
    is_entry: bool
    verdicts: Mapping[Means, Verdict]


@dataclass(frozen=True)
class FunctionPlaces:
    """A function's instructions in order; ``notes`` say what the prediction has left out.

    It is between the addresses ``address`` and ``end``, its padding included.
    """

    symbol: str
    address: int
    end: int
    places: Sequence[ProbePlace]
    notes: Sequence[str]


def places_of(kernel: Kernel, code: KernelCode, symbol: str) -> FunctionPlaces | None:
    """The places of a function of a kernel's ``code``, its own or a module's; None where it has no such function.

    The rules of a user's own kernel, or of another version, may be others, and a module's file has no tables of what
    the kernel does to it: there only what is so on each kernel is certain.
    """
    if wrong_point_reason(code, symbol, None) is not None:
        return None
    return function_places(code, kernel.config, symbol, "" if code.is_module else kernel.spec.version)


def function_places(
    code: KernelCode, config: Mapping[str, str], symbol: str, version: str = RULES_OF[0]
) -> FunctionPlaces:
    """Predict where a function can be probed. Only for one that ``wrong_point_reason`` has nothing to say of.

    Of a ``version`` of Linux that is not among RULES_OF, what the newest of these refuse is left to the boot.
    """
    text = FunctionText(code, config, symbol, since_6_9=version != RULES_OF[0])
    refused = RefusedPlaces.of_image(code)
    predicted = _Prediction(text, _function_refusal(text, refused), are_known=version in RULES_OF)
    notes = []
    if not refused.is_complete and not code.is_module:
        notes.append("the list of functions that kprobes must not touch (NOKPROBE_SYMBOL) was not found in the image")
    if not text.is_whole:
        notes.append("the bytes behind the last instruction listed are none")
    return FunctionPlaces(symbol, text.start, text.end, [predicted.place(one) for one in text.instructions], notes)


def _function_refusal(text: FunctionText, refused: RefusedPlaces) -> str | None:
    """Why kprobes refuse all of the function; a part of one that was split off has the rest's reason."""
    whole = text.code.function(text.symbol.partition(".")[0])
    return refused.reason(text.start) or (None if whole is None else refused.reason(whole))


class _Prediction:
    def __init__(self, text: FunctionText, refusal: str | None, *, are_known: bool) -> None:
        self._text, self._refusal, self._are_known = text, refusal, are_known
        self._jumps = JumpPlaces(text, refusal)
        self._is_preemptible = text.has("CONFIG_PREEMPTION")

    def place(self, one: Instruction) -> ProbePlace:
        """The verdicts on an instruction."""
        kprobe = self._refused_everywhere(one) or self._by_rules(self._kprobe(one))
        elsewhere = self._jumps.elsewhere(one)
        return ProbePlace(
            offset=one.address - self._text.start,
            code=self._text.bytes_of(one),
            step=self._step(one) if kprobe.is_possible else None,
            is_emulated=self._are_known and is_emulated(one),
            is_repeated=is_repeated(one),
            is_entry=one.address <= self._text.entry,
            verdicts={
                "kprobe": kprobe,
                "boosted": kprobe if not kprobe.is_possible else self._by_rules(self._boosted(one)),
                "optimised": kprobe if kprobe.is_possible is False else self._by_rules(self._jumps.optimised(one)),
                "tracer": self._tracer(one),
                "djprobe": elsewhere or self._by_rules(self._jumps.djprobe(one)),
            },
        )

    def _by_rules(self, verdict: Verdict) -> Verdict:
        """A verdict that follows from the rules: where they may be others, nothing is impossible."""
        if self._are_known or verdict.is_possible is not False:
            return verdict
        return Verdict(None, f"by the rules of Linux {' and '.join(RULES_OF)} none can be there: {verdict.reason}")

    def _refused_everywhere(self, one: Instruction) -> Verdict | None:
        """Why a kprobe by an int3 is at this place of no kernel; None where some may have one."""
        text = self._text
        if self._refusal is not None:
            return no(self._refusal)
        if one.address == text.start and text.endbr_end > text.start:
            return no(f"kprobes step over the endbr: one at +0x0 goes to +{text.endbr_end - text.start:#x}")
        if one.address == text.traced:
            is_tracers = text.has("CONFIG_KPROBES_ON_FTRACE")
            return no(
                "it is the function tracer's: a kprobe there is a call of the tracer's (kprobe-ftrace)"
                if is_tracers
                else "it is the function tracer's, and this kernel was built without CONFIG_KPROBES_ON_FTRACE"
            )
        return None

    def _kprobe(self, one: Instruction) -> Verdict:
        text = self._text
        if one.address in text.branches:
            return no("it is a static branch, which the kernel itself switches")
        if text.is_static_call(one):
            return no("it is a static call, whose target the kernel itself switches")
        if one.address in text.bugs:
            return no("it reports a BUG() or a WARN(), which the kernel knows by its place")
        if text.is_patched(one):
            return PATCHED
        refusal = kprobe_refusal(one, since_6_9=text.since_6_9)
        return YES if refusal is None else no(refusal)

    def _step(self, one: Instruction) -> Step | None:
        if not self._is_preemptible and self._text.is_return_thunk(one):
            return None  # a jump is emulated, a return is boosted
        if not self._is_preemptible and self._boosted(one).is_possible:
            return "boosted"
        return "emulated" if is_emulated(one) else "single-stepped"

    def _boosted(self, one: Instruction) -> Verdict:
        if self._is_preemptible:
            return YES if can_move(one) else no("it does not do the same at another address, where the booster runs it")
        if self._text.is_return_thunk(one):
            return PATCHED
        if one.address in self._text.faulting:
            return no("it may fault and be fixed up, by its address")
        if not can_boost(one, since_6_9=self._text.since_6_9) or not has_room_for_a_jump(one):
            return no("kprobes do not boost such an instruction (can_boost())")
        return YES

    def _tracer(self, one: Instruction) -> Verdict:
        if not self._text.has("CONFIG_DYNAMIC_FTRACE"):
            return no("this kernel was built without CONFIG_DYNAMIC_FTRACE")
        traced = self._text.traced
        if traced is None:
            return no("the function tracer has no site in this function (notrace)")
        if one.address == traced:
            return YES
        return no(f"the function tracer's site is at +{traced - self._text.start:#x}")


def refusal_of(kind: ProbeKind, place: ProbePlace) -> str | None:
    """Why a kind of probe cannot be at a place; None where it can, where the boot decides, and for a user's own."""
    means = means_of(kind)
    if means is None:
        return None
    if is_at_entry(kind) and not place.is_entry:
        return f"a {kind.template} is at a function's entry"
    verdict = place.verdicts[means]
    if verdict.is_possible is False:
        return verdict.reason
    if means == "kprobe" and kind.mechanism == "int3" and place.is_emulated:
        return "kprobes emulate this instruction, and single-step none of these"
    optimised = place.verdicts["optimised"]
    if could_be_optimised(kind) and optimised.is_possible is False:
        return f"it is a kprobe that could be optimised, and here none can be: {optimised.reason}"
    return None


def is_at_entry(kind: ProbeKind) -> bool:
    """Whether a kind of probe of the catalogue's is at no instruction but a function's first."""
    return kind.template in ("kretprobe", "jprobe")


def could_be_optimised(kind: ProbeKind) -> bool:
    """Whether an int3 that the kernel would replace by a jump, but for a post-handler, is what the kind is about."""
    return kind.mechanism == "int3" and kind.optimisation


def means_of(kind: ProbeKind) -> Means | None:
    """What a kind of probe of the catalogue's is made of; None for what is at no instruction of a kernel's function."""
    if kind.site in ("program", "hook", "tracepoint"):
        return None
    if kind.mechanism == "int3":
        return "boosted" if kind.int3_per_hit == 1 else "kprobe"
    by_mechanism: dict[str, Means] = {
        "jump": "optimised",
        "detour": "optimised",
        "ftrace": "tracer",
        "direct": "tracer",
        "jmp": "djprobe",
    }
    return by_mechanism.get(kind.mechanism)


# Why has the kernel not put a jump in place of a kprobe's int3? By its switch, its other probes, and its image.

_LISTED = re.compile(r"^([0-9a-f]{8,16}) +[krj] +(\S{1,200})", re.MULTILINE)
_UNKNOWN = "neither the kernel's image nor its list of probes shows a reason"


def why_not_optimised(guest: Guest, code: KernelCode | None, config: Mapping[str, str], point: ProbePoint) -> str:
    """What keeps the kernel from optimising a kprobe at a point that has none just now; ``code`` is its image.

    As far as it is known: the boot may have put other code there, and a handler of the probe's own keeps it an int3.
    """
    if kernel_value(guest, OPTIMISATION) == "0":
        return f"the kernel's optimisation of kprobes is switched off: {OPTIMISATION} is 0"
    near = _near(guest, point)
    if near is not None:
        return f"another kprobe is under the jump, at {near}"
    return (None if code is None else _by_image(code, config, point)) or _UNKNOWN


def _near(guest: Guest, point: ProbePoint) -> str | None:
    """Another kprobe whose bytes the jump would cover (arch_check_optimized_kprobe() of kprobes/opt.c)."""
    listing = guest.get(KPROBES_LIST).decode("ascii", errors="replace")
    for address, name in _LISTED.findall(listing):
        if 0 < int(address, 16) - point.address < JUMP_BYTES:
            return str(name)
    return None


def _by_image(code: KernelCode, config: Mapping[str, str], point: ProbePoint) -> str | None:
    """What the kernel's image says against a jump at a point of the kernel itself, or leaves to its boot."""
    if point.module is not None or code.function(point.symbol) is None:
        return None
    places = function_places(code, config, point.symbol).places
    verdict = next((one.verdicts["optimised"] for one in places if one.offset == point.offset), None)
    return None if verdict is None else verdict.reason
