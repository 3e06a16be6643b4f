# SPDX-License-Identifier: GPL-2.0-only
"""What each file of tests costs: seconds, processor seconds, guests and other programs that it starts.

``suite_costs.yaml`` beside this file has what the daily suite cost when it was last written, with ``--costs``: the
dearest files come first, so that the workers end together, and ``tests/benchmarks`` compares its number of guests.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

RECORDED = Path(__file__).with_suffix(".yaml")
"""The costs of the daily suite."""

_HOOK = Path(__file__).with_name("started_programs") / "sitecustomize.py"
_LOG = "ORCHESTRATOR_TESTS_STARTED"
_PROPERTY = "cost"
_SLOWEST = 10
_WORTH_A_ROW = 2.0
"""Seconds of a file from which on it has a row in the recorded costs."""
_COLUMNS = ("seconds", "CPU s", "booted", "restored", "python", "make", "compiler", "git")
_KINDS = ("boot", "restore", "python", "make", "compiler", "git")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """Seconds of the clock and of a processor, and the programs started by their kinds."""

    seconds: float = 0.0
    processor: float = 0.0
    started: Counter[str] = field(default_factory=Counter)

    @property
    def guests(self) -> int:
        """Guests booted and restored."""
        return self.started["boot"] + self.started["restore"]

    def add(self, other_cost: Cost) -> None:
        """Add what another one cost."""
        self.seconds += other_cost.seconds
        self.processor += other_cost.processor
        self.started += other_cost.started

    def row(self) -> str:
        """Its figures, below ``_COLUMNS``."""
        times = [f"{self.seconds:9.1f}", f"{self.processor:9.1f}"]
        return "".join([*times, *(f"{self.started[kind]:9}" for kind in _KINDS)])


class Meter:
    """In the process that runs tests: attaches its cost to the report of each."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._begun = (time.monotonic(), _processor_seconds())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, Any]:
        """Between the ends of two tests all that happens is the later one's: its fixtures, too."""
        report = yield
        if report.when == "teardown":
            now = (time.monotonic(), _processor_seconds())
            seconds, processor = (after - before for before, after in zip(self._begun, now, strict=True))
            self._begun = now
            report.user_properties.append((_PROPERTY, (seconds, processor, dict(self._started()))))
        return report

    def _started(self) -> Counter[str]:
        with self._log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        self._read += len(text)
        return Counter(text.decode().split())


class Costs:
    """In the process that reports: the costs by test, and what is written of them in the end."""

    def __init__(self, record: Path | None) -> None:
        self._record = record
        self._tests: dict[str, Cost] = defaultdict(Cost)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test's cost."""
        for name, value in report.user_properties:
            if name == _PROPERTY and report.when == "teardown":
                seconds, processor, started = cast(tuple[float, float, dict[str, int]], value)
                self._tests[report.nodeid].add(Cost(seconds, processor, Counter(started)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the slowest tests and files; all files where nobody watches, and the record."""
        if not self._tests:
            return
        files: dict[str, Cost] = defaultdict(Cost)
        for test, cost in self._tests.items():
            files[test.partition("::")[0]].add(cost)
        every = os.environ.get("CI") is not None
        _table(terminalreporter, "slowest tests", self._tests, _SLOWEST)
        _table(terminalreporter, "slowest files", files, len(files) if every else _SLOWEST)
        total = Cost()
        for cost in files.values():
            total.add(cost)
        terminalreporter.write_line(f"{total.row()}  all")
        if self._record is not None:
            _write(self._record, files, total)
            terminalreporter.write_line(f"written: {self._record}")


def recorded_costs(file: Path = RECORDED) -> dict[str, Any]:
    """``guests`` of a whole suite, and the seconds of its dearest ``files``."""
    recorded: dict[str, Any] = yaml.safe_load(file.read_text())
    return recorded


def measure_costs(config: pytest.Config) -> None:
    """Measure until pytest ends, and report in the process that has the terminal."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Meter(_log_of_started_programs(config)))
    if not is_worker:
        config.pluginmanager.register(Costs(config.getoption("costs")))


def dearest_first(items: list[pytest.Item]) -> None:
    """Put the tests of the dearest files first; the others keep their order."""
    costs = recorded_costs()["files"]
    items.sort(key=lambda item: -costs.get(item.nodeid.partition("::")[0], 0.0))


def _log_of_started_programs(config: pytest.Config) -> Path:
    descriptor, name = tempfile.mkstemp(prefix="started-")
    os.close(descriptor)
    Path(name).chmod(0o666)  # some tests become another user
    config.add_cleanup(lambda: Path(name).unlink(missing_ok=True))
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    patch.setenv(_LOG, name)
    patch.setenv("PYTHONPATH", str(_HOOK.parent), prepend=os.pathsep)
    # Another sitecustomize, a distribution's, may be loaded already.
    spec = importlib.util.spec_from_file_location("started_programs", _HOOK)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return Path(name)


def _processor_seconds() -> float:
    """Of this process, of those that it has waited for, and of those that still run, guests above all."""
    rusages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in rusages) + sum(_of_living("self"))


def _of_living(process: str) -> Iterable[float]:
    for task in Path(f"/proc/{process}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:  # it has ended
            continue
        for child in children:
            try:
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # utime, stime, cutime and cstime of proc_pid_stat(5), of which the state is the third.
            yield sum(int(ticks) for ticks in fields[11:15]) / _TICKS
            yield from _of_living(child)


def _table(reporter: pytest.TerminalReporter, title: str, costs: dict[str, Cost], most: int) -> None:
    reporter.section(title)
    reporter.write_line("".join(f"{name:>9}" for name in _COLUMNS))
    dearest = sorted(costs.items(), key=lambda pair: -pair[1].seconds)[:most]
    for name, cost in dearest:
        reporter.write_line(f"{cost.row()}  {name}")


def _write(record: Path, files: dict[str, Cost], total: Cost) -> None:
    dear = {name: round(cost.seconds, 1) for name, cost in files.items() if cost.seconds >= _WORTH_A_ROW}
    ordered = dict(sorted(dear.items(), key=lambda pair: -pair[1]))
    head = "# SPDX-License-Identifier: GPL-2.0-only\n# Written by ./lab test --bare --costs=tests/suite_costs.yaml.\n"
    record.write_text(head + yaml.safe_dump({"guests": total.guests, "files": ordered}, sort_keys=False))
