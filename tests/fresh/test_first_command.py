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


NEEDY = """\
name: needy
kernels: [lab-x86_64-smp-bpf]
machines: [{cpu: xeon-e5410}]
probes: [none, ./own.bpf.c]
benchmark: {name: gtodbench}
"""
INSTALLED = "flex bison bc pahole clang bpftool xz lz4"
NO_MIRROR = "http://127.0.0.1:9/debian"


def test_what_an_experiment_needs_is_installed_before_anything_is_fetched(fresh_clone: tuple[str, Clone]) -> None:
    """All lists at once; then there is no mirror to fetch a kernel's source from."""
    _, cloned = fresh_clone
    files = f"touch own.bpf.c; cat >needy.yaml <<'END'\n{NEEDY}END\n"
    done = cloned.run(f"{files}ORCHESTRATOR_DEBIAN_MIRROR={NO_MIRROR} ./lab run needy.yaml")
    assert done.status == 3, done.stderr
    assert done.stderr.count("lab: installing with apt-get: ") == 1
    assert done.stderr.index("installing with apt-get") < done.stderr.index(NO_MIRROR), done.stderr
    there = cloned.run(
        f"for program in {INSTALLED}; do PATH=$PATH:/usr/sbin command -v $program || echo no $program; done"
    )
    assert "no " not in there.stdout, there.stdout


def test_all_releases_count_the_same(tables: dict[str, FirstTable]) -> None:
    if len(tables) < 2:
        pytest.skip("there are not two releases' tables")
    kernels = {release: table.kernel for release, table in tables.items()}
    assert len(set(kernels.values())) == 1, f"the guests' kernels differ, and so do their counts: {kernels}"
    first, *other_tables = tables.values()
    assert all(table.rows == first.rows for table in other_tables)
