# SPDX-License-Identifier: GPL-2.0-only
"""Does a sentence say what it would take to reach what no call reaches, and is each pattern of the table looked at?"""

from __future__ import annotations

import pytest

from orchestrator.cost.unreached import place_needs, without_function, without_tracepoint


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("migrate_misplaced_page", "a machine with two memory nodes, between which pages move (NUMA)"),
        ("md_flush_request", "an array of disks (md), which the guest has not"),
        ("mutex_lock_nested", "a kernel with lockdep (CONFIG_DEBUG_LOCK_ALLOC)"),
        ("cpufreq_update_util", "a CPU whose frequency changes (cpufreq), which no guest has"),
        (
            "do_init_module",
            "a module that is loaded or unloaded, which waits for RCU; a wait has no cost in instructions",
        ),
    ],
)
def test_what_it_takes_to_enter_a_function(name: str, takes: str) -> None:
    assert without_function(name, "no known call enters it") == f"no known call enters it; it takes {takes}"


@pytest.mark.parametrize("event", ["sched:sched_migrate_task", "sched_migrate_task"])
def test_what_it_takes_to_hit_a_tracepoint_of_either_name(event: str) -> None:
    takes = "a second CPU, as tasks move from one to another"
    assert without_tracepoint(event, "no known call hits it") == f"no known call hits it; it takes {takes}"


def test_nothing_is_said_of_a_name_that_the_table_does_not_have() -> None:
    assert without_function("vfs_raed", "no known call enters it") == "no known call enters it"
    assert without_tracepoint("sched:sched_switch", "no known call hits it") == "no known call hits it"


def test_a_name_of_the_table_has_one_requirement() -> None:
    """Another entry with the same pattern would never be reached."""
    for patterns in ("functions", "tracepoints"):
        written = [pattern for need in place_needs().values() for pattern in getattr(need, patterns)]
        assert [pattern for pattern in written if written.count(pattern) > 1] == []
