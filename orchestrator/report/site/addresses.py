# SPDX-License-Identifier: GPL-2.0-only
"""Where a site's pages are: a file for each run, experiment and metric, and links from one to another.

A file is called after what its page is of, where that is plain and short. Any other name is made plain, and a digest
behind ``~``, which no plain name has, tells it apart: names that differ in case only, or behind the 100th character,
are different files on every file system.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import StringConstraints

from orchestrator.results.history import Metric

INDEX, RUNS = "index.html", "runs.html"

_LONGEST = 100
_PLAIN = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{_LONGEST - 1}}}")
_NAME = r"[a-z0-9~][a-z0-9._~-]*"

SitePath = Annotated[
    str,
    StringConstraints(
        pattern=rf"^((index|runs)\.html|(runs|experiments)/{_NAME}\.html|metrics/{_NAME}/{_NAME}\.(html|csv)"
        rf"|runs/{_NAME}\.html\.files/[A-Za-z0-9_+-][A-Za-z0-9._+@-]*)$",
        max_length=1000,
    ),
]
"""A file of a site, relative to its folder; no other is ever written or removed."""


def file_name(name: str) -> str:
    """The name, without suffix, of the file of what is called so; different for different names."""
    if _PLAIN.fullmatch(name):
        return name
    plain = re.sub("[^a-z0-9._-]+", "-", name.lower())[: _LONGEST - 20].strip("-._")
    return f"{plain}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def run_file(run: str) -> str:
    """The page of a run."""
    return f"runs/{file_name(run)}.html"


def experiment_file(experiment: str) -> str:
    """The page of an experiment."""
    return f"experiments/{file_name(experiment)}.html"


def metric_file(metric: Metric) -> str:
    """The page of a metric."""
    return f"metrics/{file_name(metric.experiment)}/{file_name(metric.cell)}.html"


@dataclass(frozen=True)
class Addresses:
    """Relative addresses from ``page``, for which ``runs`` and ``metrics`` have pages."""

    runs: Container[str]
    metrics: Container[Metric]
    page: str = INDEX

    def seen_from(self, page: str) -> Addresses:
        """The same from another page."""
        return replace(self, page=page)

    @property
    def index(self) -> str:
        """The site's first page."""
        return self._to(INDEX)

    @property
    def all_runs(self) -> str:
        """The list of all runs."""
        return self._to(RUNS)

    def experiment(self, name: str) -> str:
        """An experiment's page."""
        return self._to(experiment_file(name))

    def run(self, run: str) -> str | None:
        """A run's page; None where it has none."""
        return self._to(run_file(run)) if run in self.runs else None

    def metric(self, metric: Metric) -> str | None:
        """A metric's page; None where it has none."""
        return self._to(metric_file(metric)) if metric in self.metrics else None

    def _to(self, target: str) -> str:
        return "../" * self.page.count("/") + target
