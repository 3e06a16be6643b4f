# SPDX-License-Identifier: GPL-2.0-only
"""What the first command has to print: the table of its four cells, measured the same in each sample, and evidence."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.results.contract import RunRecord

PROBES = ("none", "kprobe", "jprobe", "djprobe")
_HEADINGS = ("kprobes", "jprobe", "djprobe")
_RULE = re.compile(r"^─+$")
_MARK = re.compile(r" \[\d+\]")
"""A heading's reference to a note."""
_EVERY_CALL_HIT = re.compile(r" ([1-9]\d*) hits = \1 calls,")


@dataclass(frozen=True)
class FirstTable:
    """The kernel that heads the first column, and the measured rows."""

    kernel: str
    rows: dict[str, tuple[str, ...]]

    def samples(self) -> list[tuple[str, ...]]:
        """The rows of the single samples."""
        return [values for name, values in self.rows.items() if "(sample" in name]


def read_table(printed: str) -> FirstTable:
    """Read the first table of what was printed. Raises ValueError where there is none of its form."""
    lines = printed.splitlines()
    rules = [number for number, line in enumerate(lines) if _RULE.match(line)]
    if len(rules) < 2 or rules[0] == 0:
        raise ValueError("no table was printed")
    kernel, *headings = _MARK.sub("", lines[rules[0] - 1]).split()
    if not kernel.startswith("linux-") or tuple(headings) != _HEADINGS:
        raise ValueError(f"the table's columns are {kernel} {' '.join(headings)}, not a kernel and {_HEADINGS}")
    rows = {}
    for line in lines[rules[0] + 1 : rules[1]]:
        name, *values = re.split(r"\s{2,}", line.strip())
        rows[name] = tuple(values)
        if len(values) != 1 + len(_HEADINGS):
            raise ValueError(f"a row of the table has {len(values)} values: {line}")
    return FirstTable(kernel, rows)


def check_printed(printed: str) -> FirstTable:
    """The table, which is what it has to be: every sample the same, and evidence beside it."""
    table = read_table(printed)
    assert len(table.samples()) > 1, table.rows
    assert len(set(table.samples())) == 1, f"samples differ: {table.samples()}"
    assert all(int(value) > 0 for value in table.samples()[0])
    evidence = printed[printed.index("\nEvidence at ") :]
    assert len(_EVERY_CALL_HIT.findall(evidence)) == len(_HEADINGS), evidence
    return table


def check_record(record: RunRecord, table: FirstTable) -> None:
    """Check the run's record: four proved cells, with the values that the table has."""
    assert [cell.probe for cell in record.cells] == list(PROBES)
    for cell, printed in zip(record.cells, table.samples()[0], strict=True):
        assert cell.status == "ok", cell.reason
        assert cell.evidence is not None
        assert cell.evidence.hits == (0 if cell.probe == "none" else cell.evidence.calls)
        assert set(cell.samples) == {float(printed)}
