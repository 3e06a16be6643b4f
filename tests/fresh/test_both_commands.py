# SPDX-License-Identifier: GPL-2.0-only
"""Do both commands of the README work on a fresh machine: for root, without root, offline, behind a proxy?

The long form, ``./lab test --fresh bookworm``, ``trixie`` or ``sid``. The table must be the same for an ordinary user,
offline, and behind a proxy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

import pytest
from bare_root import Account, BareRoot
from contained import OFFLINE
from first_run import run_first, succeed
from first_table import FirstTable
from fresh_machine import EXPIRED, Clone, Network, add_user, clone, fresh_machine, host_network, package_pool
from host_apt import Setting
from logging_proxy import logging_proxy

from orchestrator.errors import HostError

pytestmark = pytest.mark.qemu

_EPOCH = re.compile(r"_[0-9]+:")
"""In the name of a package's file, as apt keeps it; an archive's files have none."""

_PATH_OF_ROOT = "/root/probe-lab"
_PATH_WITH_SPACES = "/home/{name}/a folder of mine/the probe lab"


@pytest.fixture(scope="module")
def network(pytestconfig: pytest.Config) -> Network:
    release = pytestconfig.getoption("--fresh")
    if release is None:
        pytest.skip("takes half an hour and longer; ./lab test --fresh bookworm (or trixie, sid) runs it")
    try:
        return host_network(release, takes_expired=pytestconfig.getoption(EXPIRED))
    except HostError as error:
        lacking = error
    # Not skipped: --fresh asked for it.
    pytest.fail(f"no fresh machine of {release}: {lacking}", pytrace=False)


@pytest.fixture(scope="module")
def machine(network: Network) -> Iterator[BareRoot]:
    with fresh_machine(network, pool=package_pool(network.release)) as root:
        yield root


@pytest.fixture(scope="module")
def cloned(machine: BareRoot) -> Clone:
    return clone(machine, _PATH_OF_ROOT)


@pytest.fixture(scope="module")
def table(cloned: Clone) -> FirstTable:
    """What the first command prints: without it there is nothing to go on with."""
    return run_first(cloned)


@pytest.fixture(scope="module")
def user(machine: BareRoot, table: FirstTable) -> Account:
    """An ordinary user, on a machine where root's first command has installed all that is needed."""
    return add_user(machine, "tester")


@pytest.fixture(scope="module")
def user_clone(machine: BareRoot, user: Account) -> Clone:
    return clone(machine, _PATH_WITH_SPACES.format(name=user.name), user)


@pytest.fixture(scope="module")
def user_table(user_clone: Clone) -> FirstTable:
    return run_first(user_clone)


def test_the_first_command_prints_the_table(table: FirstTable) -> None:
    assert table.kernel.startswith("linux-")


def test_the_first_command_prints_the_same_again(cloned: Clone, table: FirstTable) -> None:
    assert run_first(cloned) == table


def test_an_ordinary_user_gets_the_same_table(user_table: FirstTable, table: FirstTable) -> None:
    """Without sudo, in a clone that only its owner can read, in a path with spaces, with an empty home."""
    assert user_table == table


def test_offline_it_is_the_same_again(user_clone: Clone, user_table: FirstTable) -> None:
    assert run_first(user_clone, OFFLINE) == user_table


def test_the_unit_tests_pass_as_an_ordinary_user(user_clone: Clone, user_table: FirstTable, cloned: Clone) -> None:
    # What the tests need besides is for root to install; it does so on its way to the one test of the README.
    succeed(cloned, "./lab test tests/fresh/test_readme.py")
    succeed(user_clone, "./lab test tests/unit")


def test_everything_comes_through_the_proxy_of_apt(network: Network, table: FirstTable) -> None:
    if not network.suites[0].uri.startswith("http:"):
        pytest.skip("the host's mirror is not reached by http, and nothing else shows a proxy what is fetched")
    with logging_proxy(_upstream(network)) as proxy:
        other_settings = [setting for setting in network.apt if not setting.is_proxy]
        behind = replace(network, apt=[*other_settings, Setting("Acquire::http::Proxy", proxy.url)])
        with fresh_machine(behind) as root:
            proxy.requested.clear()  # of the base system, which may have been there already
            assert run_first(clone(root, _PATH_OF_ROOT)) == table
            installed = {file.name for file in root.outside("/var/cache/apt/archives").glob("*.deb")}
        asked = proxy.names()
    assert installed
    assert {_EPOCH.sub("_", unquote(name)) for name in installed} <= {unquote(name) for name in asked}
    release = table.kernel.removeprefix("linux-")
    for package in (f"linux-image-{release}_", f"linux-headers-{release}_"):
        assert [name for name in asked if name.startswith(package)], package
    assert "InRelease" in asked


def _upstream(network: Network) -> str | None:
    """The proxy that the host's own apt uses for the mirror."""
    configured = [setting.value for setting in network.apt if setting.name.lower() == "acquire::http::proxy"]
    proxies = [*configured, os.environ.get("http_proxy", "")]
    return next((value for value in proxies if value.startswith("http:")), None)


def test_the_second_command_passes(cloned: Clone, table: FirstTable) -> None:
    """Last, since it takes longest."""
    succeed(cloned, cloned.commands.second)
