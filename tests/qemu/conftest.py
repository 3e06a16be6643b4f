# SPDX-License-Identifier: GPL-2.0-only
"""What the tests in real guests share: a guest fit to measure in, modules to load into it, and a run of the lab."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest
from cache_looks import look_once
from command_line import QUICKSTART, REDUCED, CommandLine, FinishedRun
from installed_wheel import install_wheel
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.benchmarks.system.work import SystemTask, system_inputs, system_work
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import HostError
from orchestrator.guest.guest import Guest
from orchestrator.paths import cache_dir
from orchestrator.probes.symbols import Symbols
from orchestrator.run.benchmark_kind import BootArtifacts
from orchestrator.run.guest_checks import CLOCKSOURCE
from orchestrator.run.ready_guest import ReadyGuest

_CLOCKSOURCE_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_SETTLING_SECONDS = 180.0
_BUILT_WHERE_MISSING = "lab-i386-up"
_CYCLES = 3
_NIGHTLY_CYCLES = 500
"""Ten minutes for each kernel."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--bare``, ``--cycles``, ``--kills`` and ``--kill-seed``."""
    text = f"of the lab's kernels use {_BUILT_WHERE_MISSING} only, as where the cache was empty"
    parser.addoption("--bare", action="store_true", help=text)
    text = f"how often a probe comes and goes in the stress tests: {_CYCLES}, every night {_NIGHTLY_CYCLES}"
    parser.addoption("--cycles", type=int, help=text)
    parser.addoption("--kills", type=int, default=100, help="how many processes of each kind the night kills")
    parser.addoption("--kill-seed", type=int, help="the moments at which they are killed: a number that a test printed")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of tests that need what takes long to build, set the number of cycles, look at kernels once."""
    if config.getoption("cycles") is None:
        config.option.cycles = _NIGHTLY_CYCLES if config.getoption("nightly") else _CYCLES
    look_once(config)
    config.addinivalue_line("markers", "kernels(*names): lab kernels that must be in the cache already")
    config.addinivalue_line("markers", "prepared_build: what a guest compiles with must be in the cache")


@pytest.fixture(scope="session")
def _kernels_at_hand() -> set[str]:
    """The kernels that were found in the cache."""
    return set()


@pytest.fixture(autouse=True)
def _kernels_in_the_cache(request: pytest.FixtureRequest, _kernels_at_hand: set[str]) -> None:
    """Skip a test whose kernels are not built yet: one is built for the tests, not all of them."""
    names = {name for mark in request.node.iter_markers("kernels") for name in mark.args} - {_BUILT_WHERE_MISSING}
    context = BuildContext(Cache(cache_dir()), offline=True)
    for name in sorted(names):
        is_bare = request.config.getoption("bare") and kernel_spec(name).source is not None
        if not is_bare and (name in _kernels_at_hand or is_in_cache(context, name)):
            _kernels_at_hand.add(name)
        else:
            pytest.skip(f"{name} is not built yet; build it once: ./lab build kernel {name}")


@pytest.fixture(autouse=True)
def _prepared_build_in_the_cache(request: pytest.FixtureRequest) -> None:
    """Skip a test that compiles a kernel in a guest where its image and its output tree are not there yet."""
    if request.node.get_closest_marker("prepared_build") is None:
        return
    context = BuildContext(Cache(cache_dir()), offline=True)
    try:
        kernel = ready_kernel(context, kernel_spec(_BUILT_WHERE_MISSING))
        task = SystemTask("kernel-build", scope="sample")
        system_work(context, kernel, task, system_inputs(context, kernel, task), None, _refuse)
    except (HostError, _NotPreparedError):
        pytest.skip("no kernel build is prepared yet; once: ./lab run configs/nightly.yaml --only lkst-events-2005")


class _NotPreparedError(Exception):
    """A guest would be booted to prepare a build."""


def _refuse(guest: Guest) -> None:
    raise _NotPreparedError


def is_in_cache(context: BuildContext, name: str) -> bool:
    """Whether a kernel can be had without building or fetching it."""
    try:
        ready_kernel(context, kernel_spec(name))
    except HostError:
        return False
    return True


@pytest.fixture(scope="session")
def symbols_of_guests() -> WeakKeyDictionary[Guest, Symbols]:
    """The symbols of each guest, read once: tests share guests."""
    return WeakKeyDictionary()


@pytest.fixture
def ready(
    request: pytest.FixtureRequest, guest_kernel: Kernel, symbols_of_guests: WeakKeyDictionary[Guest, Symbols]
) -> ReadyGuest:
    """The test's guest on its final clocksource, with its symbols; what its cells need is for the test to fill in.

    It is shared with others of the module, unless the test's mark says ``fresh``.
    """
    fresh = any(mark.kwargs.get("fresh") for mark in request.node.iter_markers("guest"))
    guest: Guest = request.getfixturevalue("guest" if fresh else "shared_guest")
    guest.wait_until_succeeds(["grep", "-qx", CLOCKSOURCE, _CLOCKSOURCE_FILE], time_limit=_SETTLING_SECONDS)
    if guest not in symbols_of_guests:
        symbols_of_guests[guest] = Symbols.at_start(guest)
    return ReadyGuest(guest, BootArtifacts(guest_kernel, guest.machine, {}), symbols_of_guests[guest])


@pytest.fixture
def modules(workshop: BuildContext, guest_kernel: Kernel) -> ModuleMaker:
    """Builds modules for the test's guest."""
    return ModuleMaker(workshop, guest_kernel)


@pytest.fixture(autouse=True)
def _users_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give runs of pytester, which have another home directory, the user's cache: else each builds a kernel."""
    if "pytester" in request.fixturenames:
        monkeypatch.setenv("ORCHESTRATOR_CACHE", str(cache_dir()))


@pytest.fixture(scope="session")
def late_oops(workshop: BuildContext) -> Path:
    """A module for lab-i386-up whose kernel warns, and then has a thread that dies of an oops."""
    return ModuleMaker(workshop, ready_kernel(workshop, kernel_spec("lab-i386-up"))).rogue("late_oops").file


@pytest.fixture(scope="session")
def installed_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the package from its wheel."""
    return install_wheel(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """The quickstart with fewer calls, run by the command line from beginning to end, once for all workers."""
    path = tmp_path_factory.getbasetemp()
    folder = (path.parent if "PYTEST_XDIST_WORKER" in os.environ else path) / "undisturbed"
    folder.mkdir(exist_ok=True)
    command, directory, ended = CommandLine(folder / "lab"), folder / "run", folder / "ended"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ended.exists():
            done = command.run("run", QUICKSTART, *REDUCED, "--out", directory)
            ended.write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr]))
    return FinishedRun(command, directory, subprocess.CompletedProcess(*json.loads(ended.read_text())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the tables that tests have recorded, also those of tests that passed."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for text in (value for name, value in getattr(report, "user_properties", ()) if name == "table"):
                terminalreporter.section(f"table of {report.nodeid}")
                terminalreporter.line(str(text))
