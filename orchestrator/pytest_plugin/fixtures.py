# SPDX-License-Identifier: GPL-2.0-only
"""The fixtures of tests in guests. Imports nothing heavy: every pytest of an environment imports it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.pytest_plugin.mark_choices import choose, merged
from orchestrator.pytest_plugin.session import (
    COVERAGE,
    SPEC,
    attempt,
    guest_spec_of,
    needs_guests,
    sentences,
    settings_of,
)

if TYPE_CHECKING:
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.ready_kernels import Kernel
    from orchestrator.guest.machine import Machine
    from orchestrator.library.tested_guest import KernelModules, TestedGuest
    from orchestrator.pytest_plugin.guest_factory import GuestFactory
    from orchestrator.pytest_plugin.guest_pool import GuestPool
    from orchestrator.pytest_plugin.instruction_budget import InstructionBudget
    from orchestrator.pytest_plugin.probe_cost import ProbeCosts

__all__ = [
    "_guest_choice",
    "_guest_pool",
    "_lab_log",
    "_tests_guest",
    "guest",
    "guest_factory",
    "guest_kernel",
    "instruction_budget",
    "kmod",
    "probe_cost",
    "shared_guest",
    "workshop",
]


@pytest.fixture
def _guest_choice(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The values that the test's parameters choose from lists in its mark."""
    chosen: Mapping[str, Any] = getattr(request, "param", {})
    return chosen


@pytest.fixture(autouse=True)
def _lab_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """Log the steps of a test with guests into its folder."""
    item: pytest.Item = request.node
    if not request.config.getoption("--qemu") or not needs_guests(item):
        yield
        return
    from orchestrator.steps import LOG_NAME, step_log

    folder: Path = request.getfixturevalue("tmp_path")
    attempt(item).log = log = folder / LOG_NAME
    with step_log(log):
        yield


@pytest.fixture(scope="session")
def workshop(pytestconfig: pytest.Config) -> BuildContext:
    """Builds artifacts (kernels, modules, images) in the user's cache."""
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.cache import Cache
    from orchestrator.paths import cache_dir

    terminal = pytestconfig.pluginmanager.getplugin("terminalreporter")
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        if terminal is not None:
            with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
                terminal.write_line(text)

    return BuildContext(Cache(cache_dir()), say=say, warn=say)


@pytest.fixture(scope="session")
def _guest_pool(
    workshop: BuildContext, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[GuestPool]:
    from orchestrator.pytest_plugin.guest_pool import GuestPool

    coverage = pytestconfig.pluginmanager.get_plugin(COVERAGE)
    folder, keeps_cores = tmp_path_factory.mktemp("guests"), bool(pytestconfig.getoption("qemu_keep"))
    with contextlib.closing(GuestPool(workshop, folder, coverage, keeps_cores=keeps_cores)) as guest_pool:
        yield guest_pool


@pytest.fixture
def guest_kernel(request: pytest.FixtureRequest, workshop: BuildContext, _guest_choice: object) -> Kernel:
    """The kernel of the test's guest: to build modules against, to read its configuration."""
    from orchestrator.artifacts.ready_kernels import ready_kernel

    with sentences(request.config):
        return ready_kernel(workshop, guest_spec_of(request).kernel_spec)


def _machine(request: pytest.FixtureRequest, workshop: BuildContext, kernel: Kernel) -> Machine:
    """The machine of a test's guest. With budgets it counts, so that a broken budget can say where it has grown."""
    from orchestrator.run.machines import counting, machine_for

    machine = machine_for(workshop, kernel, guest_spec_of(request))
    return counting(workshop, machine) if "instruction_budget" in request.fixturenames else machine


@pytest.fixture
def guest(
    request: pytest.FixtureRequest, workshop: BuildContext, guest_kernel: Kernel, _guest_pool: GuestPool
) -> Iterator[TestedGuest]:
    """A clean guest of the machine that the test's mark describes, restored if possible, otherwise booted.

    No other test uses it before or after. ``fresh=True`` in the mark always boots.
    """
    spec = guest_spec_of(request)
    with sentences(request.config):
        machine = _machine(request, workshop, guest_kernel)
        tested = _guest_pool.new(machine, guest_kernel, fresh=spec.fresh)
        _begin(request.node, tested)
    yield tested
    _guest_pool.keep(request.node, tested)
    _guest_pool.retire(tested)


@pytest.fixture
def shared_guest(
    request: pytest.FixtureRequest, workshop: BuildContext, guest_kernel: Kernel, _guest_pool: GuestPool
) -> Iterator[TestedGuest]:
    """A guest that the tests of a module share, one for each machine that their marks describe.

    A failing test ends it; the next test gets another.
    """
    with sentences(request.config):
        spec = guest_spec_of(request)
        machine = _machine(request, workshop, guest_kernel)
        module = request.node.nodeid.partition("::")[0]
        tested = _guest_pool.shared(machine, guest_kernel, module, fresh=spec.fresh)
        _begin(request.node, tested)
    yield tested
    _guest_pool.keep(request.node, tested)
    # A failed test may leave its guest in any state.
    if attempt(request.node).has_failed:
        _guest_pool.retire(tested)
    else:
        _guest_pool.rest(tested)


@pytest.fixture
def guest_factory(
    request: pytest.FixtureRequest, _guest_choice: Mapping[str, Any], workshop: BuildContext, _guest_pool: GuestPool
) -> Iterator[GuestFactory]:
    """Boots guests that run at the same time on a private network, on the plain clock.

    Its arguments are those of the mark, and override the test's own; a guest's ``address`` is its IPv4 address.
    """
    from orchestrator.pytest_plugin.guest_factory import GuestFactory

    item: pytest.Item = request.node
    guest_spec_of(request)
    marked = choose(merged(item.iter_markers("guest")), _guest_choice)
    arguments = {**settings_of(request.config), **marked}
    with contextlib.closing(
        GuestFactory(workshop, _guest_pool, arguments, lambda tested: _begin(item, tested))
    ) as factory:
        yield factory
        for tested in factory.guests:
            _guest_pool.keep(item, tested)


@pytest.fixture
def _tests_guest(request: pytest.FixtureRequest, _guest_choice: object) -> TestedGuest:
    name = "shared_guest" if "shared_guest" in request.fixturenames else "guest"
    tested: TestedGuest = request.getfixturevalue(name)
    return tested


@pytest.fixture
def kmod(request: pytest.FixtureRequest, _tests_guest: TestedGuest) -> Iterator[KernelModules]:
    """Builds modules and loads them into the test's guest, as ``guest.load`` does; unloads them after the test."""
    from orchestrator.library.tested_guest import KernelModules

    modules = KernelModules(_tests_guest)
    yield modules
    if not attempt(request.node).has_failed:
        with sentences(request.config):
            modules.unload_all()


@pytest.fixture
def probe_cost(
    request: pytest.FixtureRequest, _tests_guest: TestedGuest, workshop: BuildContext, guest_kernel: Kernel
) -> ProbeCosts:
    """The cost of a call with a probe in its path, in the test's guest, which must be on the exact clock.

    Called with a probe, it measures and proves as an experiment does; its result has ``value``, ``overhead``, ``unit``
    and ``evidence``.
    """
    from orchestrator.pytest_plugin.probe_cost import ProbeCosts

    return ProbeCosts(_tests_guest, workshop, guest_kernel, guest_spec_of(request).image)


@pytest.fixture
def instruction_budget(
    request: pytest.FixtureRequest, _tests_guest: TestedGuest, workshop: BuildContext, guest_kernel: Kernel
) -> Iterator[InstructionBudget]:
    """Exact counts in the test's guest, checked against ``NAME.budgets.yaml`` beside the test file."""
    from orchestrator.pytest_plugin.budget_file import BudgetFile
    from orchestrator.pytest_plugin.instruction_budget import InstructionBudget

    item: pytest.Item = request.node
    file = BudgetFile(item.path, workshop.cache)
    test, updates = item.nodeid.partition("::")[2], bool(request.config.getoption("qemu_update_budgets"))
    state = attempt(item)
    budget = InstructionBudget(_tests_guest, workshop, guest_kernel, file, test, updates, state.properties)
    yield budget
    if not state.has_failed:
        with sentences(request.config):
            budget.write()


def _begin(item: pytest.Item, tested: TestedGuest) -> None:
    tested.begin_test(item.path.parent, item.stash[SPEC].allow_oops)
    attempt(item).guests.append(tested)
    if item.config.getoption("qemu_gdb"):
        attempt(item).debuggers.append(tested.wait_for_debugger())
