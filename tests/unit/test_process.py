# SPDX-License-Identifier: GPL-2.0-only
"""Do children end when they must, however we end, and is their output kept?"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import HostError, LabError
from orchestrator.guest.confinement import confinement_here
from orchestrator.process import run, spawn
from orchestrator.steps import step_echo

PATIENCE = 600.0
ROUNDS = 60_000
"""Looks at a condition, each after a pause of 10 ms: a host that stands still in between takes none of them."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(ROUNDS):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(what)


def test_a_program_is_a_step_with_its_status() -> None:
    lines: list[str] = []
    with step_echo(lines.append):
        run(["sh", "-c", "exit 3"], time_limit=PATIENCE)
        with pytest.raises(LabError):
            run(["sleep", "100"], time_limit=0.1)
    assert [line.split("  ")[-1].split(" (")[0] for line in lines] == ["$ sh -c 'exit 3'", "$ sleep 100 FAILED"]
    assert lines[0].endswith(", status 3)")
    assert lines[1].endswith("sleep did not end within 0.1 s")


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie has ended."""
    return state(pid) not in "ZX"


def state(pid: int) -> str:
    """Of a process: the letter that the kernel has for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def number_in(file: Path) -> int:
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), f"nothing wrote {file}")
    return int(file.read_text())


def sleeper(file: Path) -> list[str]:
    """A shell that starts a program of its own, whose process number it writes down, and waits for it."""
    return ["sh", "-c", f"sleep 300 & echo $! > {shlex.quote(str(file))}; wait"]


def starter(call: str, **environment: str) -> subprocess.Popen[bytes]:
    """A process that starts another, like the lab does."""
    program = f"from orchestrator.process import run, spawn; import time; {call}; time.sleep(300)"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def test_output_status_folder_and_environment(tmp_path: Path) -> None:
    argv = ["sh", "-c", 'pwd; echo "$LAB" "$HOME"; echo e >&2; exit 3']
    finished = run(argv, time_limit=PATIENCE, cwd=tmp_path, environment={"LAB": "a b; c"})
    assert finished.status == 3
    assert finished.stdout == f"{tmp_path}\na b; c {os.environ['HOME']}\n"
    assert finished.stderr == "e\n"
    assert finished.argv == tuple(argv)


def test_what_a_program_prints_is_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages are looked at: that a disk is full, that a program is missing."""
    for name in ("LC_ALL", "LANG", "LC_MESSAGES"):
        monkeypatch.setenv(name, "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    assert run(["sh", "-c", "printf %s $LC_ALL"], time_limit=PATIENCE).stdout == "C"
    finished = run(["sh", "-c", "printf %s $LC_ALL"], time_limit=PATIENCE, environment={"LC_ALL": "C.UTF-8"})
    assert finished.stdout == "C.UTF-8"


def test_arguments_reach_the_program_as_they_are() -> None:
    words = ["", " ", "a b", "$HOME", "`id`", "'", '"', "\\", "*", "-e", "ä", "a\nb", ";"]
    assert run(["printf", "%s\\0", *words], time_limit=PATIENCE).stdout.split("\0")[:-1] == words


def test_output_that_is_no_text_or_too_much_for_a_pipe() -> None:
    assert run(["printf", "a\\377b"], time_limit=PATIENCE).stdout == "a\ufffdb"
    both = run(["sh", "-c", "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero"], time_limit=PATIENCE)
    assert (len(both.stdout), len(both.stderr)) == (300000, 300000)


def test_a_child_reads_nothing_of_ours() -> None:
    assert run(["cat"], time_limit=PATIENCE).stdout == ""


def test_the_error_has_a_command_to_paste() -> None:
    finished = run(["sh", "-c", "echo out; seq 100 >&2; exit 1"], time_limit=PATIENCE)
    command, *lines = finished.complaint()
    assert shlex.split(command.removeprefix("$ ")) == list(finished.argv)
    assert lines == [str(number) for number in range(86, 101)]
    assert run(["sh", "-c", "echo out; false"], time_limit=PATIENCE).complaint()[1:] == ("out",)


def test_the_error_has_the_signal_that_killed_the_program() -> None:
    assert run(["sh", "-c", "echo begun >&2; kill -KILL $$"], time_limit=PATIENCE).complaint()[1:] == (
        "begun",
        "Killed",
    )
    around = run(["sh", "-c", "echo begun >&2; kill -KILL $PPID"], time_limit=PATIENCE)
    assert around.complaint()[1:] == ("begun", "(killed by signal 9)")


def test_a_missing_program_is_the_host_s() -> None:
    with pytest.raises(HostError, match="no-such-program is not installed"):
        run(["no-such-program", "x"], time_limit=PATIENCE)


def test_death_by_a_signal_is_a_status() -> None:
    assert run(["sh", "-c", "kill -SEGV $$"], time_limit=PATIENCE).status in (-signal.SIGSEGV, 128 + signal.SIGSEGV)


def test_a_time_limit_ends_all_that_was_started(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"sh did not end within 0\.5 s") as caught:
        run(sleeper(tmp_path / "pid"), time_limit=0.5)
    pid = number_in(tmp_path / "pid")
    wait_until(lambda: not lives(pid), "the program outlives the time limit")
    assert caught.value.detail[0].startswith("$ sh -c ")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_starter_takes_all_with_it(tmp_path: Path, number: signal.Signals) -> None:
    process = starter(f"run({sleeper(tmp_path / 'pid')!r}, time_limit=300)")
    pid = number_in(tmp_path / "pid")
    assert lives(pid)
    os.kill(process.pid, number)
    process.wait(PATIENCE)
    wait_until(lambda: not lives(pid), "a grandchild outlives the lab")


def test_a_spawned_program_dies_with_its_starter(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    process = starter(f"child = spawn(['sleep', '300']); open({str(file)!r}, 'w').write(str(child.pid) + chr(10))")
    pid = number_in(file)
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "it never started")
    os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    wait_until(lambda: not lives(pid), "a spawned program outlives the lab")


@pytest.mark.parametrize("call", ["run({!r}, time_limit=300)", "spawn({!r})"])
def test_what_starts_too_late_to_notice_its_starters_end_does_not_run(tmp_path: Path, call: str) -> None:
    late = tmp_path / "setpriv"
    ready, end = tmp_path / "ready", tmp_path / "end"
    late.write_text(f"""#!/bin/sh
echo $$ > {ready}
while [ -e /proc/$PPID/exe ]; do sleep 0.01; done
{shutil.which("setpriv")} --version > {end}
exec {shutil.which("setpriv")} "$@"
""")
    late.chmod(0o700)
    begun = tmp_path / "begun"
    process = starter(call.format(["touch", str(begun)]), PATH=f"{tmp_path}:{os.environ['PATH']}")
    pid = number_in(ready)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    wait_until(lambda: not lives(pid), "it runs without its starter")
    assert end.exists()
    assert not begun.exists()


def test_ctrl_c_does_not_reach_children() -> None:
    """A terminal sends SIGINT to its foreground group; children are in sessions of their own."""
    child = spawn(["sleep", "300"])
    try:
        assert os.getsid(child.pid) == os.getpgid(child.pid) != os.getsid(0)
    finally:
        child.close()
    stat = run(["sh", "-c", "cat /proc/$$/stat"], time_limit=PATIENCE).stdout
    assert int(stat.rpartition(")")[2].split()[3]) != os.getsid(0)


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    process = starter(f"run({sleeper(tmp_path / 'pid')!r}, time_limit=300)")
    pid = number_in(tmp_path / "pid")
    os.killpg(process.pid, signal.SIGINT)
    process.wait(PATIENCE)
    wait_until(lambda: not lives(pid), "a program outlives Ctrl-C")


def test_a_spawned_program_gets_the_descriptors_it_is_given() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as ours:
        child = spawn(["sh", "-c", f"echo through > /proc/self/fd/{writer}"], pass_fds=[writer])
        os.close(writer)
        assert ours.read() == b"through\n"
    child.close()
    assert child.poll() is not None
    child.close()


@pytest.mark.parametrize(
    "command", ["exit 0", "exit 3", "exit 255", "kill -KILL $$", "kill -TERM $$", "ulimit -c 0; kill -ABRT $$"]
)
def test_a_spawned_program_s_status_is_its_own(command: str) -> None:
    child = spawn(["sh", "-c", command], limits={"core": 0})
    expected = subprocess.run(["sh", "-c", command], check=False).returncode
    assert child.wait(PATIENCE) == expected
    child.close()
    assert child.poll() == expected


def test_nothing_is_left_of_a_spawned_program_that_is_closed() -> None:
    child = spawn(["sleep", "300"])
    assert (child.poll(), lives(child.pid)) == (None, True)
    child.close()
    assert (child.poll(), Path(f"/proc/{child.pid}").exists()) == (-signal.SIGKILL, False)
    child.kill()  # nobody


def test_a_spawned_program_that_is_stopped_with_all_its_group_is_closed() -> None:
    child = spawn(["sleep", "300"])
    group = os.getpgid(child.pid)
    os.killpg(group, signal.SIGSTOP)
    wait_until(lambda: {state(child.pid), state(group)} == {"T"}, "it is not stopped")
    closing = threading.Thread(target=child.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert not lives(child.pid)


def test_nothing_is_left_of_a_program_whose_start_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Ctrl-C, or by the last descriptor that another thread has taken."""
    begun: list[int] = []

    def no_descriptor(pid: int) -> int:
        begun.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", no_descriptor)
    with pytest.raises(HostError, match="cannot start sleep: Too many open files"):
        spawn(["sleep", "300"])
    wait_until(lambda: not lives(begun[0]), "it runs on")


def test_a_spawned_program_has_nothing_of_ours(tmp_path: Path) -> None:
    """Neither folder nor umask nor environment, and no more resources than it is given."""
    report = "{ pwd; umask; ulimit -n; ulimit -Hn; ulimit -c; env; } >&2"
    environment = {"PATH": os.environ["PATH"], "ONE": "a b; c"}
    with (tmp_path / "said").open("wb") as said:
        child = spawn(["sh", "-c", report], limits={"nofile": 99, "core": 0}, environment=environment, stderr=said)
    assert child.wait(PATIENCE) == 0
    child.close()
    told = (tmp_path / "said").read_text().splitlines()
    assert told[:5] == ["/", "0077", "99", "99", "0"]
    variables = dict(line.split("=", 1) for line in told[5:])
    assert {name: variables.get(name) for name in environment} == environment
    assert variables.keys() - environment.keys() <= {"PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.skipif(confinement_here().user is None, reason="only root can become any other user")
def test_a_program_that_becomes_another_user_dies_with_its_starter(tmp_path: Path) -> None:
    """The kernel then forgets a parent-death signal that the program itself has."""
    file = tmp_path / "pid"
    argv = ["setpriv", "--reuid=60706", "--regid=60706", "--clear-groups", "sleep", "300"]
    process = starter(f"child = spawn({argv!r}); open({str(file)!r}, 'w').write(str(child.pid) + chr(10))")
    pid = number_in(file)
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "it never started")
    assert Path(f"/proc/{pid}").stat().st_uid == 60706
    os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    wait_until(lambda: not lives(pid), "another user's program outlives the lab")


def test_a_listener_gets_each_line_as_it_comes(tmp_path: Path) -> None:
    received: list[str] = []
    answer = tmp_path / "answer"

    def listener(line: str) -> None:
        received.append(line)
        answer.touch()

    # The program goes on when its first line was received, which only happens while it runs.
    script = 'echo one; echo oops >&2; until [ -e "$0" ]; do sleep 0.1; done; printf two'
    finished = run(["sh", "-c", script, str(answer)], time_limit=600, listener=listener)
    assert received == ["one", "two"]
    assert (finished.status, finished.stdout, finished.stderr) == (0, "one\ntwo", "oops\n")


def test_a_time_limit_ends_a_program_that_is_listened_to() -> None:
    received: list[str] = []
    # Beside 25 busy processes on two processors it had not begun after 0.5 s.
    with pytest.raises(LabError, match=r"did not end within 3 s"):
        run(["sh", "-c", "echo begun; sleep 600"], time_limit=3, listener=received.append)
    assert received == ["begun"]
