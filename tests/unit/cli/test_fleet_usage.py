# SPDX-License-Identifier: GPL-2.0-only
"""Does each command about fleets say what is wrong with its use, and what to do, before it starts anything?"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orchestrator.cli.main import app
from orchestrator.fleet import target
from orchestrator.fleet.state import FleetState, process_start, state_file

pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")

from orchestrator.fleet.key import made_key, read_key, security_of, usual_key_file

QUICKSTART = str(Path(__file__).parents[3] / "configs" / "quickstart.yaml")


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "lab"


def lab_command(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=stdin)


def refused(*arguments: str, stdin: str | None = None) -> tuple[int, str]:
    done = lab_command(*arguments, stdin=stdin)
    return done.exit_code, done.stderr


def fleet(name: str, keeper: int, started: int, address: str = "tls://127.0.0.1:1") -> FleetState:
    state = FleetState(
        name=name,
        address=address,
        key_file=str(usual_key_file()),
        keeper=keeper,
        started=started,
        workers=("a-worker",),
    )
    state.write()
    return state


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def own_start() -> int:
    started = process_start(os.getpid())
    assert started is not None
    return started


def test_a_key_is_its_owner_s_only_and_is_made_once(lab: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        done = lab_command("fleet", "keys")
        assert lab_command("fleet", "keys", "--out", str(tmp_path / "mine.key")).exit_code == 0
    finally:
        os.umask(old)
    assert done.stdout.strip() == str(lab / "fleet" / "fleet.key")
    assert (
        "can run code on all machines of the fleet: copy it only to machines of the fleet, over a connection"
        in done.stderr
    )
    for file in (lab / "fleet" / "fleet.key", tmp_path / "mine.key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = read_key(lab / "fleet" / "fleet.key")
    status, error = refused("fleet", "keys")
    assert (status, "the key exists already" in error) == (2, True)
    assert read_key(lab / "fleet" / "fleet.key") == before


@pytest.mark.parametrize("command", [["fleet", "status"], ["fleet", "down"]])
def test_without_a_fleet_the_way_to_one_is_told(command: list[str]) -> None:
    status, error = refused(*command)
    assert status == 2
    assert "no fleet 'local' was started here" in error
    assert "fleet up" in error


def test_nearest_fleet_name_is_suggested() -> None:
    fleet("nights", os.getpid(), own_start())
    status, error = refused("run", QUICKSTART, "--fleet", "night")
    assert status == 2
    assert "unknown fleet 'night'; allowed: nights; did you mean 'nights'?" in error


def test_a_fleet_whose_keeper_is_gone_has_ended_and_is_cleared_away() -> None:
    fleet("local", ended_process(), 1)
    status, error = refused("fleet", "status")
    assert (status, "fleet 'local' has ended" in error) == (1, True)
    done = lab_command("fleet", "down")
    assert (done.exit_code, "had ended before" in done.stdout) == (0, True)
    assert not state_file("local").exists()


def test_a_process_that_has_the_keeper_s_number_by_chance_is_no_keeper() -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        started = process_start(stranger.pid)
        assert started is not None
        fleet("local", stranger.pid, started - 1)
        assert "has ended" in refused("fleet", "status")[1]
        assert "had ended before" in lab_command("fleet", "down").stdout
        assert stranger.poll() is None, "a stranger was killed"
        stranger.kill()


def test_a_damaged_file_of_a_fleet_is_an_error_with_its_name() -> None:
    fleet("local", os.getpid(), own_start())
    state_file("local").write_text("{}")
    status, error = refused("fleet", "status")
    assert (status, f"{state_file('local')}: the fleet's file cannot be read: it is damaged" in error) == (3, True)


def test_a_second_fleet_of_one_name_is_refused() -> None:
    made_key(usual_key_file())
    fleet("local", os.getpid(), own_start())
    status, error = refused("fleet", "up")
    assert (status, "fleet 'local' is running already" in error) == (2, True)
    assert "fleet down local" in error


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--name", "A b"], "a fleet's name has lower-case letters"),
        (["--memory", "much"], "expected a size such as 8G"),
        (["--hosts", "hosts.yaml"], "other hosts cannot reach a fleet on 127.0.0.1"),
        (["--hosts", "none.yaml", "--host", "127.0.0.1"], "none.yaml: no such file"),
        (["--hosts", "hosts.yaml", "--host", "127.0.0.1", "--workers", "2"], "two workers are named"),
    ],
)
def test_orders_that_cannot_be_kept_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    made_key(usual_key_file())
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    (tmp_path / "hosts.yaml").write_text("hosts: [{ssh: here-1, lab: lab}]\n")
    status, error = refused("fleet", "up", *arguments)
    assert (status, sentence in error) == (2, True), error
    assert not state_file("local").exists()


def test_without_a_key_nothing_is_started() -> None:
    for command in (["up"], ["worker", "tls://127.0.0.1:1"]):
        status, error = refused("fleet", *command)
        assert (status, "there is no key of a fleet" in error, "fleet keys" in error) == (2, True, True)


def test_a_worker_s_key_is_one_and_whole() -> None:
    made_key(usual_key_file())
    both = refused("fleet", "worker", "tls://127.0.0.1:1", "--key", "x", "--key-from-stdin")
    assert (both[0], "found two keys" in both[1]) == (2, True)
    half = refused("fleet", "worker", "tls://127.0.0.1:1", "--key-from-stdin", stdin="-----BEGIN CERTIFICATE-----\n")
    assert (half[0], "standard input has no key of a fleet" in half[1]) == (2, True)


@pytest.mark.parametrize("address", ["tls://", "tls://host", "tcp://host:1", "host:1", "tls://h:99999", "tls://a b:1"])
def test_wrong_address_is_refused_with_an_example(address: str) -> None:
    made_key(usual_key_file())
    for command in (["run", QUICKSTART, "--fleet", address], ["fleet", "status", address]):
        status, error = refused(*command)
        assert (status, "a scheduler's address is like tls://192.0.2.1:8786" in error) == (2, True), error


def test_a_name_given_as_an_option_is_told_to_be_an_argument() -> None:
    status, error = refused("fleet", "down", "--name", "local")
    assert status == 2
    assert "unknown option '--name'" in error
    assert "hint: NAME is an argument: give it without --name; see: " in error


def test_a_fleet_and_jobs_do_not_go_together() -> None:
    for command in (["run", QUICKSTART], ["nightly", QUICKSTART]):
        status, error = refused(*command, "--fleet", "local", "--jobs", "2")
        assert (status, "a fleet's workers decide how many guests they run" in error) == (2, True), error


def test_a_fleet_is_for_what_compare_measures() -> None:
    status, error = refused("compare", "--fleet", "local")
    assert (status, "--fleet needs --config" in error) == (2, True)


def test_without_the_extra_its_installation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "find_spec", lambda name: None)
    monkeypatch.setattr("orchestrator.fleet.target.need_dask", target.need_dask)
    for command in (["fleet", "up"], ["fleet", "keys"], ["run", QUICKSTART, "--fleet", "local"]):
        status, error = refused(*command)
        assert (status, "pip install 'probe-lab[fleet]'" in error) == (3, True), error


# --- what listens at an address -----------------------------------------------------------------------


def encrypted(plain: socket.socket, context: ssl.SSLContext | None) -> socket.socket:
    return plain if context is None else context.wrap_socket(plain, server_side=True)


@contextlib.contextmanager
def listening(serve: str, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a server that says ``serve`` to each connection, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def work() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:  # closed
                    return
                with contextlib.suppress(OSError), plain, encrypted(plain, context) as connection:
                    connection.sendall(serve.encode())
                    connection.recv(1)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield f"tls://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_nothing_listens() -> None:
    made_key(usual_key_file())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    status, error = refused("run", QUICKSTART, "--fleet", f"tls://127.0.0.1:{port}")
    assert (status, f"no fleet answers at tls://127.0.0.1:{port}: connection refused" in error) == (3, True)


def test_what_listens_is_no_fleet() -> None:
    made_key(usual_key_file())
    with listening("SSH-2.0-x\r\n") as address:
        status, error = refused("fleet", "status", address)
    assert (status, "the server there does not speak TLS 1.3" in error) == (3, True), error


def test_a_fleet_of_another_key_is_told_from_one_that_does_not_answer(tmp_path: Path) -> None:
    made_key(usual_key_file())
    other = security_of(read_key(made_key(tmp_path / "other.key"))).get_listen_args("scheduler")["ssl_context"]
    with listening("x", other) as address:
        for command in (["run", QUICKSTART, "--fleet", address], ["fleet", "worker", address]):
            status, error = refused(*command)
            assert (status, f"the fleet at {address} has another key" in error) == (3, True), error
