# SPDX-License-Identifier: GPL-2.0-only
"""What may a file of hosts contain, and how is each error placed?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.fleet.hosts import load_hosts, ssh_parts
from orchestrator.fleet.state import WorkerConfig


def written(folder: Path, text: str) -> Path:
    file = folder / "hosts.yaml"
    file.write_text(text)
    return file


def test_hosts_become_worker_configs(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "hosts:\n"
        "  - {ssh: me@one.example, lab: probe-lab/lab}\n"
        "  - {ssh: 'two:2222', lab: /opt/lab, name: big, guests: 16, memory: 32G}\n"
        "  - {ssh: 'root@[2001:db8::1]:22', lab: lab}\n",
    )
    configs = [WorkerConfig.model_validate(host.model_dump()) for host in load_hosts(file)]
    assert configs == [
        WorkerConfig(name="one.example", ssh="me@one.example", lab="probe-lab/lab"),
        WorkerConfig(name="big", guests=16, memory="32G", ssh="two:2222", lab="/opt/lab"),
        WorkerConfig(name="2001-db8--1", ssh="root@[2001:db8::1]:22", lab="lab"),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("host", (None, "host", None)),
        ("me@host:22", ("me", "host", 22)),
        ("[::1]:22", (None, "::1", 22)),
    ],
)
def test_parts_of_a_destination(text: str, parts: tuple[str | None, str, int | None]) -> None:
    assert ssh_parts(text) == parts


@pytest.mark.parametrize(
    ("text", "where", "sentence"),
    [
        ("[]", 1, "expected a mapping with the key 'hosts'"),
        ("hosts: []", 1, "expected at least one entry"),
        ("hosts:\n- {ssh: a, lab: l}\nhots: 1", 3, "hots: unknown key; allowed: hosts; did you mean 'hosts'?"),
        (
            "hosts:\n- {ssh: a, lab: l, gests: 1}",
            2,
            "hosts.0.gests: unknown key; allowed: ssh, lab, name, guests, memory",
        ),
        ("hosts:\n- {ssh: a}", 2, "hosts.0.lab: missing; this key is required"),
        ("hosts:\n- {ssh: '-oProxyCommand=x', lab: l}", 2, "expected a host as ssh takes it"),
        ("hosts:\n- {ssh: 'a b', lab: l}", 2, "expected a host as ssh takes it"),
        ("hosts:\n- {ssh: 'a:65536', lab: l}", 2, "expected a host as ssh takes it"),
        ("hosts:\n- {ssh: a, lab: --help}", 2, "expected the path of a lab on that host"),
        ("hosts:\n- {ssh: a, lab: l, name: ../x}", 2, "expected letters, digits"),
        ("hosts:\n- {ssh: a, lab: l, memory: 8}", 2, "expected a size such as 8G"),
        ("hosts:\n- {ssh: a, lab: l, guests: 0}", 2, "expected a whole number from 1 to 1024"),
        ("hosts:\n- {ssh: a, lab: l}\n- {ssh: me@a, lab: l}", 3, "a second worker called 'a'"),
    ],
)
def test_an_error_has_its_place(tmp_path: Path, text: str, where: int, sentence: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_hosts(file)
    assert raised.value.where == f"{file}:{where}"
    assert sentence in raised.value.what
