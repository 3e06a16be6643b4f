# SPDX-License-Identifier: GPL-2.0-only
"""Cost of a loop with a kernel marker, run by the module ``markers`` with interrupts off.

No interrupt can fall into a loop, so it needs no batches. The difference between runs of n and 2n rounds is the cost
of n rounds without the loop's fixed cost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.channel import COMMAND_LIMIT
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value

COUNTED_ROUNDS = 1000
"""Rounds of a counting pass: each passes the marker once."""

_LISTED = re.compile(r"(\S{1,64}) (optimized|generic) (\S{1,16}) ([0-9a-f]{1,16}) ([0-9a-f]{1,16}) (.{0,100})")
_PLACE = re.compile(r"(\w{1,64}) ([0-9a-f]{1,16})")


@dataclass(frozen=True)
class MarkerLoops:
    """The loaded module ``module_name`` in a guest. Refusals are GuestErrors, those of a connection EvidenceErrors.

    ``left`` returns the seconds of the host's time that remain for a run; it raises when there are none.
    """

    guest: Guest
    module_name: str
    left: Callable[[], float] = lambda: COMMAND_LIMIT

    def per_round(self, loop: str, rounds: int, *, copies: bool = False) -> float:
        """TSC units of one round: instructions on the exact clock."""
        once, twice = self.timed(loop, rounds, copies=copies)
        return (twice - once) / rounds

    def timed(self, loop: str, rounds: int, *, copies: bool = False) -> tuple[int, int]:
        """TSC units of so many rounds, and of twice as many.

        Where the connected probe ``copies`` its arguments, the copies must be present and correct after each run.
        """
        taken = []
        for times in (1, 2):
            taken.append(self._run(loop, times * rounds))
            if copies:
                self._check_copies(loop)
        once, twice = taken
        if twice <= once:
            raise EvidenceError(f"{2 * rounds} rounds of {loop} took {twice} TSC units, and {rounds} took {once}")
        return once, twice

    def connect(self, loop: str, probe: str) -> None:
        """Connect a probe to the loop's marker, which must have none. A refusal is reported in the module's words."""
        try:
            self._put("armed", f"{loop} {probe}")
        except GuestError as error:
            if type(error) is not GuestError:
                raise  # the guest is in trouble, which is no refusal
            raise EvidenceError(f"{probe} cannot be connected to {loop}: {self._reason(loop) or error.what}") from None

    def exchange(self, probe: str) -> None:
        """Exchange the connected probe for another one in the same connection. Raises GuestError for a wrong one."""
        self._put("probe", probe)

    def probe(self) -> str:
        """The probe that the connected marker calls, as it is found there; ``-`` where nothing is connected.

        An address where what it calls is no probe of the module's.
        """
        (text, *more) = self._lines("probe") or [""]
        if more or not re.fullmatch(r"-|\w{1,40}", text):
            raise EvidenceError(f"the module reports probe={text[:40]!r}")
        return text

    def disconnect(self) -> None:
        """Disconnect what is connected, if anything is."""
        self._put("armed", "-")

    def count(self, loop: str) -> tuple[int, int]:
        """Run COUNTED_ROUNDS rounds; return the connected probe's calls, and those with wrong arguments."""
        before = self._number("hits"), self._number("wrong")
        self._run(loop, COUNTED_ROUNDS)
        return self._number("hits") - before[0], self._number("wrong") - before[1]

    def address(self, loop: str, place: str) -> int:
        """The address of the loop's marker: its instruction (``immediate``) or flag; ``loop``: its first instruction.

        For ``static_key``, ``tracepoint`` and ``int3`` the place that is patched.
        """
        if place in ("immediate", "flag"):
            found = [
                match for line in self._lines("markers") if (match := _LISTED.fullmatch(line)) and match[1] == loop
            ]
            addresses = {int(match[4] if place == "immediate" else match[5], 16) for match in found}
        else:
            wanted = loop if place == "loop" else place
            listed = [_PLACE.fullmatch(line) for line in self._lines("places")]
            addresses = {int(match[2], 16) for match in listed if match and match[1] == wanted}
        if len(addresses) != 1 or not min(addresses):
            raise EvidenceError(f"the module reports {len(addresses)} places of {loop}, not one")
        return addresses.pop()

    def _check_copies(self, loop: str) -> None:
        copied, passed = self._lines("copied"), self._lines("passed")
        if copied != passed:
            found, expected = (" / ".join(texts)[:80] for texts in (copied, passed))
            raise EvidenceError(f"the probe of {loop} copied {found!r}, and {expected!r} was passed")

    def _run(self, loop: str, rounds: int) -> int:
        self.guest.put(f"{loop} {rounds}".encode(), self._file("run"), time_limit=self.left())
        return self._number("taken")

    def _reason(self, loop: str) -> str:
        """Why the module refused the loop's marker, from the kernel's log; empty where that has no reason."""
        log = self.guest.run(["dmesg"]).text
        reasons = re.findall(rf"{re.escape(self.module_name)}: marker {re.escape(loop)}: (.{{1,200}})", log)
        return str(reasons[-1]) if reasons else ""

    def _put(self, parameter: str, value: str) -> None:
        self.guest.put(value.encode(), self._file(parameter))

    def _lines(self, parameter: str) -> list[str]:
        return kernel_value(self.guest, self._file(parameter)).splitlines()

    def _number(self, parameter: str) -> int:
        (text, *more) = self._lines(parameter) or [""]
        if more or not re.fullmatch(r"\d{1,18}", text):
            raise EvidenceError(f"the module reports {parameter}={text[:40]!r}")
        return int(text)

    def _file(self, parameter: str) -> str:
        return f"/sys/module/{self.module_name}/parameters/{parameter}"
