# SPDX-License-Identifier: GPL-2.0-only
"""Is what a benchmark prints turned into the right samples, and anything else refused?"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loaded_tables import only_table

from orchestrator import host_packages
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.module_source import render_own
from orchestrator.artifacts.user_programs import compiled_workload
from orchestrator.benchmarks.calls import call_programs, header_constants, measurement, whole_programs
from orchestrator.benchmarks.calls.benchmarks import Buffer
from orchestrator.benchmarks.calls.call_programs import system_call, user_function
from orchestrator.benchmarks.calls.call_results import CallOutcome, always_failing, watched_parameters
from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.calls.cell_work import PointObservations
from orchestrator.benchmarks.calls.header_constants import header_constant
from orchestrator.benchmarks.calls.program_output import parse, parse_called, parse_watched
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.benchmarks.calls.sampling import SOUNDING, Sampling, calls_before_timed
from orchestrator.benchmarks.calls.whole_programs import WholeProgram, parse_runs
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import BuildError, ConfigError, EvidenceError, HostError, UsageError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Called, CallResults

pytestmark = pytest.mark.usefixtures("host_compiles")

# 5000 calls of 409 instructions in two batches that cost 17 each.
GOOD = """\
entry sysenter number=78
empty tsc=17 ns=1093
sample 0 calls=5000 batches=2 tsc=2045034 ns=2047186 disturbed=1
sample 1 calls=5000 batches=2 tsc=2045034 ns=2047186 disturbed=0
results timed observed=5 failed=0 before=5 other=0 last=0x0 values=0x0:5
results untimed observed=5000 failed=0 before=5000 other=0 last=0x0 values=0x0:5000
"""


def results(timed: int, untimed: int) -> str:
    """The lines on calls that all returned 0."""
    return "\n".join(
        f"results {name} observed={calls} failed=0 before={calls} other=0 last=0x0 values={value}"
        for name, calls in (("timed", timed), ("untimed", untimed))
        for value in [f"0x0:{calls}" if calls else ""]
    )


def asked(calls: int, repeats: int) -> Sampling:
    """What a program was asked to do, in batches of any size."""
    return Sampling(calls, calls, repeats, calls)


def succeeded(calls: int) -> CallResults:
    """The results of calls that all returned 0."""
    return CallResults(calls, 0, calls, ((0, calls),), 0, 0)


def test_samples_are_instructions_a_call() -> None:
    outcome = CallOutcome(succeeded(5), succeeded(5000))
    assert parse(GOOD, asked(5000, 2)) == Measurement(
        samples=(409.0, 409.0),
        nanoseconds=(409.0, 409.0),
        entry="sysenter",
        calls=5000,
        batches=4,
        disturbed=1,
        number=78,
        outcome=outcome,
        batch=5000,
        empty=17,
        ticks=((2, 2045034), (2, 2045034)),
    )


def test_calls_behind_the_samples_are_as_many_as_asked_for() -> None:
    alone = Sampling(5000, 2500, 2)
    output = GOOD.replace("observed=5000 failed=0 before=5000", "observed=0 failed=0 before=0").replace("0x0:5000", "")
    measured = parse(output, alone)
    assert measured.samples == (409.0, 409.0)
    assert measured.outcome is not None
    assert (measured.outcome.untimed.observed, measured.outcome.results) == (0, succeeded(5))
    for text, sampling in ((GOOD, alone), (output, asked(5000, 2))):
        with pytest.raises(EvidenceError, match="not what was expected"):
            parse(text, sampling)


def test_function_has_no_results() -> None:
    output = GOOD.replace("sysenter number=78", "function")
    measured = parse(output[: output.index("results")], asked(5000, 2))
    assert (measured.samples, measured.number, measured.outcome) == ((409.0, 409.0), None, None)
    with pytest.raises(EvidenceError, match="not what was expected"):
        parse(output, asked(5000, 2))


def test_a_sample_need_not_be_a_whole_number() -> None:
    output = "entry int80\nempty tsc=10 ns=1\nsample 0 calls=4 batches=1 tsc=1013 ns=1 disturbed=0\n" + results(2, 4)
    assert parse(output, asked(4, 1)).samples == (250.75,)


def test_an_odd_sample_is_not_evened_out() -> None:
    output = GOOD.replace("tsc=2045034", "tsc=2045035", 1)
    assert parse(output, asked(5000, 2)).samples == (409.0002, 409.0)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "\n",
        "callbench: gettimeofday failed\n",
        GOOD.replace("entry sysenter number=78\n", ""),
        GOOD.replace("number=78", "number="),
        GOOD.replace("empty tsc=17 ns=1093\n", ""),
        GOOD.replace("sysenter", "vdso"),
        GOOD + GOOD.splitlines()[-1],
        GOOD.replace("results timed observed=5 failed=0 before=5", "results timed observed=4 failed=0 before=4"),
        GOOD.replace("0x0:5000", "0x0:4999"),
        GOOD.replace("results untimed", "results timed"),
        GOOD + "something else\n",
        GOOD + "\n",
        "\n" + GOOD,
        GOOD[: GOOD.rindex("sample")],
        GOOD[:-2],
        GOOD[: GOOD.index("results")],
        GOOD[: GOOD.rindex("results")],
        GOOD.replace("sample 1", "sample 0"),
        GOOD.replace("sample 1", "sample 2"),
        GOOD.replace("calls=5000", "calls=4999"),
        GOOD.replace("batches=2", "batches=0"),
        GOOD.replace("tsc=2045034", "tsc=-1"),
        GOOD.replace("tsc=2045034", "tsc=1e6"),
        GOOD.replace("tsc=2045034", "tsc=33"),
        GOOD.replace("tsc=2045034", f"tsc={'9' * 19}"),
        GOOD.replace("sample 1", f"sample {'1' * 5000}"),
        GOOD.replace("disturbed=0", "disturbed="),
        GOOD.replace("tsc=17", "tsc=x"),
        GOOD.replace(" ns", "  ns"),
    ],
)
def test_anything_but_a_whole_answer_is_refused(output: str) -> None:
    with pytest.raises(EvidenceError, match="not what was expected"):
        parse(output, asked(5000, 2))


def test_samples_of_another_run_are_refused() -> None:
    for calls, repeats in ((5000, 1), (5000, 3), (1000, 2)):
        with pytest.raises(EvidenceError):
            parse(GOOD, asked(calls, repeats))


def test_a_refusal_quotes_what_was_printed_within_bounds() -> None:
    with pytest.raises(EvidenceError) as caught:
        parse("nonsense\n" * 1000, asked(5000, 2))
    assert caught.value.detail == ("nonsense",) * 10


counts = st.integers(1, 10**6)


@given(counts, st.lists(counts, min_size=1, max_size=5), st.integers(0, 10**4), st.integers(1, 1000), counts)
def test_what_the_program_prints_is_read_back(
    calls: int, instructions: list[int], fixed: int, batches: int, disturbed: int
) -> None:
    lines = ["entry syscall", f"empty tsc={fixed} ns=0"]
    lines += [
        f"sample {i} calls={calls} batches={batches} tsc={calls * each + batches * fixed} ns=1 disturbed={disturbed}"
        for i, each in enumerate(instructions)
    ]
    lines.append(results(1 + batches * len(instructions), calls))
    measured = parse("\n".join(lines), asked(calls, len(instructions)))
    assert measured.samples == tuple(map(float, instructions))
    assert measured.batches == batches * len(instructions)
    assert measured.disturbed == disturbed * len(instructions)


@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.text("0123456789 =-xe\n\0ä", max_size=3)), max_size=4))
def test_a_damaged_output_is_read_or_refused(damage: list[tuple[int, str]]) -> None:
    text = GOOD
    for place, inserted in damage:
        text = text[:place] + inserted + text[place + 1 :]
    try:
        measured = parse(text, asked(5000, 2))
    except EvidenceError:
        return
    assert len(measured.samples) == 2
    assert min(measured.samples) > 0
    assert measured.entry in ("int80", "sysenter", "syscall")


CALLED = (
    "entry int80\ncalled calls=1000 pid=28 result=0x0 number=78 arguments=0x8050228,0x0,0x0,0x0,0x0,0x5\n"
    + results(1, 1000).splitlines()[1]
)


FUNCTION = "entry function\ncalled calls=7 pid=28 result=0x0\n"


def test_calls_that_were_not_timed_are_read() -> None:
    arguments = (0x8050228, 0, 0, 0, 0, 5)
    assert parse_called(CALLED, 1000) == Called("int80", 1000, frozenset({28}), 78, arguments, 0, succeeded(1000))
    assert parse_called(FUNCTION, 7) == Called("function", 7, frozenset({28}))


@pytest.mark.parametrize(
    "output",
    [
        "",
        "entry int80\n",
        CALLED.replace("entry int80\n", ""),
        CALLED.replace("int80", "vdso"),
        CALLED + "\nmore\n",
        CALLED[: CALLED.index("results")],
        CALLED.replace("observed=1000 failed=0 before=1000", "observed=999 failed=0 before=999"),
        CALLED.replace("calls=1000", "calls=999"),
        CALLED.replace("pid=28", "pid=-28"),
        CALLED.replace("pid=28", f"pid={'1' * 19}"),
        CALLED.replace("0x8050228", "8050228"),
        CALLED.replace("0x8050228", "0x8050228g"),
        CALLED.replace("0x8050228", f"0x{'f' * 17}"),
        CALLED.replace("0x0", "(null)"),
        CALLED.replace("untimed", "timed"),
        CALLED.replace(",0x5", ""),
        CALLED.replace("0x5", "0x5,0x6"),
        CALLED.replace(" result=0x0", ""),
        CALLED.replace(" number=78", ""),
        CALLED.replace("int80", "function"),
        CALLED.replace("78", "78 "),
        CALLED.replace("called calls", "called  calls"),
    ],
)
def test_anything_else_about_them_is_refused(output: str) -> None:
    with pytest.raises(EvidenceError, match="not what was expected"):
        parse_called(output, 1000)


class Programs:
    """A guest in which the program prints one of these after the other, the last again and again."""

    def __init__(self, *outputs: str) -> None:
        self.outputs = list(outputs)
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
        del time_limit
        self.asked.append(argv)
        output = self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]
        return CommandResult(tuple(argv), 0, output.encode(), b"")


def test_a_baseline_is_of_the_system_call_that_was_asked_for() -> None:
    """No hits prove it: a program that makes another call is told by the number that its loop loads."""
    right, wrong = (system_call(number, [], entry="auto", word_size=4, calls=50) for number in (78, 20))
    head = "entry int80 number=78\nempty tsc=10 ns=1\nsample 0 calls=50 batches=50 tsc=1000 ns=1000 disturbed=0\n"
    output, sized = head + results(51, 50), head + results(51, 0)
    guest = cast(Guest, Programs(sized, output))
    assert right.measure_one(guest, ticks_per_second=250, time_limit=1.0).number == 78
    for program in (sized, sized.replace(" number=78", "")):
        guest = cast(Guest, Programs(program))
        with pytest.raises(EvidenceError, match=r"^the program made system call (78|None), not 20$"):
            wrong.measure_one(guest, ticks_per_second=250, time_limit=1.0)
    counted = cast(Guest, Programs(CALLED))
    assert right.call(counted, 1000, caller=None, time_limit=1.0).number == 78
    with pytest.raises(EvidenceError, match=r"^the program made system call 78, not 20$"):
        wrong.call(counted, 1000, caller=None, time_limit=1.0)


def test_the_first_call_to_fail_is_looked_for_within_bounds() -> None:
    """A sample has up to a million calls, and a cell a hundred samples: as many once more would take hours."""
    calls = 1_000_000
    head = "entry int80 number=78\nempty tsc=10 ns=1\n"
    guest = Programs(
        f"{head}sample 0 calls=50 batches=50 tsc=1000 ns=1000 disturbed=0\n{results(51, 0)}",
        f"{head}sample 0 calls={calls} batches=1 tsc=9000000 ns=1 disturbed=0\n"
        "results timed observed=2 failed=1 before=1 other=0 last=0xffffffe8 values=0x0:1,0xffffffe8:1\n"
        f"results untimed observed={calls} failed={calls} before=0 other=0 last=0xffffffe8 values=0xffffffe8:{calls}\n",
    )
    program = system_call(78, [], entry="auto", word_size=4, calls=calls)
    with pytest.raises(EvidenceError):
        program.measure_one(cast(Guest, guest), ticks_per_second=250, time_limit=1.0)
    assert guest.asked[-1][-2:] == ["-c", "100000"]


class BusyHost(Programs):
    """Programs beside so much else that only batches of up to ``largest`` calls are not interrupted.

    The ticks that the guest has ``missed`` fall into the first so many tries, however small they are.
    """

    def __init__(self, largest: int, *outputs: str, missed: int = 0) -> None:
        super().__init__(*outputs)
        self.largest, self.missed = largest, missed

    def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
        self.missed -= 1
        if self.missed < 0 and int(argv[argv.index("-b") + 1]) <= self.largest:
            return super().run(argv, time_limit=time_limit)
        self.asked.append(argv)
        complaint = b"callbench: no batch without an interrupt, a page fault or another task in 200 attempts: ...\n"
        return CommandResult(tuple(argv), 2, b"", complaint)


def test_batches_are_smaller_where_they_are_interrupted() -> None:
    head = "entry int80 number=78\nempty tsc=10 ns=1\nsample 0 calls=50 batches=50 tsc=1000 ns=1000 disturbed=0\n"
    program = system_call(78, [], entry="auto", word_size=4, calls=50)
    guest = BusyHost(1, head + results(51, 0), head + results(51, 50))
    assert program.measure_one(cast(Guest, guest), ticks_per_second=250, time_limit=1.0).batch == 1
    assert [argv[argv.index("-b") + 1] for argv in guest.asked] == ["1", "50", "6", "1"]
    late = BusyHost(50, head + results(51, 0), head + results(51, 50), missed=3)
    assert program.measure_one(cast(Guest, late), ticks_per_second=250, time_limit=1.0).batch == 50
    never = BusyHost(0, head)
    with pytest.raises(EvidenceError, match="no batch without an interrupt"):
        program.measure_one(cast(Guest, never), ticks_per_second=250, time_limit=1.0)
    assert len(never.asked) == 10


# Can any system call, any point and a user's own files be named, and is everything that cannot be measured refused?

WORKLOADS = Path(__file__).with_name("workloads")


HEAD = "name: own\nkernels: [debian-686]\nmachines: [{cpu: pentium4}]\nprobes: [djprobe]\n"


OTHER = pytest.mark.nightly("the same on the other architecture: a second each")
ON_X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86_64 programs on the host")


Loader = Callable[..., Experiment]


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    """Load an experiment from a folder that has a C file, a module's template and a text in it."""
    for file in WORKLOADS.iterdir():
        (tmp_path / file.name).write_text(file.read_text())

    def load(text: str, *overrides: str) -> Experiment:
        (tmp_path / "x.yaml").write_text(HEAD + text)
        return load_experiment(tmp_path / "x.yaml", kinds(), overrides)

    return load


# --- experiments ----------------------------------------------------------------------------------


def test_each_point_is_a_cell_with_a_baseline_of_its_own(load: Loader) -> None:
    planned = plan(load("points: [vfs_read, ksys_read+0x10]\nbenchmark: {name: workload, file: reading.c, hits: 2}\n"))
    assert [cell.id for cell in planned.cells] == [
        "pentium4/debian-686/none/noop/vfs_read",
        "pentium4/debian-686/djprobe/noop/vfs_read",
        "pentium4/debian-686/none/noop/ksys_read+0x10",
        "pentium4/debian-686/djprobe/noop/ksys_read+0x10",
    ]
    assert {(cell.task.call, cell.task.hits) for cell in planned.cells} == {(None, 2)}
    assert {Path(cell.task.file or "").name for cell in planned.cells} == {"reading.c"}


def test_a_call_with_a_buffer_loads_again_as_it_was(load: Loader, tmp_path: Path) -> None:
    experiment = load("benchmark: {name: syscall, call: read, arguments: [0, {buffer: 16}, 16]}\n")
    (boot,) = plan(experiment).boots
    assert {boot: "artifacts"}[boot] == "artifacts"
    assert boot.cells[0].task.arguments == (0, Buffer(buffer=16), 16)
    (tmp_path / "again.yaml").write_text(experiment.resolved_yaml())
    assert load_experiment(tmp_path / "again.yaml", kinds()) == experiment


@pytest.mark.parametrize("expected", ["success", "EBADF", 0, 16])
def test_what_a_call_must_return_loads_again_as_it_was(load: Loader, tmp_path: Path, expected: str | int) -> None:
    experiment = load(f"benchmark: {{name: syscall, call: close, arguments: [-1], expect: {expected}}}\n")
    cells = plan(experiment).cells
    assert {cell.task.expected for cell in cells} == {expected}
    assert {(cell.parameters["arguments"], cell.parameters["expect"]) for cell in cells} == {("[-1]", expected)}
    (tmp_path / "again.yaml").write_text(experiment.resolved_yaml())
    assert load_experiment(tmp_path / "again.yaml", kinds()) == experiment


def test_arguments_are_told_within_bounds(load: Loader) -> None:
    planned = plan(load(f"benchmark: {{name: syscall, call: read, arguments: [0, {{buffer: 16}}, '{'ä' * 200}']}}\n"))
    told = str(planned.cells[0].parameters["arguments"])
    assert told.startswith('[0, {"buffer": 16}, "\\u00e4')
    assert (len(told), told[-4:]) == (200, " ...")


@pytest.mark.parametrize(
    "written",
    [*("4k", "1_000", "1e3", "0b11", "0644", "0o644", "1.5", ".5", "-0x1", "1<<3", "(1|2)", "18446744073709551616")],
)
def test_what_begins_as_a_number_is_no_text_to_point_to(load: Loader, written: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:5: benchmark\.arguments\.1: found '.+'; numbers are decimal"):
        load(f"benchmark: {{name: syscall, call: lseek, arguments: [0, {written}, 0]}}\n")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        *(("no", "has a constant no"), ("on", "has a constant on"), ("O_RDONYL", "has a constant O_RDONYL")),
        *(("open", "has a constant open"), ("SYS_close", "SYS_close is 6 .*, 3 .*: write the number")),
        *(("O_RDONLY+1", "neither a number nor"), ("hello world", "neither a number nor"), ("_IO(1|2)", "neither")),
    ],
)
def test_other_arguments_than_numbers_and_constants_are_quoted(load: Loader, written: str, why: str) -> None:
    text = "benchmark: {name: syscall, call: access, arguments: [%s, 0]}\n"
    with pytest.raises(ConfigError, match=rf"benchmark\.arguments\.0: found .+; .*{why}.*a text to point to stands in"):
        load(text % written)
    assert plan(load(text % f"'{written}'")).cells[0].task.arguments == (written, 0)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(("O_RDONLY", 0), ("AT_FDCWD", -100), ("O_WRONLY|O_CREAT | O_TRUNC", 0o1101), ("O_LARGEFILE", 0o100000)),
        *(("SOCK_STREAM", 1), ("MAP_ANONYMOUS", 0x20), ("FUTEX_WAKE", 1), ("BPF_PROG_LOAD", 5), ("SEEK_END", 2)),
        *(("18446744073709551615", (1 << 64) - 1), ("+3", 3), ("-9223372036854775808", -1 << 63)),
    ],
)
def test_a_constant_of_c_is_the_number_that_the_compiler_finds(load: Loader, written: str, value: int) -> None:
    text = f"benchmark: {{name: syscall, call: openat, arguments: [-100, /dev/null, {written}]}}\n"
    experiment = load(text)
    assert plan(experiment).cells[0].task.arguments == (-100, "/dev/null", value)
    assert experiment == load(text, f"benchmark.arguments=[-100, '/dev/null', {value}]")
    assert experiment == load(text, "benchmark.arguments.2=0", f"benchmark.arguments.2={written}")


@pytest.mark.parametrize("name", ["linux", "unix", "__LINE__", "__COUNTER__", "__GNUC__", "__CHAR_BIT__", "_LP64"])
def test_what_the_compiler_itself_defines_is_no_constant(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no header of the kernel or of the C library has a constant {name}"):
        header_constant(name)


@pytest.mark.parametrize(("name", "value"), [("__WALL", 1 << 30), ("_NSIG", 64), ("IPPROTO_TCP", 6)])
def test_a_constant_of_a_header_may_have_any_name(name: str, value: int) -> None:
    assert header_constant(name) == value


def test_a_header_that_is_not_in_the_list_ends_the_search_for_those_that_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A compiler may name a line that has no header, again and again."""
    answers = iter([("", "constant.c:2:1: error: no\n"), *[("", "In file from constant.c:999:\n")] * 3])
    monkeypatch.setattr(header_constants, "_compiled", lambda *_: next(answers))
    headers = header_constants._library_headers.__wrapped__("i386")
    assert "fcntl.h" not in headers
    assert headers[0] == "mqueue.h"
    assert len(list(answers)) == 2


def test_a_text_loads_again_as_one_from_a_run(load: Loader, tmp_path: Path) -> None:
    text = "benchmark: {name: syscall, call: write, arguments: [1, 'O_RDONLY', '12', no]}\n".replace("no", "'no'")
    experiment = load(text)
    assert plan(experiment).cells[0].task.arguments == (1, "O_RDONLY", "12", "no")
    again = tmp_path / "again.yaml"
    again.write_text(experiment.resolved_yaml())
    assert load_experiment(again, kinds()) == experiment
    assert load_experiment(again, kinds()).digest() == experiment.digest()


def test_constants_need_the_headers_that_have_them(
    load: Loader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "header-packages.txt").write_text("/usr/include/no.h linux-libc-dev has the kernel's constants\n")
    monkeypatch.setattr(host_packages, "data_dir", lambda _: tmp_path)
    header_constant.cache_clear()
    with pytest.raises(HostError, match="O_RDONLY, a constant of C, needs linux-libc-dev"):
        load("benchmark: {name: syscall, call: openat, arguments: [-100, /dev/null, O_RDONLY]}\n")


def test_offsets_have_one_spelling(load: Loader) -> None:
    matrix = only_table(load("points: [a+16, b+0x1F, c+0]\nbenchmark: {name: gtodbench}\n"), CallsTable)
    assert matrix.points == ("a+0x10", "b+0x1f", "c+0x0")


def test_a_file_s_paths_begin_at_its_folder(load: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "other.c").write_text("")
    monkeypatch.chdir(elsewhere)
    text = "points: [vfs_read]\nbenchmark: {name: workload, file: reading.c}\n"
    matrix = only_table(load(text, "probes=[./other.c, djprobe]"), CallsTable)
    assert matrix.benchmark.file == str(tmp_path / "reading.c")
    assert matrix.probes == (str(elsewhere / "other.c"), "djprobe")
    with pytest.raises(ConfigError, match=r"benchmark\.file: found .*elsewhere/reading\.c'; this file does not exist"):
        load(text, "benchmark.file=reading.c")


def test_an_own_module_is_a_probe(load: Loader) -> None:
    text = "benchmark: {name: syscall, call: getppid}\n"
    planned = plan(load(text, "probes=[djprobe]", "probes=[djprobe]"))
    assert [cell.probe for cell in planned.cells] == ["none", "djprobe"]
    (experiment,) = (load(text.replace("benchmark", "handlers: [count]\nbenchmark")),)
    assert plan(experiment).cells[-1].task.call == "getppid"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "benchmark: {name: syscall}",
            "benchmark.call: missing; benchmark 'syscall' makes a system call",
        ),
        ("benchmark: {name: syscall, call: getpppid}", "did you mean 'getppid'?"),
        ("benchmark: {name: syscall, call: 20}", "benchmark.call: found 20; expected the name of a system call"),
        ("benchmark: {name: gtodbench, call: getppid}", "benchmark.call: benchmark 'gtodbench' does not have this key"),
        (
            "benchmark: {name: gtodbench, file: reading.c}",
            "benchmark.file: benchmark 'gtodbench' does not have",
        ),
        ("benchmark: {name: workload}", "benchmark.file: missing; benchmark 'workload' runs a file of your own"),
        ("benchmark: {name: workload, file: none.c}", "this file does not exist"),
        ("benchmark: {name: workload, file: note.txt}", "expected a C file (.c) or a static x86 program"),
        ("benchmark: {name: workload, file: .}", "this file does not exist"),
        ("benchmark: {name: workload, file: reading.c}", "points: missing; with a workload of your own, name"),
        ("points: [a b]\nbenchmark: {name: gtodbench}", "points.0: found 'a b'; expected a kernel function"),
        ("points: ['a+x']\nbenchmark: {name: gtodbench}", "expected a kernel function"),
        ("points: ['a+0x1234567']\nbenchmark: {name: gtodbench}", "expected a kernel function"),
        ("points: [a+1, a+0x1]\nbenchmark: {name: gtodbench}", "points.1: a duplicate of an entry above"),
        ("points: []\nbenchmark: {name: gtodbench}", "points: found 0 entries"),
        ("benchmark: {name: syscall, call: read, arguments: [1, 2, 3, 4, 5, 6, 7]}", "found 7 arguments"),
        ("benchmark: {name: syscall, call: read, arguments: [true]}", "expected a number, a text"),
        ("benchmark: {name: syscall, call: read, arguments: [{buffer: 0}]}", "expected a number, a text"),
        ("benchmark: {name: syscall, call: read, arguments: [{}]}", "found a mapping; expected a number, a text"),
        (
            "benchmark: {name: syscall, call: read, arguments: [{buffer: 1, x: 2}]}",
            "benchmark.arguments.0.x: unknown key; allowed: buffer",
        ),
        (
            "benchmark: {name: syscall, call: read, arguments: [0, {buffr: 16}]}",
            "benchmark.arguments.1.buffr: unknown key; allowed: buffer; did you mean 'buffer'?",
        ),
        (
            "benchmark: {name: syscall, call: read, arguments: [18446744073709551616]}",
            "numbers are decimal and whole, within 64 bits",
        ),
        ("benchmark: {name: syscall, call: read, arguments: [0x10]}", "numbers are decimal and whole, within 64 bits"),
        ("benchmark: {name: gtodbench, expect: EBADFD1}", "did you mean 'EBADFD'?"),
        (
            "benchmark: {name: gtodbench, expect: failure}",
            "expected success, the name of an error, such as EBADF",
        ),
        ("benchmark: {name: gtodbench, expect: -9}", "benchmark.expect: found -9; expected success, the name of"),
        ("benchmark: {name: gtodbench, expect: true}", "benchmark.expect: found true"),
        ("benchmark: {name: gtodbench, expect: '0'}", "benchmark.expect: found '0'"),
        ("benchmark: {name: gtodbench, hits: 0}", "benchmark.hits: found 0; expected a whole number"),
    ],
)
def test_invalid_workloads_are_refused(load: Loader, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(text + "\n")
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("probe", "complaint"),
    [
        ("./missing.ko", "this file does not exist"),
        ("./note.txt", "this file or folder does not exist"),
        ("./", "this folder has neither a Kbuild nor a Makefile"),
        ("mine.c.j2", "name your own file by a path with a slash: ./mine.c.j2"),
    ],
)
def test_other_files_than_modules_are_refused(load: Loader, probe: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load("benchmark: {name: gtodbench}\n", f"probes=[{probe}]")
    assert complaint in str(refused.value)


def test_a_damaged_module_is_refused_at_its_place(load: Loader, tmp_path: Path) -> None:
    (tmp_path / "cut.ko").write_bytes(bytes.fromhex("7f454c46020101"))
    (tmp_path / "x.yaml").write_text(HEAD.replace("djprobe", "./cut.ko") + "benchmark: {name: gtodbench}\n")
    with pytest.raises(ConfigError) as refused:
        load_experiment(tmp_path / "x.yaml", kinds())
    problem = "not a kernel module: the file is damaged or incomplete; copy or build it again"
    assert re.search(rf"x\.yaml:4: probes\.0: {re.escape(str(tmp_path))}/cut\.ko: {problem}$", str(refused.value))


def test_each_set_of_parameters_is_a_row_that_loads_again_as_it_was(
    load: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # an override's path is relative to the current folder
    named = "./own.c.j2 size=64  mode='as is'"
    experiment = load("benchmark: {name: gtodbench}\n", f"probes=['none', './own.c.j2', {json.dumps(named)}]")
    plain, cell = (cell for cell in plan(experiment).cells if cell.probe != "none")
    assert (plain.probe, "module_parameters" in plain.parameters) == ("own.c.j2", False)
    assert re.fullmatch(r"own\.c\.j2\.size-64\.mode-as_is\.[0-9a-f]{6}", cell.probe)
    assert cell.probe in cell.id
    assert cell.parameters["module_parameters"] == "size=64 'mode=as is'"
    assert (cell.task.kind.file, cell.task.kind.parameters) == (tmp_path / "own.c.j2", {"size": "64", "mode": "as is"})
    (tmp_path / "again.yaml").write_text(experiment.resolved_yaml())
    assert load_experiment(tmp_path / "again.yaml", kinds()) == experiment


def test_a_path_with_parameters_is_relative_to_the_file(load: Loader, tmp_path: Path) -> None:
    text = "kernel_for: {./own.c.j2 url=a//b: lab-i386-up}\nbenchmark: {name: gtodbench}\n"
    (tmp_path / "x.yaml").write_text(HEAD.replace("djprobe", "./own.c.j2 url=a//b") + text)
    experiment = load_experiment(tmp_path / "x.yaml", kinds())
    assert plan(experiment).cells[-1].task.kind.parameters == {"url": "a//b"}
    assert plan(experiment).cells[-1].kernel == "lab-i386-up"


@pytest.mark.parametrize(
    ("probe", "complaint"),
    [
        ("./own.c.j2 size", "found 'size' after a module's path; a parameter is NAME=VALUE"),
        ("./own.c.j2 size=1 size=1", "found parameter 'size' twice; give it once"),
        ("./own.bpf.c size=1", "found 'size=1' after own.bpf.c; BPF programs take program=NAME, one of the file's"),
        ("./own.bpf.c program=on-read", "found 'program=on-read'; a program's name is that of a function of C"),
        ("kprobe size=1", "only modules of your own take parameters, and kprobe is a probe of the lab"),
    ],
)
def test_wrong_parameters_are_refused_with_their_place(
    load: Loader, tmp_path: Path, probe: str, complaint: str
) -> None:
    (tmp_path / "own.bpf.c").touch()
    (tmp_path / "x.yaml").write_text(HEAD.replace("djprobe", probe) + "benchmark: {name: gtodbench}\n")
    with pytest.raises(ConfigError, match=r"x\.yaml:4: probes\.0: ") as refused:
        load_experiment(tmp_path / "x.yaml", kinds())
    assert complaint in str(refused.value)


# --- programs -------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A static program of two calls."""
    built = tmp_path / "program"
    argv = ["gcc", "-static", "-nostdlib", "-ffreestanding", "-O1", "-o", str(built), str(WORKLOADS / "whole.c")]
    subprocess.run(argv, check=True, timeout=600)
    return built


def test_a_program_is_run_whole(load: Loader, program: Path, tmp_path: Path) -> None:
    assert program.parent == tmp_path
    text = "points: [x]\nbenchmark: {name: workload, file: program, hits: 2}\n"
    matrix = only_table(load(text), CallsTable)
    assert matrix.benchmark.is_program
    assert matrix.repeats == 12
    for override, complaint in (
        ("benchmark.calls=7", "benchmark.calls: a program is run whole; leave it out"),
        ("benchmark.expect=success", "benchmark.expect: a program is run whole; leave it out"),
        ("benchmark.repeats=5", "benchmark.repeats: found 5; a program needs more"),
        ("benchmark.arguments=[1]", "a program's arguments are texts; put numbers in quotes"),
    ):
        with pytest.raises(ConfigError) as refused:
            load(text, override)
        assert complaint in str(refused.value)


def test_a_program_that_needs_libraries_is_refused(load: Loader, tmp_path: Path) -> None:
    (tmp_path / "shared").write_bytes(Path("/bin/true").read_bytes())
    with pytest.raises(ConfigError, match="link it with -static"):
        load("points: [x]\nbenchmark: {name: workload, file: shared}\n")


def test_a_cut_off_program_is_refused(load: Loader, program: Path, tmp_path: Path) -> None:
    content = program.read_bytes()
    for number, size in enumerate((4, 20, 52, 64, 100)):
        (tmp_path / f"cut{number}").write_bytes(content[:size])
        with pytest.raises(ConfigError, match="expected a C file"):
            load(f"points: [x]\nbenchmark: {{name: workload, file: cut{number}}}\n")


RUNS = "run 0 tsc=420657 ns=420700 pid=31\nrun 1 tsc=418397 ns=418400 pid=32\n"


@pytest.mark.parametrize("workload", ["function", "program"])
def test_what_an_earlier_program_left_behind_ends_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str
) -> None:
    place = tmp_path / "in_guest"
    shutil.copy("/bin/sleep", place)
    monkeypatch.setattr(call_programs, "OWN_PROGRAM", str(place))
    monkeypatch.setattr(whole_programs, "PROGRAM", str(place))
    guest = cast(
        "Guest",
        SimpleNamespace(
            succeed=lambda argv: subprocess.run(argv, check=True, timeout=60),
            put=lambda file, path: Path(path).write_bytes(Path(file).read_bytes()),
        ),
    )
    with subprocess.Popen([place, "600"]) as left_behind:
        try:
            if workload == "program":
                WholeProgram(Path("/bin/true"), [], 1).prepare(guest)
            else:
                user_function(Path("/bin/true"), calls=1).prepare(guest)
            assert left_behind.wait(timeout=60) == -signal.SIGKILL
        finally:
            left_behind.kill()
    assert place.read_bytes() == Path("/bin/true").read_bytes()
    assert os.access(place, os.X_OK)


def test_runs_are_read() -> None:
    assert parse_runs(RUNS, 2) == [(420657, 420700, 31), (418397, 418400, 32)]


@pytest.mark.parametrize(
    "output", ["", RUNS + "x\n", RUNS[:-2], RUNS.replace("run 1", "run 2"), RUNS.replace("tsc=", "tsc=-"), RUNS + RUNS]
)
def test_other_output_of_the_runner_is_refused(output: str) -> None:
    with pytest.raises(EvidenceError, match="is not what was expected"):
        parse_runs(output, 2 if "pid=32" in output else 1)


# --- what is built --------------------------------------------------------------------------------


@ON_X86_64
def test_a_c_file_is_timed_and_counted(tmp_path: Path) -> None:
    built = compiled_workload(BuildContext(Cache(tmp_path)), "x86_64", WORKLOADS / "reading.c").file

    def output(*options: str) -> str:
        ended = subprocess.run([built, *options], capture_output=True, text=True, timeout=600)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    # One call a batch: between two interrupts of a busy host there is room for that.
    assert parse(output("-n", "10", "-b", "1", "-r", "2"), Sampling(10, 1, 2)).entry == "function"
    (tmp_path / "caller").write_text("")
    (pid,) = parse_called(output("-c", "100", "-P", str(tmp_path / "caller")), 100).pids
    # Two writes of a parameter; to a file the second overwrites the first's beginning.
    assert (tmp_path / "caller").read_text() == "-1" + str(pid)[2:]


WATCHED = """
#include "workload.h"
static int file;
static char byte;
void workload_setup(void) { sys1(SYS_close, -1); file = sys2(SYS_open, "/dev/zero", O_RDONLY); }
void workload(void)
{
	sys3(SYS_ioctl, file, 1, 0);
	sys3(SYS_read, file, &byte, 1);
	sys1(SYS_close, sys2(SYS_open, "/nowhere", O_RDONLY));
	sys2(SYS_kill, sys0(SYS_getpid), 17);
	sys1(9999, 0);
}
"""


@ON_X86_64
@pytest.mark.parametrize("arch", ["i386", "x86_64"])
def test_what_the_system_calls_of_a_function_return_is_seen_from_outside(tmp_path: Path, arch: str) -> None:
    (tmp_path / "mine.c").write_text(WATCHED)
    built = compiled_workload(BuildContext(Cache(tmp_path)), arch, tmp_path / "mine.c").file
    ended = subprocess.run([built, "-o", "7"], capture_output=True, text=True, timeout=600)
    assert (ended.returncode, ended.stderr) == (0, "")
    watched = parse_watched(ended.stdout, 7)
    assert list(watched) == ["ioctl", "read", "open", "close", "getpid", "kill", "system call 9999"]
    assert watched_parameters(watched) == {
        "outcome": "ioctl always ENOTTY; open always ENOENT; close always EBADF; system call 9999 always ENOSYS; "
        f"read always 1; getpid always {watched['getpid'].last}; kill always 0",
        "result_calls": 49,
        "result_failed": 28,
    }
    assert always_failing(watched)[:2] == ["ioctl: always ENOTTY", "open: always ENOENT"]


UNSEEN = """
#include "workload.h"
static char body;
static int made;
void workload_setup(void) { sys3(SYS_read, 0, &body, 1); }
void workload(void)
{
	made++;
	switch (body) {
	case 'k': for (int i = 0; i < 17; i++) sys0(9000 + i); break;
	case 'm': for (int i = 0; i < 150; i++) sys0(SYS_getpid); break;
	case 'f': if (made == 4) *(volatile int *)4 = 0; sys0(SYS_getpid); break;
	case 's': if (made == 5) sys2(SYS_kill, sys0(SYS_getpid), 9); break;
	case 'e': if (made == 6) sys1(SYS_exit_group, 0); break;
	}
}
"""


@pytest.fixture(scope="module")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The program for an architecture; the first byte of its input says what its ``workload()`` does."""
    folder = tmp_path_factory.mktemp("unseen")
    (folder / "mine.c").write_text(UNSEEN)
    return lambda arch: compiled_workload(BuildContext(Cache(folder / "cache")), arch, folder / "mine.c").file


@ON_X86_64
@pytest.mark.parametrize(
    ("arch", "body", "fact"),
    [
        ("x86_64", "kinds", "makes more than 16 different system calls"),
        ("i386", "many", "of 100 calls of workload(), 66 were seen to"),
        ("i386", "fault", "3 were seen to their end: signal 11"),
        pytest.param("x86_64", "fault", "3 were seen to their end: signal 11", marks=OTHER),
        ("x86_64", "signal", "4 were seen to their end: signal 9 ended"),
        ("i386", "end", "5 were seen to their end: its process ended, or"),
    ],
)
def test_it_is_said_where_not_all_system_calls_were_seen(
    unseen: Callable[[str], Path], arch: str, body: str, fact: str
) -> None:
    built = unseen(arch)

    @cache
    def run_once(argv: tuple[str, ...]) -> CommandResult:
        ended = subprocess.run(argv, input=body.encode(), capture_output=True, timeout=600)
        return CommandResult(argv, ended.returncode, ended.stdout, ended.stderr)

    def run(argv: list[str], *, time_limit: float) -> CommandResult:
        return run_once(tuple(argv))

    calls = replace(user_function(built, calls=1), argv=[str(built)])
    unwatched: Any = PointObservations(*cast("Any", (None, None, 1)))
    for expected in (None, -38):
        work: Any = SimpleNamespace(
            cell=SimpleNamespace(task=SimpleNamespace(expected=expected)),
            cache=SimpleNamespace(once=lambda what, cell, find: find()),
            workload=replace(calls, expected=expected),
            ready=SimpleNamespace(guest=SimpleNamespace(run=run)),
            deadline=SimpleNamespace(left=lambda: 600.0),
        )
        if expected is None:
            proof, (note,) = measurement._watched(work, unwatched)
            assert (proof, fact in note) == (unwatched, True), note
        else:
            with pytest.raises(EvidenceError, match=re.escape(fact)):
                measurement._watched(work, unwatched)


@pytest.mark.parametrize(
    "output",
    [
        *("", "watched bits=64 calls=1 kinds=0 signal=0\nmore", "watched bits=16 calls=1 kinds=0 signal=0"),
        "watched bits=32 calls=1 kinds=0 signal=0\ncall 3 results watched observed=1 failed=0 before=1 other=0 "
        "last=0x1 values=0x1:1",
    ],
)
def test_what_does_not_tell_what_system_calls_return_is_refused(output: str) -> None:
    with pytest.raises(EvidenceError, match="not what was expected"):
        parse_watched(output, 1)


@pytest.mark.parametrize("arch", ["i386", pytest.param("x86_64", marks=OTHER)])
def test_a_c_file_that_does_not_compile_is_reported_with_its_line(tmp_path: Path, arch: str) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text('#include "workload.h"\n\nvoid workload(void)\n{\n\tnot C\n}\n')
    with pytest.raises(BuildError) as failed:
        compiled_workload(BuildContext(Cache(tmp_path / "cache")), arch, broken)
    assert failed.value.where == f"{broken}:5"
    nothing = tmp_path / "nothing.c"
    nothing.write_text("int x;\n")
    with pytest.raises(BuildError) as failed:
        compiled_workload(BuildContext(Cache(tmp_path / "cache")), arch, nothing)
    assert any("workload" in line for line in failed.value.detail)


def test_arguments_are_words_of_the_architecture() -> None:
    calls = system_call(3, [-1, "/dev/zero", Buffer(buffer=8)], entry="auto", word_size=4, calls=1)
    assert list(calls.argv)[3:] == ["-N", "3", "-a", "ffffffff", "-t", "/dev/zero", "-z", "8"]
    assert system_call(3, [-1], entry="auto", word_size=8, calls=1).argv[-1] == "f" * 16


def test_a_counting_pass_fits_into_a_ring() -> None:
    for hits, calls in ((1, 1000), (3, 1000), (30, 100), (4000, 1)):
        assert system_call(20, [], entry="auto", word_size=4, calls=1, hits=hits).counted == calls
    assert [WholeProgram(Path("x"), [], hits).counted for hits in (1, 1000, 1001, 9000)] == [3, 3, 2, 1]


def test_a_module_of_a_user_s_brings_what_it_includes() -> None:
    source = render_own(WORKLOADS / "own.c.j2", {"symbol": "f", "offset": 3, "number": 1})
    assert source.name == "own_own"
    assert {"djprobe.h", "djprobe_stub.S", "report.c", "ring.h", "near.h", "near.c"} <= set(source.files)
    assert '"f"' in source.files["own_own_main.c"]
    assert " near.o" in source.files["Kbuild"]
    with pytest.raises(UsageError, match="needs a value that was not given"):
        render_own(WORKLOADS / "own.c.j2", {"symbol": "f"})


def test_a_module_may_have_the_name_of_a_source_of_the_lab(tmp_path: Path) -> None:
    path = tmp_path / "djprobe.c"
    path.write_text('#include "djprobe.h"\n#include "mine.h"\n')
    (tmp_path / "mine.h").write_text("")
    (tmp_path / "mine_too.c").write_text("")
    source = render_own(path, {})
    assert source.files["own_djprobe_main.c"] == path.read_text()
    assert "register_djprobe" in source.files["djprobe.c"]
    assert "mine.h" in source.files
    assert "mine_too.c" not in source.files  # no header brings it


def test_a_module_is_not_brought_in_by_its_own_header(tmp_path: Path) -> None:
    path = tmp_path / "mine.c"
    path.write_text('#include "mine.h"\n')
    (tmp_path / "mine.h").write_text("")
    assert set(render_own(path, {}).files) == {"own_mine_main.c", "mine.h", "Kbuild"}


def test_a_template_may_not_reach_into_the_lab(tmp_path: Path) -> None:
    nosy = tmp_path / "nosy.c.j2"
    nosy.write_text("{{ symbol.__class__.__mro__ }}")
    with pytest.raises(ConfigError, match=r"access to attribute .__class__."):
        render_own(nosy, {"symbol": "f"})


def test_calls_before_the_timed_ones_are_known_by_the_options() -> None:
    assert calls_before_timed(["callbench", *Sampling(1000, 250, 2).options]) == 100
    assert calls_before_timed(["callbench", *Sampling(500, 250, 2, is_marked=True, warming=3).options]) == 103
    for program in (
        ["callbench", *SOUNDING.options],
        ["callbench", "-n", "1", "-r", "1"],
        ["sleep", "1"],
    ):
        assert calls_before_timed(program) is None
