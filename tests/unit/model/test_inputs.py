# SPDX-License-Identifier: GPL-2.0-only
"""What has a cost among the instructions of a profile."""

from __future__ import annotations

from fractions import Fraction

from record_builders import any_evidence, cell

from orchestrator.catalog.cost_table import INPUTS, Input
from orchestrator.model.modelled_run import difference, inputs
from orchestrator.results.stored_profile import CellProfile, Instruction, SymbolProfile

CODE = {"cc": 2, "cf": 2, "9d": 1, "9c": 1, "0f31": 1, "f00fb111": 5, "90": 30}


def profile() -> CellProfile:
    instructions = tuple(Instruction(at, code, 500 * times) for at, (code, times) in enumerate(CODE.items()))
    symbol = SymbolProfile(name="f", place="kernel", address=0, instructions=instructions)
    return CellProfile(cell="a/b", arch="i386", calls=500, has_details=False, symbols=(symbol,))


def test_every_instruction_has_one_cost() -> None:
    recording = cell("djprobe", evidence=any_evidence("djprobe", recorded=1000))
    assert inputs(profile(), recording, INPUTS) == {
        "instruction": 30,
        "trap": 2,  # with its iret
        "popf": 1,
        "pushf": 1,
        "rdtsc": 1,
        "locked": 5,
        "recorded line": 1,
    }


def test_what_has_no_cost_of_its_own_is_a_plain_instruction() -> None:
    assert inputs(profile(), cell("djprobe"), ["instruction"]) == {"instruction": 42}
    assert inputs(profile(), cell("djprobe"), ["instruction", "trap"]) == {"instruction": 38, "trap": 2}


def test_the_difference_of_two_has_what_changed() -> None:
    one: dict[Input, Fraction] = {"instruction": Fraction(5), "popf": Fraction(1), "trap": Fraction(2)}
    other: dict[Input, Fraction] = {"instruction": Fraction(3), "popf": Fraction(1), "locked": Fraction(1)}
    assert difference(one, other) == {"instruction": 2, "trap": 2, "locked": -1}
