# SPDX-License-Identifier: GPL-2.0-only
"""The lines that a guest printed, without what the kernel's log puts before them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from orchestrator.plain_text import plain_text

LINE_MAX = 4096
LINES_MAX = 500_000
"""Characters of a line, and lines, that are looked at."""

# printk's level, time stamp and, with CONFIG_PRINTK_CALLER, the thread or CPU; one space ends them (kernel/printk).
_PREFIX = re.compile(r"^(?:<\d{1,3}>)?\[ {0,12}\d{1,12}\.\d{6}\](?:\[ {0,12}[TC]\d{1,8}\])? ?")
# A message may begin behind a line that a program has not ended yet.
_INSIDE = re.compile(r"(?<=[^ >])(?=(?:<\d{1,3}>)?\[ {0,12}\d{1,12}\.\d{6}\](?:\[ {0,12}[TC]\d{1,8}\])? )")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class TooManyLinesError(Exception):
    """More was printed than is looked at."""


def printed_lines(text: str) -> Iterator[str]:
    """The lines with their indentation, without log prefixes and control characters. Raises TooManyLinesError."""
    count = 0
    for whole in io.StringIO(
        text, newline="\n"
    ):  # one at a time: as a list, 16 MiB of short lines take half a gigabyte
        for part in _INSIDE.split(whole.rstrip("\n")[:LINE_MAX]):
            count += 1
            if count > LINES_MAX:
                raise TooManyLinesError(f"it has more than {LINES_MAX} lines; the others were not looked at")
            yield plain_text(_PREFIX.sub("", _CONTROL.sub("", part)).rstrip())
