# SPDX-License-Identifier: GPL-2.0-only
"""Is a worker on another host started over ssh, with the key in no command line, and ended with the connection?"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from command_line import CommandLine
from fleet_processes import family, left_after, of_process, own_lab, supervisor_of, temporary_files
from ssh_servers import SSHD, Account, openssh, paramikos

from orchestrator.paths import cache_dir

pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")

NIGHTLY = pytest.mark.nightly("another host that a fleet cannot have: two seconds")
_SERVERS = {"openssh": openssh, "paramiko": paramikos}
_SSH = """\
#!/bin/sh
# The user's own files, which ssh does not find by HOME.
exec {ssh} -F none -oUserKnownHostsFile={folder}/known_hosts -oGlobalKnownHostsFile=none \\
    -oIdentitiesOnly=yes -oIdentityAgent=none -i {folder}/id_ecdsa "$@"
"""
_LAB = """\
#!/bin/sh
export ORCHESTRATOR_LAB={lab} ORCHESTRATOR_CACHE={cache} TMPDIR={temporary} PYTHONPATH={path}
printf '\\033[2Jinstalling\\n'
exec {python} -P -c 'from orchestrator.cli.main import main; main()' "$@"
"""


@pytest.fixture(params=list(_SERVERS))
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    if request.param == "openssh" and not SSHD.exists():
        pytest.skip("openssh-server is not installed")
    (tmp_path / "server").mkdir()
    with _SERVERS[request.param](tmp_path / "server") as prepared:
        yield prepared


@pytest.fixture
def command(account: Account, tmp_path: Path) -> Iterator[CommandLine]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ssh").write_text(_SSH.format(ssh=shutil.which("ssh"), folder=account.home / ".ssh"))
    (programs / "ssh").chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "ORCHESTRATOR_CACHE": str(cache_dir())}
    with own_lab(tmp_path / "lab", **environment) as prepared:
        yield prepared


@pytest.fixture
def hosts(account: Account, command: CommandLine, tmp_path: Path) -> Path:
    """A file with the server as a host, whose lab is one of its own."""
    words = {
        "lab": tmp_path / "there",
        "cache": cache_dir(),
        "temporary": command.environment["TMPDIR"],
        "path": os.environ.get("PYTHONPATH", ""),
        "python": sys.executable,
    }
    lab = tmp_path / "a lab"
    lab.write_text(_LAB.format(**{name: shlex.quote(str(word)) for name, word in words.items()}))
    lab.chmod(0o755)
    file = tmp_path / "hosts.yaml"
    host = {"ssh": f"127.0.0.1:{account.port}", "lab": str(lab), "name": "there", "guests": 1, "memory": "1G"}
    file.write_text(json.dumps({"hosts": [host]}))
    return file


def up(command: CommandLine, hosts: Path) -> tuple[int, str]:
    done = command.run("fleet", "up", "--host", "127.0.0.1", "--hosts", hosts)
    return done.returncode, done.stderr


def workers_there(command: CommandLine) -> list[int]:
    """The processes of the other host's worker, by its temporary files' folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        words = of_process(pid, "cmdline").split(b"\0")
        if b"worker" in words and f"TMPDIR={command.environment['TMPDIR']}".encode() in of_process(pid, "environ"):
            found += family(pid)
    return found


def test_a_worker_is_started_where_the_host_is_known_and_ends_with_the_connection(
    account: Account, command: CommandLine, hosts: Path
) -> None:
    known = account.known_hosts.read_text()
    account.known_hosts.write_text("")
    status, said = up(command, hosts)
    assert (status, "is not in known_hosts" in said, "the fleet was ended" in said) == (1, True, True), said
    assert workers_there(command) == []

    account.known_hosts.write_text(known)
    status, said = up(command, hosts)
    assert status == 0, said
    assert "worker there: joined" in said
    (worker,) = json.loads(command.run("fleet", "status", "--json").stdout)["workers"]
    assert (worker["name"], worker["guests"], worker["memory_mib"]) == ("there", 1, 1024)
    processes = workers_there(command)
    assert processes
    for pid in [*processes, supervisor_of(command)]:
        for name in ("cmdline", "environ"):
            assert b"PRIVATE KEY" not in of_process(pid, name)
    log = (command.lab / "fleets" / "local.log").read_text()
    assert "there: \\x1b[2Jinstalling\n" in log
    assert "PRIVATE KEY" not in log
    os.kill(supervisor_of(command), signal.SIGKILL)
    assert left_after(processes) == []


@pytest.mark.nightly("another fleet: two seconds; one on this host ends so every day")
def test_it_ends_with_the_fleet(command: CommandLine, hosts: Path) -> None:
    assert up(command, hosts)[0] == 0
    processes = workers_there(command)
    assert command.run("fleet", "down").returncode == 0
    assert left_after(processes) == []
    assert temporary_files(command) == []


@NIGHTLY
def test_a_host_with_another_key_gets_none(account: Account, command: CommandLine, hosts: Path) -> None:
    known = account.known_hosts.read_text()
    stranger = paramiko.ECDSAKey.generate()
    account.known_hosts.write_text(f"{known.split()[0]} {stranger.get_name()} {stranger.get_base64()}\n")
    status, said = up(command, hosts)
    assert (status, "has another host key than the one in known_hosts" in said) == (1, True), said
    assert workers_there(command) == []


@NIGHTLY
def test_a_host_without_a_lab_is_told(command: CommandLine, hosts: Path) -> None:
    hosts.write_text(hosts.read_text().replace("a lab", "no lab"))
    status, said = up(command, hosts)
    assert (status, "its lab has ended with status 127" in said) == (1, True), said
    assert not (command.lab / "fleets" / "local.json").exists()


@NIGHTLY
def test_a_host_that_accepts_no_key_is_told(account: Account, command: CommandLine, hosts: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(account.home / ".ssh" / "id_ecdsa"))
    status, said = up(command, hosts)
    assert (status, "accepts none of this user's ssh keys" in said) == (1, True), said
    assert not (command.lab / "fleets" / "local.json").exists()
