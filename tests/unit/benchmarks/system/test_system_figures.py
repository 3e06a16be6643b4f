# SPDX-License-Identifier: GPL-2.0-only
"""Are runs of whole programs parsed, and is unexpected output refused with the lines around it?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.benchmarks.system.work import SystemFigures, WorkRun, read_build, read_command, read_flood
from orchestrator.errors import EvidenceError

DIGEST = "a6eeb0f3b51ceadc21d088415c6aa9837b7a50ead807a3c7977abfb2b49c3345"
OTHER = DIGEST[::-1]


def output_of(*outcomes: str) -> str:
    """The output of a guest with these outcomes, the first run cold."""
    lines = []
    for number, outcome in enumerate(outcomes):
        lines += [f"warm {number}" if number else "cold", run_line(number), *outcome.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def run_line(number: int) -> str:
    times = f"real={8_821_000_001 - number} user={7_423_000_000 + number} system=1303000000"
    return f"run {times} minor=91 major={0 if number else 20} switches={6 + number} tsc={8_821_000_950 - number}"


def flood(transmitted: int = 2000, received: int = 2000, loss: str = "0", rtt: str = "0.009/0.010/0.063/0.001") -> str:
    return (
        f"{transmitted} packets transmitted, {received} received, {loss}% packet loss, time 39ms\n"
        f"rtt min/avg/max/mdev = {rtt} ms, ipg/ewma 0.019/0.010 ms"
    )


def built(objects: int = 30, digest: str = DIGEST) -> str:
    return f"built objects={objects} digest={digest}"


def printed(size: int = 11, digest: str = DIGEST) -> str:
    return f"printed bytes={size} digest={digest}"


def read_two_floods(text: str) -> SystemFigures:
    return read_flood(text, 2, 2000)


def read_two_builds(text: str) -> SystemFigures:
    return read_build(text, 2)


def read_two_commands(text: str) -> SystemFigures:
    return read_command(text, 2)


BUILDS, FLOODS, COMMANDS = output_of(*[built()] * 3), output_of(*[flood()] * 3), output_of(*[printed()] * 3)
SOUND = [(read_two_builds, BUILDS), (read_two_floods, FLOODS), (read_two_commands, COMMANDS)]
Reader = Callable[[str], SystemFigures]


def test_builds_are_read() -> None:
    figures = read_build(BUILDS, 2)
    assert figures.cold == WorkRun(8_821_000_001.0, 7_423_000_000.0, 1_303_000_000.0, 91, 20, 6, 8_821_000_950)
    assert [run.real for run in figures.warm] == [8_821_000_000.0, 8_820_999_999.0]
    assert (figures.done, figures.digest, dict(figures.facts)) == (30, DIGEST, {})


def test_floods_are_read_with_the_warm_runs_round_trips() -> None:
    cold = flood(rtt="0.001/0.500/9.000/0.900")
    figures = read_flood(output_of(cold, flood(), flood(rtt="0.008/0.012/0.050/0.003")), 2, 2000)
    assert (figures.done, figures.digest, len(figures.warm)) == (2000, "", 2)
    assert figures.facts == {"rtt_min_ns": 8000, "rtt_avg_ns": 11000, "rtt_max_ns": 63000, "rtt_mdev_ns": 2000}
    piped = flood().replace(" ms, ipg", " ms, pipe 2, ipg")
    assert read_flood(output_of(piped, piped), 1, 2000).done == 2000


def test_commands_are_read() -> None:
    figures = read_command(COMMANDS, 2)
    assert (figures.done, figures.digest, figures.facts) == (1, DIGEST, {"output_bytes": 11})
    assert read_command(output_of(printed(0), printed(0)), 1).facts == {"output_bytes": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (output_of(built(), built(), built(29)), "the runs differ in the number of objects: 30, 30, 29"),
        (output_of(built(), built(digest=OTHER), built()), "the runs differ in the objects' content"),
        (output_of(*[built(0)] * 3), "run 'cold': nothing was built: 'built objects=0"),
        (output_of(built(), built()), "there is no run 'warm 2'"),
        (output_of(*[built()] * 4), "there is more than the runs"),
        (BUILDS.replace("cold", "warm 0"), "there is no run 'cold'"),
        (BUILDS.replace("warm 1", "warm 2", 1), "there is no run 'warm 1'"),
        (BUILDS.replace("real=8821000000 ", "real=0 "), "run 'warm 1': it took no time"),
        (BUILDS.replace(" major=20", ""), "which is not what a run took"),
        (BUILDS.replace(DIGEST, DIGEST[1:]), "nothing was built"),
        (BUILDS[: BUILDS.rindex("built")], "the report of run 'warm 2' is incomplete"),
        ("cannot mount the image\n", "there is no run 'cold'"),
        ("", "there is no run 'cold'"),
    ],
)
def test_builds_that_do_not_fit_are_no_result(text: str, message: str) -> None:
    with pytest.raises(EvidenceError, match=message) as caught:
        read_build(text, 2)
    assert caught.value.detail == () or set(caught.value.detail) <= set(text.splitlines())


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (flood(received=1999, loss="0.05"), r"of 2000 packets 2000 were sent and 1999 answered \(0.05 % lost\)"),
        (flood(transmitted=1999, received=1999), "of 2000 packets 1999 were sent"),
        (flood(loss="0.1"), r"of 2000 packets 2000 were sent and 2000 answered \(0.1 % lost\)"),
        (
            flood().replace("2000 received", "2000 received, +3 duplicates"),
            "ping does not report how many packets were answered",
        ),
        (flood(rtt="0.009/0.010/0.063"), "ping does not report how many packets were answered"),
        ("PING 127.0.0.1\n\n", "ping does not report"),
    ],
)
def test_a_flood_that_lost_something_is_no_result(lost: str, message: str) -> None:
    with pytest.raises(EvidenceError, match=f"run 'warm 1': {message}"):
        read_flood(output_of(flood(), lost, flood()), 2, 2000)


def test_a_command_with_varying_output_is_no_result() -> None:
    with pytest.raises(EvidenceError, match="the runs differ in the size of what was printed: 11, 12"):
        read_command(output_of(printed(), printed(12)), 1)
    with pytest.raises(EvidenceError, match="the runs differ in what was printed"):
        read_command(output_of(printed(), printed(digest=OTHER)), 1)


@given(st.sampled_from([reader for reader, _ in SOUND]), st.text(max_size=300))
def test_arbitrary_output_is_refused(reader: Reader, noise: str) -> None:
    with pytest.raises(EvidenceError):
        reader(noise)


@given(st.data())
def test_output_that_lost_gained_or_changed_lines_is_an_error(data: st.DataObject) -> None:
    reader, text = data.draw(st.sampled_from(SOUND))
    lines = text.splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    change = data.draw(st.sampled_from(["lose", "repeat", "garble"]))
    if change == "lose":
        del lines[at]
    elif change == "repeat":
        lines.insert(at, lines[at])
    else:
        lines[at] = data.draw(st.text(max_size=40).filter(lambda line: line != lines[at]))
    with pytest.raises(EvidenceError):
        reader("\n".join(lines))


numbers = st.integers(0, 10**15)
any_run = st.tuples(numbers.filter(bool), *[numbers] * 6)


@given(st.lists(any_run, min_size=2, max_size=6), st.integers(1, 999_999))
def test_all_figures_are_found_again(runs: list[tuple[int, ...]], objects: int) -> None:
    names = ("real", "user", "system", "minor", "major", "switches", "tsc")
    lines = []
    for number, run in enumerate(runs):
        figures = " ".join(f"{name}={value}" for name, value in zip(names, run, strict=True))
        lines += [f"warm {number}" if number else "cold", f"run {figures}", built(objects)]
    read = read_build("\n".join(lines), len(runs) - 1)
    assert [(r.real, r.user, r.system, r.minor, r.major, r.switches, r.ticks) for r in (read.cold, *read.warm)] == runs
    assert read.done == objects
