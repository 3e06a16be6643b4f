# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import multiprocessing
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.errors import GuestPanic
from orchestrator.steps import own_steps, pass_on, running_steps, step, step_echo, step_log, step_source

TIME = re.compile(r"^ *\d+\.\d{3}  ", re.MULTILINE)
DURATION = re.compile(r"\d+\.\d{3} s")


def without_times(text: str) -> str:
    return DURATION.sub("T s", TIME.sub("", text))


def logged(work: Callable[[], object]) -> list[str]:
    """The lines that ``work`` writes, times taken out."""
    lines: list[str] = []
    with step_echo(lines.append):
        work()
    return [without_times(line) for line in lines]


def test_steps_nest_and_each_ends_with_its_duration(tmp_path: Path) -> None:
    file = tmp_path / "lab.log"
    with step_log(file), step("boot"):
        with step("start"), step("files"):
            pass
        with step("wait"):
            pass
    head, *lines = file.read_text().splitlines()
    assert re.fullmatch(r"# seconds since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", head)
    assert all(TIME.match(line) for line in lines)
    assert [without_times(line) for line in lines] == [
        "boot ...",
        "  start ...",
        "    files (T s)",
        "  start (T s)",
        "  wait (T s)",
        "boot (T s)",
    ]


def test_a_resumed_run_appends_to_its_log(tmp_path: Path) -> None:
    file = tmp_path / "lab.log"
    for name in ("first", "second"):
        with step_log(file), step(name):
            pass
    assert [line.split()[1] for line in file.read_text().splitlines()] == ["seconds", "first", "seconds", "second"]


def test_a_line_is_written_when_its_step_ends(tmp_path: Path) -> None:
    file = tmp_path / "lab.log"
    with step_log(file):
        with step("first"):
            pass
        assert without_times(file.read_text()).endswith("first (T s)\n")


def test_a_failure_carries_the_error_s_first_line() -> None:
    def work() -> None:
        with step("boot"):
            raise GuestPanic("the kernel panicked", detail=["a line of the console"])

    def guarded() -> None:
        with pytest.raises(GuestPanic):
            work()

    assert logged(guarded) == ["boot FAILED (T s): the kernel panicked"]


def test_an_interruption_is_named_by_its_type() -> None:
    def work() -> None:
        with pytest.raises(KeyboardInterrupt), step("build"):
            raise KeyboardInterrupt

    assert logged(work) == ["build FAILED (T s): KeyboardInterrupt"]


def test_a_step_after_a_failure_has_the_depth_it_had_before() -> None:
    def work() -> None:
        with pytest.raises(KeyError), step("outer"), step("inner"):
            raise KeyError("no key")
        with step("next"):
            pass

    assert logged(work)[-1] == "next (T s)"


def test_the_documents_text_is_quoted_with_its_footnote() -> None:
    def work() -> None:
        with step("run", "sh", "-c", "exit 3") as running:
            running.note("status 3")

    assert logged(work) == ["run sh -c 'exit 3' (T s, status 3)"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines", "two\\nlines"),
        ("\x1b[2Jclear", "\\x1b[2Jclear"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp", "\\u202egnp"),
        ("\udc80 byte", "\\udc80 byte"),
        ("Grüße", "Grüße"),
    ],
)
def test_control_characters_are_escaped_everywhere(text: str, shown: str) -> None:
    def work() -> None:
        with step_source(text), step(text) as one:
            one.note(text)

    assert logged(work) == [f"{shown}: {shown} (T s, {shown})"]


def test_a_line_is_bounded() -> None:
    def work() -> None:
        with step("run", "x" * 100_000, "y"), step("\x1b" * 100_000):
            pass

    assert max(len(line) for line in logged(work)) < 2000


def test_side_by_side_boots_nest_each_on_its_own() -> None:
    both = threading.Barrier(2)

    def boot(name: str) -> None:
        with step_source(name), step("boot"):
            both.wait()
            with step("start"):
                both.wait()
            both.wait()

    def work() -> None:
        with step("run"), ThreadPoolExecutor(2) as pool:
            list(pool.map(boot, ["boot1", "boot2"]))

    lines = logged(work)
    assert lines[-1] == "run (T s)"
    for name in ("boot1", "boot2"):
        own = [line for line in lines if line.startswith(name)]
        assert own == [f"{name}: boot ...", f"{name}:   start (T s)", f"{name}: boot (T s)"]


def test_the_steps_of_one_source_are_passed_on_to_a_log_elsewhere() -> None:
    both, taken = threading.Barrier(2), list[str]()

    def boot(name: str) -> None:
        with step_source(name), step("boot", name):
            both.wait()
            with step("start"):
                both.wait()

    def here() -> None:
        with own_steps("boot1", taken.append), ThreadPoolExecutor(2) as pool:
            list(pool.map(boot, ["boot1", "boot2"]))

    here()
    lines = [DURATION.sub("T s", line) for line in taken]
    assert lines == ["boot boot1 ...", "  start (T s)", "boot boot1 (T s)"]

    def elsewhere() -> None:
        for line in lines:
            pass_on("boot7", line)

    assert logged(elsewhere) == [f"boot7: {line}" for line in lines]


def test_a_line_that_is_passed_on_is_short_and_printable() -> None:
    lines: list[str] = []
    with step_echo(lines.append):
        pass_on("boot1", "boot")
        pass_on("boot1", "\x1b[2Jmeasure " + "x" * 1000)
    assert lines[0].endswith("  boot1: boot")
    assert "\x1b" not in lines[1]
    assert len(lines[1]) < 350


def test_another_thread_s_lines_carry_its_name() -> None:
    def build() -> None:
        with step("build"):
            pass

    def work() -> None:
        thread = threading.Thread(target=build, name="builder")
        thread.start()
        thread.join()

    assert logged(work) == ["builder: build (T s)"]


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for _ in range(200):
            with step_source(f"t{number}"), step("a" * 100), step("b" * 100):
                pass

    with step_log(tmp_path / "lab.log"), ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    _, *lines = (tmp_path / "lab.log").read_text().splitlines()
    assert len(lines) == 8 * 200 * 3
    whole = re.compile(r"t\d: (?:a{100} \.\.\.|  b{100} \(T s\)|a{100} \(T s\))")
    assert all(whole.fullmatch(without_times(line)) for line in lines)


def test_a_forked_process_has_no_open_log(tmp_path: Path) -> None:
    def child() -> None:
        with step("child"), step_log(tmp_path / "child.log"), step("logged"):
            pass

    file = tmp_path / "lab.log"
    with step_log(file), step("parent"):
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
    assert [without_times(line) for line in file.read_text().splitlines()[1:]] == ["parent (T s)"]
    assert "    logged" not in (tmp_path / "child.log").read_text()
    assert "  logged" in (tmp_path / "child.log").read_text()


def test_logs_in_each_other_get_the_same_steps() -> None:
    inner: list[str] = []

    def work() -> None:
        with step("test"):
            with step_echo(inner.append), step("run"):
                pass
            with step("after"):
                pass

    assert logged(work) == ["test ...", "  run (T s)", "  after (T s)", "test (T s)"]
    assert [without_times(line) for line in inner] == ["  run (T s)"]


def test_a_step_that_outlives_its_log_is_not_written_to_it(tmp_path: Path) -> None:
    file = tmp_path / "lab.log"
    outlives = step("outlives")
    with step_log(file):
        outlives.__enter__()
    outlives.__exit__(None, None, None)
    assert "outlives" not in file.read_text()


def test_a_log_that_cannot_be_written_fails_nothing() -> None:
    def full(line: str) -> None:
        raise OSError(28, "No space left on device")

    with step_echo(full), step("measure"):
        pass


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), step_log(tmp_path / "nonesuch" / "lab.log"):
        pass


def test_without_a_log_no_text_is_made() -> None:
    class Untouchable(str):
        def __str__(self) -> str:
            raise AssertionError

        def __iter__(self) -> object:  # type: ignore[override]
            raise AssertionError

    with step("run", Untouchable("x")) as running:
        running.note("status 0")


def test_the_innermost_step_of_each_thread_is_known_while_a_log_is_open() -> None:
    seen: list[list[str]] = []

    def work(name: str) -> None:
        with step_source(name), step("boot"), step("wait"):
            seen.append(running_steps())

    with step("without a log"):
        assert running_steps() == []
    with step_echo(lambda line: None), step("prepare"):
        with step("fetch", "a b"):
            assert running_steps() == ["fetch 'a b'"]
        assert running_steps() == ["prepare"]
        with ThreadPoolExecutor(1) as pool:
            pool.submit(work, "boot1").result()
    assert sorted(seen[0]) == ["boot1: wait", "prepare"]
    assert running_steps() == []
