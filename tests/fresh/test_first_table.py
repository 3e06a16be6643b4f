# SPDX-License-Identifier: GPL-2.0-only
"""Is a table refused that the first command cannot have printed?"""

from __future__ import annotations

import pytest
from first_table import check_printed

_PRINTED = """\
Overhead of probes

                     linux-6.1.0-50-686  kprobes [1]  jprobe  djprobe
─────────────────────────────────────────────────────────────────────
gtodbench(sample1)                  422         1048    1872      470
gtodbench(sample2)                  422         1048    1872      470
ratio to djprobe                      -        13.04   30.21     1.00
int3 a hit                            -            2       3        0
─────────────────────────────────────────────────────────────────────
published(sample1)                  230         1247    1808      260

[1] kprobes: 37 instructions of a hit are the aggregator

Evidence at __ia32_sys_gettimeofday+0x5 (clocksource tsc)
  baseline  none  55 89 e5 57 56  no probe, 5000 calls
  kprobes   int3  cc 89 e5 57 56  1000 hits = 1000 calls, 2 int3 a hit,
                  bytes restored
  jprobe    int3  cc 89 e5 57 56  1000 hits = 1000 calls, 3 int3 a hit,
                  bytes restored
  djprobe   jmp   e9 36 a8 76 0f  1000 hits = 1000 calls, bytes restored,
                  detour 0xd0871f80-0xd0871f98
"""


def test_what_was_measured_is_read() -> None:
    table = check_printed(_PRINTED)
    assert table.kernel == "linux-6.1.0-50-686"
    assert table.samples() == [("422", "1048", "1872", "470")] * 2
    assert table.rows["int3 a hit"] == ("-", "2", "3", "0")
    assert len(table.rows) == 4


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("  djprobe\n──", "\n──"),
        ("  kprobes [1]  jprobe", "  jprobe  kprobes [1]"),
        ("linux-6.1.0-50-686", "kernel"),
        ("    1872      470\nratio", "    1872\nratio"),
        ("─", "-"),
        ("Evidence at", "No evidence at"),
    ],
)
def test_another_form_is_refused(was: str, becomes: str) -> None:
    assert was in _PRINTED
    with pytest.raises(ValueError, match=r"table|columns|values|substring"):
        check_printed(_PRINTED.replace(was, becomes))


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("gtodbench(sample2)                  422", "gtodbench(sample2)                  423"),
        ("gtodbench(sample2)", "gtodbench(other)  "),
        ("1000 hits = 1000 calls, 3", "1000 hits = 999 calls, 3"),
        ("422", "0"),
    ],
)
def test_other_values_are_refused(was: str, becomes: str) -> None:
    assert was in _PRINTED
    with pytest.raises(AssertionError):
        check_printed(_PRINTED.replace(was, becomes))
