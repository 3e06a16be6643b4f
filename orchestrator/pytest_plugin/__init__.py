# SPDX-License-Identifier: GPL-2.0-only
"""``pytest --qemu``: tests that get a booted guest, of the machine that their marker describes.

A test that takes the ``guest`` fixture is a QEMU test; ``@pytest.mark.guest(kernel=..., cpu=...)`` on it, its class or
its module describes the machine. A test that starts guests in some other way is marked ``@pytest.mark.qemu``. Without
``--qemu`` both are skipped; with it, the steps of each are in ``lab.log`` in its ``tmp_path``.

Every pytest of an environment imports this file, so it imports nothing heavy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.kernels import Kernel
    from orchestrator.guest.guest import Guest
    from orchestrator.pytest_plugin.guest_options import Expected, GuestOptions
    from orchestrator.pytest_plugin.guest_pool import GuestPool

pytest_plugins = ["orchestrator.pytest_plugin.result_reports"]

_SKIPPED = "boots a guest in QEMU; pytest --qemu runs it"
_LOG_LINES = 20
_options = pytest.StashKey["GuestOptions"]()
_guests = pytest.StashKey["list[Guest]"]()
_expected: pytest.StashKey[Expected] = pytest.StashKey()
_log = pytest.StashKey["Path"]()
_failed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--qemu``."""
    parser.getgroup("orchestrator").addoption("--qemu", action="store_true", help="run the tests that boot QEMU guests")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    arguments = (
        "kernel='debian-686', cpu=None, smp=1, memory='256M', timing='auto', fresh=False, image=None, "
        "channel='framed', data=()"
    )
    config.addinivalue_line(
        "markers",
        f"guest({arguments}): the machine that the guest fixture boots; a nearer mark's arguments override a farther "
        "one's. timing: auto, tcg, kvm, or instructions for the exact clock. fresh: not shared with other tests.",
    )
    config.addinivalue_line(
        "markers",
        "allow_oops(*regexes): what the kernel of the guest fixture may report on its console; any other oops, BUG, "
        "warning, lockdep report or stall fails the test.",
    )
    config.addinivalue_line("markers", "qemu: a test that starts QEMU by itself, without the guest fixture")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip QEMU tests without ``--qemu``; with it, refuse to begin while any marker is wrong."""
    qemu = [item for item in items if _is_marked(item)]
    if not config.getoption("--qemu"):
        for item in qemu:
            item.add_marker(pytest.mark.skip(reason=_SKIPPED))
        return
    wrong = [problem for item in qemu if (problem := _read_markers(item)) is not None]
    if wrong:
        raise pytest.UsageError(*wrong)


def _is_marked(item: pytest.Item) -> bool:
    return any(item.iter_markers("guest")) or any(item.iter_markers("qemu"))


def _read_markers(item: pytest.Item) -> str | None:
    """Keep the options of an item's guest; what is wrong with them, if anything."""
    from orchestrator.errors import UsageError
    from orchestrator.pytest_plugin.guest_options import read_expected_reports, read_markers

    mark = "guest"
    try:
        item.stash[_options] = read_markers(list(item.iter_markers(mark)))
        mark = "allow_oops"
        item.stash[_expected] = read_expected_reports(list(item.iter_markers(mark)))
    except UsageError as error:
        return f"{item.nodeid}: mark {mark}: {error}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that passed where the kernel of its guest has reported trouble."""
    result = yield
    for guest in item.stash.get(_guests, []):
        with _sentences(item.config):
            guest.drain_console()
            # Neither before nor in the next test: one may be about the error that check_console() raises.
            guest.expected_reports = item.stash.get(_expected, ())
            try:
                guest.check_console()
            finally:
                guest.expected_reports = ()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the last steps of a failed test and the last console lines of its guests to its report."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
        if _log in item.stash:
            steps = item.stash[_log].read_text(encoding="utf-8").splitlines()[-_LOG_LINES:]
            report.sections.append((f"Last steps of {item.stash[_log]}", "\n".join(steps)))
        for guest in item.stash.get(_guests, []):
            title = f"Last console lines of {guest.console.path}"
            report.sections.append((title, "\n".join(guest.console.last_lines())))
    return report


@pytest.fixture(autouse=True)
def _lab_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """Write the steps of a test that uses guests to a log in its folder."""
    item: pytest.Item = request.node
    if not request.config.getoption("--qemu") or not ("guest" in request.fixturenames or _is_marked(item)):
        yield
        return
    from orchestrator.steps import LOG_NAME, step_log

    folder: Path = request.getfixturevalue("tmp_path")
    item.stash[_log] = folder / LOG_NAME
    with step_log(item.stash[_log]):
        yield


@pytest.fixture(scope="session")
def context(pytestconfig: pytest.Config) -> BuildContext:
    """What builds artifacts, on the user's cache."""
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
def _guest_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestPool]:
    from orchestrator.pytest_plugin.guest_pool import GuestPool

    with contextlib.closing(GuestPool(tmp_path_factory.mktemp("guests"))) as guest_pool:
        yield guest_pool


@pytest.fixture
def guest_kernel(request: pytest.FixtureRequest, context: BuildContext) -> Kernel:
    """The kernel that the test's ``guest`` runs: to build modules against, to read its configuration."""
    from orchestrator.artifacts.kernels import ready_kernel

    with _sentences(request.config):
        return ready_kernel(context, _options_of(request).kernel)


@pytest.fixture
def guest(
    request: pytest.FixtureRequest, context: BuildContext, guest_kernel: Kernel, _guest_pool: GuestPool
) -> Iterator[Guest]:
    """A running guest of the machine that the test's ``guest`` marker describes, shared between tests unless fresh."""
    options = _options_of(request)
    with _sentences(request.config):
        machine = options.machine(context, guest_kernel)
        booted = _guest_pool.fresh(machine) if options.fresh else _guest_pool.shared(machine)
    item: pytest.Item = request.node
    item.stash.setdefault(_guests, []).append(booted)
    yield booted
    # A failed test may leave its guest in any state.
    if options.fresh or item.stash.get(_failed, False):
        _guest_pool.retire(booted)
    else:
        _guest_pool.rest(booted)


def _options_of(request: pytest.FixtureRequest) -> GuestOptions:
    """The options of a test's guest; a test without a marker has the defaults."""
    item: pytest.Item = request.node
    if not request.config.getoption("--qemu"):
        pytest.skip(_SKIPPED)
    if _options not in item.stash:
        problem = _read_markers(item)
        if problem is not None:
            pytest.fail(problem, pytrace=False)
    return item.stash[_options]


@contextlib.contextmanager
def _sentences(config: pytest.Config) -> Iterator[None]:
    """Expected failures as a sentence, not as a traceback, except with ``--full-trace``."""
    from orchestrator.errors import LabError

    try:
        yield
    except LabError as error:
        if config.getoption("fulltrace"):
            raise
        pytest.fail(f"{type(error).__name__}: {error}", pytrace=False)
