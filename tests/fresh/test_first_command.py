# SPDX-License-Identifier: GPL-2.0-only
"""Does the README's first command work on a machine on which nothing was ever installed?

The short form, for every night: less than a minute for a release on two idle processors. All other tests run on the
host's own release.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from first_run import run_first
from first_table import FirstTable
from fresh_machine import EXPIRED, RELEASES, Clone, clone, fresh_machine, host_network, package_pool

from orchestrator.errors import HostError

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.nightly("the first command on a fresh machine of each release: three minutes"),
]


@pytest.fixture(scope="module")
def tables() -> dict[str, FirstTable]:
    """What the first command printed, by release."""
    return {}


@pytest.fixture(scope="module", params=RELEASES)
def fresh_clone(request: pytest.FixtureRequest) -> Iterator[tuple[str, Clone]]:
    release: str = request.param
    if request.config.getoption("--fresh"):
        pytest.skip("the long form, which --fresh asks for, begins with the same")
    if not request.config.getoption("--qemu"):
        pytest.skip("boots a guest in QEMU; pytest --qemu runs it")
    with contextlib.ExitStack() as stack:
        try:
            network = host_network(release, takes_expired=request.config.getoption(EXPIRED))
            root = stack.enter_context(fresh_machine(network, pool=package_pool(release)))
        except HostError as lacking:
            pytest.skip(f"no fresh machine of {release}: {lacking}")
        yield release, clone(root, "/root/probe-lab")


def test_the_first_command_prints_the_table(
    fresh_clone: tuple[str, Clone],
    tables: dict[str, FirstTable],
    record_property: Callable[[str, object], None],
) -> None:
    release, cloned = fresh_clone
    started = time.monotonic()
    tables[release] = run_first(cloned)
    record_property("seconds", round(time.monotonic() - started))


def test_all_releases_count_the_same(tables: dict[str, FirstTable]) -> None:
    if len(tables) < 2:
        pytest.skip("there are not two releases' tables")
    kernels = {release: table.kernel for release, table in tables.items()}
    assert len(set(kernels.values())) == 1, f"the guests' kernels differ, and so do their counts: {kernels}"
    first, *others = tables.values()
    assert all(table.rows == first.rows for table in others)
