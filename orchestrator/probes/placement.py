# SPDX-License-Identifier: GPL-2.0-only
"""Which kinds of probe can be at each instruction of a function, by the kernel's image: a prediction.

The rules for kprobes are those of Linux 6.1 and 6.12: check_kprobe_address_safe() of kernel/kprobes.c,
arch_prepare_kprobe() of arch/x86/kernel/kprobes/core.c and arch_prepare_optimized_kprobe() of opt.c. Those for djprobes
are the lab's own (``kmods/djprobe/djprobe_site.c`` and ``djprobe_search.c``). A boot patches code for its CPU: what
depends on that is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from orchestrator.artifacts.instructions import Instruction
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import Kernel
from orchestrator.catalog.probes import ProbeKind
from orchestrator.probes.function_text import FunctionText
from orchestrator.probes.jump_places import JumpPlaces
from orchestrator.probes.kprobe_code import (
    can_boost,
    can_move,
    has_room_for_a_jump,
    is_emulated,
    is_repeated,
    kprobe_refusal,
)
from orchestrator.probes.refused_places import RefusedPlaces
from orchestrator.probes.static_point import wrong_point_reason
from orchestrator.probes.verdict import PATCHED, YES, Verdict, no

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
