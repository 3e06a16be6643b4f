# SPDX-License-Identifier: GPL-2.0-only
"""Is a call found that reaches a function of a kernel, and does it hit a probe there as often as was counted?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.cost.call_table import call_table
from orchestrator.cost.counted_table import counted_part, counted_table, table_parts
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.results.contract import RunRecord

CPU = "xeon-e5410"
EXPECTED = {
    "__x64_sys_getppid": ("getppid", 1),
    "vfs_read": ("read_zero", 1),
    "do_sys_openat2": ("open", 1),
    "tcp_sendmsg": ("tcp", 1),
    "handle_mm_fault": ("page_fault", 1),
    "vfs_rename": ("rename", 2),
    "tcp_v4_connect": ("tcp_connect", 1),
    "do_exit": ("thread", 1),
    "security_bprm_check": ("exec", 1),
    "inet_bind": ("bind", 1),
    "inet_listen": ("listen", 1),
    "tcp_v6_connect": ("tcp6_connect", 1),
    "sock_do_ioctl": ("socket_ioctl", 1),
    "rtnetlink_rcv_msg": ("netlink", 1),
    "tcp_retransmit_skb": ("tcp_retransmit", 1),
}
"""Functions, the call that reaches each, and its hits."""
IN_MODULES = {
    "blk_mq_start_request": ("block_read", 1),
    "do_swap_page": ("swap", 1),
    "try_to_free_mem_cgroup_pages": ("reclaim", 1),
    "ext4_file_read_iter": ("ext4_read", 1),
    "ext4_readahead": ("ext4_miss", 1),
}
"""The same of calls that need modules of the kernel's own."""
TRACEPOINTS = {"consume_skb": ("udp", 1), "tcp_destroy_sock": ("bind", 1), "task_newtask": ("thread", 1)}

pytestmark = [pytest.mark.qemu, pytest.mark.nightly("makes all kinds of calls in guests that count: minutes each")]


@pytest.mark.parametrize("kernel", ["debian-amd64", "debian-amd64@7.3"])
def test_the_found_calls_hit_a_probe_as_often_as_was_counted(
    workshop: BuildContext, tmp_path: Path, kernel: str
) -> None:
    built, machine = ready_kernel(workshop, kernel_spec(kernel)), MachineSpec(cpu=CPU)
    table, last = counted_table(workshop, built, machine), table_parts(built)[-1]
    assert last.modules
    of_modules = counted_part(workshop, built, machine, last)
    assert {name: call.failure for name, call in table.calls.items() if call.failure} == {}
    assert set(table.calls) == set(call_table())
    in_modules = {name: of_modules.functions_of_one_process.call(name) for name in IN_MODULES}
    assert {name: None if call is None else (call.name, call.hits) for name, call in in_modules.items()} == IN_MODULES
    reached = table.functions_of_one_process
    assert reached.call("quotactl_block") is None
    known = [(call.name, function) for call in call_table().values() for function in call.enters]
    assert [table.calls[name].functions.get(function) for name, function in known] == [1] * len(known)
    hit = {event: table.tracepoints.call(event) for event in TRACEPOINTS}
    assert {event: None if call is None else (call.name, call.hits) for event, call in hit.items()} == TRACEPOINTS
    tables = {}
    for function, expected in EXPECTED.items():
        call = reached.call(function)
        assert call is not None, function
        assert (call.name, call.hits) == expected
        benchmark = {**call.benchmark, "calls": 100}
        tables[call.name.replace("_", "-")] = {"points": [function], "benchmark": benchmark}
    common = {"name": "reaching", "kernels": [kernel], "machines": [{"cpu": CPU}], "probes": ["none", "kprobe"]}
    file = tmp_path / "reaching.yaml"
    file.write_text(json.dumps({**common, "tables": tables}))
    command = CommandLine(tmp_path)
    ran = command.run("run", file)
    assert ran.returncode == 0, ran.stderr
    answer = command.run("report", "latest", "--format", "json").stdout
    cells = RunRecord.model_validate_json(answer, strict=False).cells
    hits = {str(cell.parameters["at"]): cell.evidence.hits_per_call for cell in cells if cell.evidence is not None}
    assert hits == {function: expected for function, (_, expected) in EXPECTED.items()}
