# SPDX-License-Identifier: GPL-2.0-only
"""What ``images/bpf/attachmany.c`` prints: the steps of each count, checked."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import EvidenceError
from orchestrator.run.unattended import Step, of_command, parse_steps

_KIB = 1024
_MEMORY = ("slab", "vmalloc", "percpu")


@dataclass(frozen=True)
class Attached:
    """The steps of one count of functions; ``held`` and ``detach`` are None where attaching failed."""

    bare: Step
    attach: Step
    held: Step | None
    detach: Step | None
    after: Step

    @property
    def error(self) -> int:
        return self.attach.number("error")

    @property
    def failure(self) -> str:
        """How attaching failed. Raises EvidenceError if it did not."""
        if signal := self.attach.number("signal"):
            return f"was ended by signal {signal}, as memory ran out"
        if not self.error:
            raise EvidenceError(f"there was enough memory to attach to {self.wanted} functions: ask for more of them")
        return f"failed with {errno.errorcode.get(self.error, str(self.error))}"

    @property
    def wanted(self) -> int:
        return self.attach.number("wanted")

    @property
    def hits_per_call(self) -> int:
        """Raises EvidenceError unless the hits are a multiple of the calls."""
        assert self.held is not None
        hits, calls = self.held.positive("hits"), self.held.positive("calls")
        if hits % calls:
            raise EvidenceError(f"{hits} hits in {calls} calls: not each call was hit equally often")
        return hits // calls

    @property
    def hit(self) -> float:
        """What one of a call's hits costs, in instructions."""
        assert self.held is not None
        return (self.held.number("ticks") - self.bare.number("ticks")) / self.held.positive("hits")

    def memory(self, when: Step) -> int:
        """How many bytes more the kernel holds than before."""
        return _KIB * sum(when.number(name) - self.bare.number(name) for name in _MEMORY)

    @property
    def marked(self) -> Sequence[Step]:
        """The steps between two marks of QEMU's plugin, in order."""
        return [self.attach] if self.detach is None else [self.attach, self.detach]

    def check(self) -> None:
        """Raise EvidenceError unless all was attached, and nothing is afterwards."""
        failed = self.error or self.attach.number("signal")
        for step, cause in ((self.bare, ""), (self.after, f", after attaching {self.failure}" if failed else "")):
            if left := step.number("listed"):
                raise EvidenceError(f"at step '{step}' the kernel lists {left} attached functions{cause}")
        if self.after.number("changed"):
            raise EvidenceError(f"{self.after.number('changed')} bytes of text are not as before attaching")
        if self.held is None or self.detach is None:
            return
        if self.detach.number("error"):
            raise EvidenceError(f"detaching failed with error {self.detach.number('error')}")
        if self.held.number("listed") != self.wanted:
            raise EvidenceError(f"the kernel lists {self.held.number('listed')} attached functions, not {self.wanted}")
        if self.held.hexadecimal("live") == self.held.hexadecimal("before"):
            raise EvidenceError("the text of the first function is as before attaching")


@dataclass(frozen=True)
class AttachFigures:
    """All counts that the kernel has functions for, 0 for all; ``target`` is the first function, at ``address``."""

    functions: int
    address: int
    target: str
    by_count: Mapping[int, Attached]


def parse_figures(text: str, counts: Sequence[int]) -> AttachFigures:
    """The figures of the counts, with all proofs checked. Raises EvidenceError."""
    steps = parse_steps(text)
    (functions,) = of_command(steps, "functions", 1)
    found: dict[int, Attached] = {}
    for count in counts:
        if count > functions.positive("all"):
            continue
        mine = {step.command: step for step in steps if step.arguments == (str(count),)}
        if not {"bare", "attach", "after"} <= mine.keys() or ("while" in mine) != ("detach" in mine):
            raise EvidenceError(f"the steps of {count or 'all'} functions are {', '.join(mine) or 'missing'}")
        one = Attached(mine["bare"], mine["attach"], mine.get("while"), mine.get("detach"), mine["after"])
        if one.wanted != (count or functions.number("all")):
            raise EvidenceError(f"the guest attached to {one.wanted} functions, not {count or 'all'}")
        one.check()
        found[count] = one
    target = "attachmany:places" if functions.number("own") else "__x64_sys_getpgid"
    return AttachFigures(functions.number("all"), int(functions.hexadecimal("target"), 16), target, found)
