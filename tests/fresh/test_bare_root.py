# SPDX-License-Identifier: GPL-2.0-only
"""Is a bare root a machine of its own, and does it leave nothing behind, however it is left?"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_root import BareRoot, unpacked
from base_system import base_system
from contained import OFFLINE
from fresh_machine import host_network

from orchestrator.errors import HostError, LabError
from orchestrator.paths import cache_dir

pytestmark = pytest.mark.qemu  # not of the unit tests: it takes the network

_LIMIT = 60.0


@pytest.fixture(scope="module")
def packed() -> Path:
    try:
        network = host_network("bookworm")
    except HostError as lacking:
        pytest.skip(f"no bare root: {lacking}")
    return base_system(network.release, network.suites, network.apt, cache_dir() / "fresh")


@pytest.fixture(scope="module")
def root(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    folder = tmp_path_factory.mktemp("module") / "some roots"
    with unpacked(packed, folder) as root:
        yield root
    assert not list(folder.iterdir())


def test_inside_nothing_of_the_host_is_seen(root: BareRoot, tmp_path: Path) -> None:
    assert root.succeed(["cat", "/etc/debian_version"]).stdout.startswith("12.")
    assert root.run(["test", "-e", str(tmp_path)]).status == 1
    mounts = [line.split()[1] for line in root.succeed(["cat", "/proc/mounts"]).stdout.splitlines()]
    assert not [place for place in mounts if not place.startswith(("/dev", "/proc", "/sys")) and place != "/"]
    # The shell that entered, and this.
    assert len(root.succeed(["sh", "-c", "echo /proc/[0-9]*"]).stdout.split()) == 2
    names = root.succeed(["env"]).stdout
    assert {line.partition("=")[0] for line in names.splitlines() if "proxy" not in line.lower()} == {
        "HOME",
        "PATH",
        "TERM",
    }


def test_inside_are_the_devices_that_programs_count_on(root: BareRoot) -> None:
    root.succeed(["dd", "if=/dev/urandom", "of=/dev/null", "count=1"])
    root.succeed(["sh", "-c", ": >/dev/shm/file && : </dev/ptmx && [ -c /dev/tty ] && [ -e /dev/stdin ]"])


def test_offline_there_is_no_way_out(root: BareRoot) -> None:
    finished = root.run(["sh", "-c", "tail -n +3 /proc/net/dev"], options=[OFFLINE])
    assert [line.split(":")[0].strip() for line in finished.stdout.splitlines()] == ["lo"]


def test_what_fails_inside_is_quoted(root: BareRoot) -> None:
    with pytest.raises(LabError, match="sh failed in the fresh machine") as failed:
        root.succeed(["sh", "-c", "echo reason >&2; exit 3"])
    assert failed.value.detail == ("$ sh -c 'echo reason >&2; exit 3'", "reason")


def sleep_in_a_root(packed: str, folder: str, seconds: str) -> None:
    """For a process of its own."""
    with unpacked(Path(packed), Path(folder)) as root:
        root.run(["sh", "-c", f"echo begun; sleep {seconds} & sleep {seconds}"])


def test_killed_run_leaves_no_process_and_the_next_run_removes_its_root(packed: Path, tmp_path: Path) -> None:
    call = "import sys, test_bare_root; test_bare_root.sleep_in_a_root(*sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    seconds = f"1000.{os.getpid()}"  # no other process sleeps for so long
    argv = [sys.executable, "-c", call, str(packed), str(tmp_path), seconds]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as process:
        try:
            _await_sleepers(seconds, 2)
        finally:
            process.kill()
    _await_sleepers(seconds, 0)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    (left,) = tmp_path.glob("*.root")
    with unpacked(packed, tmp_path):
        assert not left.exists()
    assert {entry.name for entry in tmp_path.iterdir()} <= {"lab.log"}


def _await_sleepers(seconds: str, wanted: int) -> None:
    """Wait until ``count`` processes are asleep for that long."""
    deadline = time.monotonic() + _LIMIT
    while (found := _sleepers(seconds)) != wanted:
        assert time.monotonic() < deadline, f"{found} processes are asleep, not {wanted}"
        time.sleep(0.05)


def _sleepers(seconds: str) -> int:
    count = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += file.read_bytes() == f"sleep\0{seconds}\0".encode()
        except OSError:  # it has ended
            continue
    return count
