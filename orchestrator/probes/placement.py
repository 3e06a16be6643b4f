# SPDX-License-Identifier: GPL-2.0-only
"""Which kinds of probe can be at each instruction of a function, from the kernel's image.

Only what holds for every kernel is read from the image. Other rules change from release to release: there a guest tries
a kprobe at each place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from orchestrator.artifacts.function_entry import TRACER_BYTES, entry_offset
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.machine_code import Instruction, decoded
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_scripts import lab_script
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.probes.evidence import JUMP_BYTES, KPROBES_LIST
from orchestrator.probes.final_form import OPTIMISATION
from orchestrator.probes.loading import load, unload
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.point_check import is_padding, wrong_point_reason
from orchestrator.probes.symbols import Symbols

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
_MOST_LISTED = 4096


@dataclass(frozen=True)
class RefusedPlaces:
    """Places at which kprobes are refused."""

    _ranges: Sequence[tuple[range, str]]

    @classmethod
    def of(cls, guest: Guest, symbols: Symbols) -> RefusedPlaces:
        listed = guest.get(BLACKLIST, largest=BLACKLIST_MAX).decode("ascii", errors="replace")
        marked = [(range(int(match[1], 16), int(match[2], 16)), _MARKED) for match in _LINE.finditer(listed)]
        return cls([*_sections(symbols.anywhere), *marked])

    @classmethod
    def of_image(cls, code: KernelCode) -> RefusedPlaces:
        """The places that a kernel's image lists (populate_kprobe_blacklist() of kernel/kprobes.c).

        Without CONFIG_KALLSYMS_ALL an image does not say where the list is: only a boot decides.
        """
        marked = []
        first, behind = (code.address(name) for name in ("__start_kprobe_blacklist", "__stop_kprobe_blacklist"))
        if first is not None and behind is not None:
            places = range(first, min(behind, first + _MOST_LISTED * code.word), code.word)
            functions = filter(None, map(code.number, places))
            marked = [(range(function, code.following(function) or function), _MARKED) for function in functions]
        first, behind = (code.address(f"__kprobes_text_{edge}") for edge in ("start", "end"))
        if first is not None and behind is not None:
            marked.append((range(first, behind), _MARKED))
        return cls([*_sections(code.address), *marked])

    def reason(self, address: int) -> str | None:
        """Why no kprobe may be at an address; None if the kernel gives no reason."""
        return next((reason for span, reason in self._ranges if address in span), None)


def _sections(find: Callable[[str], int | None]) -> Iterator[tuple[range, str]]:
    for name, reason in _SECTIONS.items():
        start, end = (find(f"__{name}_text_{edge}") for edge in ("start", "end"))
        if start is not None and end is not None:
            yield range(start, end), reason


Technique = Literal["kprobe", "optimised", "tracer", "djprobe"]
"""Techniques of probing: an int3, the kernel's jump, the function tracer, a djprobe's jump."""
TECHNIQUES: tuple[Technique, ...] = get_args(Technique)

_REPEATS = frozenset({0xF2, 0xF3})
_STRING = frozenset({*range(0x6C, 0x70), *range(0xA4, 0xA8), *range(0xAA, 0xB0)})
_STEPS = ("single-stepped", "boosted", "emulated")


class Possibility(NamedTuple):
    """``is_possible`` is None if only a boot decides; ``reason`` is None if it is possible."""

    is_possible: bool | None
    reason: str | None = None


POSSIBLE = Possibility(is_possible=True)
DECIDED_AT_BOOT = Possibility(None, "not known before a boot: the kernel answers as a kprobe is tried")
_UNTRIED = Possibility(None, "not known before a boot: the module looks at the function as it is loaded")


def impossible(reason: str) -> Possibility:
    """It is impossible."""
    return Possibility(is_possible=False, reason=reason)


NO_JUMP = "this kernel puts no jump in place of a kprobe's int3 here"
_NO_JUMP = impossible(NO_JUMP)


@dataclass(frozen=True)
class ProbePlace:
    """An instruction, and the verdict on each technique.

    ``step`` is how a guest's kernel continues after a kprobe's handler there; None if no guest was asked. One that
    ``is_repeated`` counts as several instructions; ``is_entry``: at or before the function's first own instruction.
    """

    offset: int
    code: bytes
    is_repeated: bool
    is_entry: bool
    verdicts: Mapping[Technique, Possibility]
    step: str | None = None


@dataclass(frozen=True)
class FunctionPlaces:
    """A function's instructions in order, between ``address`` and ``end``, padding included."""

    symbol: str
    address: int
    end: int
    places: Sequence[ProbePlace]


def places_of(code: KernelCode, config: Mapping[str, str], symbol: str) -> FunctionPlaces | None:
    """The places of a function in ``code`` (a kernel's or a module's); None if the function does not exist."""
    start = code.function(symbol)
    if start is None or wrong_point_reason(code, symbol, None) is not None:
        return None
    end = code.following(start) or start
    instructions = list(decoded(code.read(start, end - start), start, code.word))
    while instructions and is_padding(instructions[-1]):
        instructions.pop()
    # Split-off parts of a function are refused like the rest.
    refused, whole = RefusedPlaces.of_image(code), code.function(symbol.partition(".")[0])
    refusal = refused.reason(start) or (None if whole is None else refused.reason(whole))
    behind = entry_offset(code, symbol) or 0
    is_traced = behind >= TRACER_BYTES and config.get("CONFIG_DYNAMIC_FTRACE") == "y"
    known = _Known(refusal, start, start + behind, start + behind - TRACER_BYTES if is_traced else None, config)
    places = [
        ProbePlace(
            offset=instruction.address - start,
            code=code.read(instruction.address, instruction.size),
            is_repeated=bool(_REPEATS & set(instruction.prefixes))
            and len(instruction.opcode) == 1
            and instruction.opcode[0] in _STRING,
            is_entry=instruction.address <= known.entry,
            verdicts=known.verdicts(instruction),
        )
        for instruction in instructions
    ]
    return FunctionPlaces(symbol, start, end, places)


@dataclass(frozen=True)
class _Known:
    """A function's facts on every kernel: why kprobes refuse all of it, its entry, the function tracer's site."""

    refusal: str | None
    start: int
    entry: int
    traced: int | None
    config: Mapping[str, str]

    def verdicts(self, instruction: Instruction) -> Mapping[Technique, Possibility]:
        kprobe = self._kprobe(instruction)
        djprobe = self.refusal
        if instruction.address != self.entry:
            djprobe = f"a djprobe is at the function's entry, at +{self.entry - self.start:#x}"
        return {
            "kprobe": kprobe,
            "optimised": kprobe,
            "tracer": self._tracer(instruction),
            "djprobe": _UNTRIED if djprobe is None else impossible(djprobe),
        }

    def _kprobe(self, instruction: Instruction) -> Possibility:
        if self.refusal is not None:
            return impossible(self.refusal)
        behind_endbr = self.entry if self.traced is None else self.traced
        if instruction.address == self.start < behind_endbr:
            return impossible(f"kprobes step over the endbr: one at +0x0 goes to +{behind_endbr - self.start:#x}")
        if instruction.address != self.traced:
            return DECIDED_AT_BOOT
        if self.config.get("CONFIG_KPROBES_ON_FTRACE") == "y":
            return impossible("it is the function tracer's: a kprobe there is a call of the tracer's (kprobe-ftrace)")
        return impossible("it is the function tracer's, and this kernel was built without CONFIG_KPROBES_ON_FTRACE")

    def _tracer(self, instruction: Instruction) -> Possibility:
        if self.config.get("CONFIG_DYNAMIC_FTRACE") != "y":
            return impossible("this kernel was built without CONFIG_DYNAMIC_FTRACE")
        if self.traced is None:
            return impossible("the function tracer has no site in this function (notrace)")
        if instruction.address == self.traced:
            return POSSIBLE
        return impossible(f"the function tracer's site is at +{self.traced - self.start:#x}")


def answered(guest: Guest, module: Module, function: FunctionPlaces) -> FunctionPlaces:
    """The places with a guest's answers: its kernel is given a kprobe at each of them, one at a time.

    ``module`` is ``places`` of ``kmods``. Raises EvidenceError for an unreadable answer.
    """
    addresses = [f"{function.address + probe_place.offset:x}" for probe_place in function.places]
    guest.put("".join(f"{address}\n" for address in addresses).encode(), "/tmp/places")  # noqa: S108 - in the guest
    load(guest, module.name, module.file)
    script = ["sh", "-c", lab_script("try-places.sh").decode(), "sh", f"/sys/module/{module.name}/parameters"]
    said = guest.succeed(script, time_limit=600.0).text.splitlines()
    unload(guest, module.name)
    answers = [line.split(";", 2) for line in said]
    if [answer[0] for answer in answers] != addresses or any(len(answer) != 3 for answer in answers):
        raise EvidenceError("the guest does not answer for each instruction", detail=said[:3])
    places = []
    for place, (_, flags, answer) in zip(function.places, answers, strict=True):
        is_armed = answer in _STEPS and "listed" in flags and "[FTRACE]" not in flags
        kprobe = optimised = impossible("the kernel puts it elsewhere" if answer in _STEPS else answer[:200])
        if is_armed:
            kprobe, optimised = POSSIBLE, POSSIBLE if "[OPTIMIZED]" in flags else _NO_JUMP
        possibilities: dict[Technique, Possibility] = {"kprobe": kprobe, "optimised": optimised}
        # If the image has excluded a place, its reason is better.
        kept = {
            technique: possibility
            for technique, possibility in place.verdicts.items()
            if possibility.is_possible is not None
        }
        verdicts = {**place.verdicts, **possibilities, **kept}
        places.append(replace(place, verdicts=verdicts, step=answer if is_armed else None))
    return replace(function, places=places)


def refusal_of(kind: ProbeKind, place: ProbePlace) -> str | None:
    """Why a kind cannot be at a place; None if it can, if only a boot decides, or for a user's own kind."""
    technique = technique_of(kind)
    if technique is None:
        return None
    if is_at_entry(kind) and not place.is_entry:
        return f"a {kind.template} is at a function's entry"
    verdict = place.verdicts[technique]
    return verdict.reason if verdict.is_possible is False else None


def is_at_entry(kind: ProbeKind) -> bool:
    """Whether a kind of the catalogue's can only be at a function's first instruction."""
    return kind.template in ("kretprobe", "jprobe")


_BY_MECHANISM: Mapping[str, Technique] = {
    "int3": "kprobe",
    "jump": "optimised",
    "detour": "optimised",
    "ftrace": "tracer",
    "direct": "tracer",
    "jmp": "djprobe",
}


def technique_of(kind: ProbeKind) -> Technique | None:
    """The technique of a kind of the catalogue's; None for one that is not at an instruction of a kernel function."""
    return None if kind.site in ("program", "hook", "tracepoint") else _BY_MECHANISM.get(kind.mechanism)


def why_not_optimised(guest: Guest, point: ProbePoint) -> str | None:
    """What currently prevents the kernel from optimising a kprobe at a point; None if only the place can."""
    if kernel_value(guest, OPTIMISATION) == "0":
        return f"the kernel's optimisation of kprobes is switched off: {OPTIMISATION} is 0"
    listing = guest.get(KPROBES_LIST).decode("ascii", errors="replace")
    for address, name in re.findall(r"^([0-9a-f]{8,16}) +[krj] +(\S{1,200})", listing, re.MULTILINE):
        # arch_check_optimized_kprobe() of arch/x86/kernel/kprobes/opt.c
        if 0 < int(address, 16) - point.address < JUMP_BYTES:
            return f"another kprobe is under the jump, at {name}"
    return None
