# SPDX-License-Identifier: GPL-2.0-only
"""The parameters of records that several layers read, by their names: who records one and who reads it import it here.

A kind of benchmark that alone reads its parameters names them in its folder. Each name also reads its value from a
record; None where the record has none, or one of another type.
"""

from __future__ import annotations

from orchestrator.results.contract import CellRecord


class TextParameter(str):
    """The name of a parameter that is text."""

    __slots__ = ()

    def of(self, record: CellRecord) -> str | None:
        value = record.parameters.get(self)
        return value if isinstance(value, str) else None


class CountParameter(str):
    """The name of a parameter that is a whole number."""

    __slots__ = ()

    def of(self, record: CellRecord) -> int | None:
        value = record.parameters.get(self)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


class NumberParameter(str):
    """The name of a parameter that is a number."""

    __slots__ = ()

    def of(self, record: CellRecord) -> float | None:
        value = record.parameters.get(self)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# Of all kinds of benchmark.
KERNEL_RELEASE = TextParameter("kernel_release")
USUAL_PARAMETERS, IMPLIED_OPTIONS = TextParameter("usual_parameters"), TextParameter("implied_options")
"""The command line without the kernel's own parameters, and what else its options have changed; only where a kernel has
parameters or options of its own."""
ACCELERATOR = TextParameter("accelerator")
"""``kvm`` or ``tcg``: who executed the guest's instructions."""
IMAGE = TextParameter("image")
CHANNEL = TextParameter("channel")
"""Only where it is not the usual one."""
PROBE_BYTES_PLAIN, PROBE_BYTES_EXTRA = CountParameter("probe_bytes_plain"), CountParameter("probe_bytes_extra")
"""Bytes of a probe that is not optimised, and how many more an optimised one takes."""

# Of calls.
CALL, ARGUMENTS, WORKLOAD = TextParameter("call"), TextParameter("arguments"), TextParameter("workload")
KERNEL_MODULES = TextParameter("kernel_modules")
AT = TextParameter("at")
"""The probe point that the experiment names or the lab finds."""
POINTS = TextParameter("points")
"""How the lab found the point: ``executed``, or ``SYMBOL+*``."""
ONE_LINER = TextParameter("one_liner")
BPFTRACE, ATTACHED = TextParameter("bpftrace"), TextParameter("attached")
"""The version of bpftrace, and the probe kinds that it has made of a one-liner, as the kernel says."""
TOOL, TOOL_PROGRAM = TextParameter("tool"), TextParameter("tool_program")
"""A tool's command, and what it started in the guest."""
BPF_SECTION = TextParameter("bpf_section")
"""The sections of a user's BPF programs, which say where libbpf attaches them."""
BPF_SIZED, BPF_NEW_KEYS = TextParameter("bpf_sized"), TextParameter("bpf_new_keys")
"""The maps of a user's object that the lab gave a size, where the source gives none or of a ring; those that hits
insert into."""
BPF_MAP_STATES = TextParameter("bpf_map_states")
"""What hits find in maps with keys: ``seen: insert, counts: keys are there, starts: no keys``."""
ABOUT_MAPS = (BPF_SIZED, BPF_NEW_KEYS)
"""Sentences for notes on a BPF program's maps: what the lab did with them, and what limits the number."""
BPF_HITS = TextParameter("bpf_hits")
"""What is to be said of a call's hits: that they differ from each other, or that the clock does not see all of them."""
BPF_FULL, BPF_FULL_SAVES = TextParameter("bpf_full"), NumberParameter("bpf_full_saves")
"""A sentence on hits that find no room in the buffers that they send records to, and how many instructions a call with
them takes less."""
BPF_LEAVES, BPF_LEAVES_AT = TextParameter("bpf_leaves"), TextParameter("bpf_leaves_at")
"""A sentence on a program that each hit leaves without having done anything, and where that is."""
BPF_EXECUTED, BPF_CODE = CountParameter("bpf_executed"), CountParameter("bpf_machine_instructions")
"""How many of a program's machine instructions hits execute, and how many it has."""
BPF_EXECUTED_LINES, BPF_LINES = CountParameter("bpf_executed_lines"), CountParameter("bpf_lines")
"""The same of the source's lines: those that the verifier has removed the code of are not executed."""
RUN_HITS, RUN_SEMAPHORE = TextParameter("run_hits"), TextParameter("run_semaphore")
"""How many hits runs of a command have, and what each takes; that the program does work for a semaphore."""
BPF_NOT_RUN, BPF_NOT_ATTACHED = TextParameter("bpf_not_run"), TextParameter("bpf_not_attached")
"""Of programs that are attached together: those that no call runs, and those that are loaded alone or optional."""
ABOUT_HITS = (
    *ABOUT_MAPS,
    BPF_HITS,
    BPF_FULL,
    BPF_LEAVES,
    RUN_HITS,
    RUN_SEMAPHORE,
    BPF_NOT_RUN,
    BPF_NOT_ATTACHED,
)
BPF_VERIFIED, BPF_INSTRUCTIONS = CountParameter("bpf_verified"), CountParameter("bpf_instructions")
"""Instructions that the verifier has walked, and those of the programs, of all that are attached."""
BPF_MACHINE_CODE, BPF_STACK = CountParameter("bpf_machine_code_bytes"), CountParameter("bpf_stack_bytes")
"""Bytes of machine code, and the stack of the program that takes most."""
LISTED, ENTERED = TextParameter("listed"), TextParameter("entered")
"""The listed probes, and the functions that each hit entered, of a module that does not count its hits."""
ENTRY = TextParameter("entry")
OUTCOME = TextParameter("outcome")
"""What the calls returned, in words."""
RESULT_FAILED = CountParameter("result_failed")
"""Calls that failed."""
PLAIN = NumberParameter("without_probe")
"""The cost of calls without the probe, in turn with those that hit it, if calls vary; in the cell's unit."""
IN_TURNS = CountParameter("in_turns")
MOVED, CONTENDED = NumberParameter("moved_lines"), NumberParameter("contended_accesses")
"""Lines that a call gets from other CPUs' caches, and its accesses to lines that several CPUs access and one writes;
of calls on several CPUs in turns."""
CONTENDED_LINES = CountParameter("contended_lines")
MOVED_BY, ON_EACH_CPU = TextParameter("moved_by"), TextParameter("instructions_on_each_cpu")
"""Who accessed the lines that moved, and a call's instructions on each CPU."""

# Of markers.
ROUNDS = CountParameter("rounds")

# Of attaching and of many probes.
SEED = CountParameter("seed")
"""Chooses functions."""

# Of a whole system's work.
SCOPE, COMMAND, PACKETS = TextParameter("scope"), TextParameter("command"), CountParameter("packets")
RESOLVABLE = NumberParameter("resolvable")
"""The smallest difference that can be resolved, in the cell's unit."""
