# SPDX-License-Identifier: GPL-2.0-only
"""A function's instructions by symbol, each with the probes that can be there: as a table, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.operands import Operand, operands
from orchestrator.catalog.probes import ProbeKind, probes
from orchestrator.probes import placement
from orchestrator.probes.symbols import Symbols
from orchestrator.report.columns import Columns, Remarks, columns_of
from orchestrator.report.sheet import Sheet
from orchestrator.results.printed_json import Printed

_EMULATED = (
    "emulated: the kernel takes a kprobe there, and emulates the instruction; the lab's kinds of column kprobe that "
    "measure a single step are not there"
)
_STEPS = {"single-stepped": "stepped", "boosted": "boosted", "emulated": "emulated"}


class PossibleProbe(Printed):
    """Whether a probe of a technique can be registered at an instruction."""

    possible: bool | None
    """None if no guest was asked."""
    reason: str | None
    """Why it cannot, or why nobody knows."""


class PrintedInstruction(Printed):
    """An instruction of the function."""

    offset: int
    """Bytes from the function's start."""
    bytes: str
    """Its bytes in hexadecimal."""
    text: str
    """The instruction, with names instead of addresses."""
    step: str | None
    """How a kprobe there executes it: ``single-stepped``, ``boosted``, ``emulated``; None if no guest was asked."""
    probes: Mapping[placement.Technique, PossibleProbe]
    """By technique, whether such a probe can be registered there."""
    kinds: Sequence[str]
    """Kinds of probe that nothing rules out; an emulated instruction has no kind that measures a single step."""

    @classmethod
    def of(cls, place: placement.ProbePlace, text: str) -> PrintedInstruction:
        verdicts = {technique: place.verdicts[technique] for technique in placement.TECHNIQUES}
        return cls(
            offset=place.offset,
            bytes=place.code.hex(),
            text=text,
            step=place.step,
            probes={
                technique: PossibleProbe(possible=verdict.is_possible, reason=verdict.reason)
                for technique, verdict in verdicts.items()
            },
            kinds=[kind.name for kind in probes().values() if _may_be(kind, place)],
        )


class PrintedDisassembly(Printed):
    """A function's instructions and the probes that each can take: what ``disasm --format json`` prints."""

    kernel: str
    """The kernel's name."""
    release: str
    """Its release."""
    function: str
    """The function."""
    address: str
    """Its address."""
    kinds: Mapping[placement.Technique, Sequence[str]]
    """The kinds of probe that each technique stands for."""
    notes: Sequence[str]
    """Sentences on the answers, first who gave them."""
    instructions: Sequence[PrintedInstruction]
    """The instructions in order."""


@dataclass(frozen=True)
class Disassembly:
    """A function of a kernel. ``text`` has each instruction of ``function`` by symbol, ``source`` says who decided."""

    kernel: str
    release: str
    function: placement.FunctionPlaces
    text: Sequence[str]
    source: str = "No guest was asked: ? is not known before a boot."

    @classmethod
    def of(cls, kernel: str, release: str, code: KernelCode, function: placement.FunctionPlaces) -> Disassembly:
        names = _Names(code, function)
        return cls(kernel, release, function, [names.text(place) for place in function.places])

    def sheet(self) -> Sheet:
        places = self.function.places
        reasons = Remarks()
        columns = Columns(columns_of(placement.TECHNIQUES, str), together=len(placement.TECHNIQUES))
        offsets = max((len(_offset(place)) for place in places), default=0)
        codes = max((len(place.code) for place in places), default=0) * 2
        rows = [
            columns.row(
                f"{_offset(place):<{offsets}}  {place.code.hex():<{codes}}  {text}", partial(_shown, place, reasons)
            )
            for place, text in zip(places, self.text, strict=True)
        ]
        return Sheet(
            title=f"{self.function.symbol} of {self.kernel}",
            facts=[f"Linux {self.release}, at {self.function.address:#x}; which probes each instruction can have"],
            grid=columns.grid(rows),
            sentences=[self.source, *(f"Note: {note}." for note in self._notes()), *_kind_sentences()],
            footnotes=reasons.footnotes(),
        )

    def printed(self) -> PrintedDisassembly:
        return PrintedDisassembly(
            kernel=self.kernel,
            release=self.release,
            function=self.function.symbol,
            address=f"{self.function.address:#x}",
            kinds={technique: [kind.name for kind in kinds] for technique, kinds in _kinds().items()},
            notes=[self.source, *self._notes()],
            instructions=[
                PrintedInstruction.of(place, text) for place, text in zip(self.function.places, self.text, strict=True)
            ],
        )

    def _notes(self) -> Sequence[str]:
        return [_EMULATED] if any(place.step == "emulated" for place in self.function.places) else []


def _may_be(kind: ProbeKind, place: placement.ProbePlace) -> bool:
    is_stepped = kind.mechanism == "int3" and kind.int3_per_hit != 1
    is_possible = placement.technique_of(kind) is not None and placement.refusal_of(kind, place) is None
    return is_possible and not (is_stepped and place.step == "emulated")


def _offset(place: placement.ProbePlace) -> str:
    return f"+{place.offset:#x}"


def _shown(place: placement.ProbePlace, reasons: Remarks, technique: placement.Technique) -> str:
    verdict = place.verdicts[technique]
    if verdict.is_possible:
        return _STEPS.get(place.step or "", "yes") if technique == "kprobe" else "yes"
    mark = reasons.mark(verdict.reason or "")
    return f"no{mark}" if verdict.is_possible is False else f"?{mark}"


def _kinds() -> Mapping[placement.Technique, Sequence[ProbeKind]]:
    return {
        technique: [kind for kind in probes().values() if placement.technique_of(kind) == technique]
        for technique in placement.TECHNIQUES
    }


def _kind_sentences() -> Iterator[str]:
    for technique, kinds in _kinds().items():
        at_entry = [kind.name for kind in kinds if placement.is_at_entry(kind)]
        named = [", ".join(kind.name for kind in kinds if not placement.is_at_entry(kind))]
        if at_entry:
            named.append(f"only at the function's entry {', '.join(at_entry)}")
        yield f"{technique}: {'; '.join(named)}."


class _Names:
    def __init__(self, code: KernelCode, function: placement.FunctionPlaces) -> None:
        self._symbols = Symbols.of_image(code)
        self._function = function
        self._word = code.word
        self._image = range(function.address & -(16 << 20), max((symbol.address for symbol in code.symbols), default=0))
        self._lists_data = code.named("__start___jump_table") != ()

    def text(self, place: placement.ProbePlace) -> str:
        """An instruction with names instead of addresses; targets in the function as ``+0x45``."""
        text, numbers = operands(place.code.hex(), self._word)
        shown, done = "", 0
        for number in numbers:
            plain = text[number.start : number.end]
            name = self._name(place, number)
            # The decoder shows an address after a register as negative.
            sign = "+ " if name is not None and plain[0] in "+-" else ""
            shown += text[done : number.start] + (plain if name is None else sign + name)
            done = number.end
        return shown + text[done:]

    def _name(self, place: placement.ProbePlace, number: Operand) -> str | None:
        behind = 1 << 8 * self._word
        if number.kind == "relative":
            target = (self._function.address + place.offset + number.value) % behind
        elif self._lists_data and (number.kind == "per-cpu" or number.value % behind in self._image):
            target = number.value % behind
        else:
            return None
        if self._function.address <= target < self._function.end:
            return f"+{target - self._function.address:#x}"
        return self._symbols.at(target)
