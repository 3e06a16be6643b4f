# SPDX-License-Identifier: GPL-2.0-only
"""Is a run that cannot go on left as one that was interrupted, with the results that it had?"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from loaded_tables import calls_experiment
from test_journal import RecordingListener

from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import UsageError
from orchestrator.experiment.plan import plan
from orchestrator.results.store import Store
from orchestrator.run.crew import CrewEvent, Job
from orchestrator.run.runner import Runner


class Refusing:
    """A crew that takes no job: the run's times were measured elsewhere."""

    jobs = 1

    def submit(self, job: Job) -> None:
        raise UsageError("times of this run were measured elsewhere")

    def events(self) -> Generator[tuple[Job, CrewEvent], None, None]:
        raise AssertionError("it has no job")

    def cancel(self) -> None:
        pass


def test_a_run_whose_boots_no_crew_takes_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.run.runner.prepare", lambda *given: SimpleNamespace(keys={}, cells={}))
    monkeypatch.setattr("orchestrator.run.runner.host_facts", lambda context: {})
    monkeypatch.setattr("orchestrator.run.provenance._TOOLS", ())
    experiment = calls_experiment(probes=["none", "kprobe"])
    planned = plan(experiment)
    with Store.open(tmp_path) as store:
        entry = store.begin_run("demo", [cell.id for cell in planned.cells], digest=experiment.digest(), provenance={})
        runner = Runner(
            BuildContext(Cache(tmp_path / "cache")),
            store,
            RecordingListener(),
            kinds(),
            crew=lambda context, listener: nullcontext(Refusing()),
        )
        with pytest.raises(UsageError, match="measured elsewhere"):
            runner.resume(entry, experiment, planned)
        found = store.entry(entry.id)
        assert (found.status, found.finished is not None) == ("interrupted", True)
    assert (entry.directory / "results.json").exists()
