# SPDX-License-Identifier: GPL-2.0-only
"""The names of a site's files: plain, short, different for different names, and never outside of the site."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from orchestrator.pages.site.building import (
    INDEX,
    RUNS,
    Addresses,
    SitePath,
    experiment_file,
    file_name,
    metric_file,
    run_file,
)
from orchestrator.results.cost_history import Metric

PATHS = TypeAdapter(SitePath)
HOSTILE = [
    "",
    ".",
    "..",
    "_",
    "._x",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    ".site",
    "-x",
    "~",
    "a\0b",
    "x" * 1000,
    "\ud800",
]
NAMES = st.one_of(st.text(max_size=300), st.sampled_from(HOSTILE), st.from_regex(r"[A-Za-z0-9._~/-]{1,20}"))


@given(NAMES)
@example("_")
def test_any_name_is_a_file_of_the_site(name: str) -> None:
    files = [run_file(name), experiment_file(name), metric_file(Metric(name, name))]
    assert [PATHS.validate_python(file) for file in files] == files
    assert len(file_name(name).encode()) <= 120
    assert not any(part.startswith(".") for file in files for part in file.split("/"))


@given(NAMES, NAMES)
def test_different_names_are_different_files_on_any_file_system(one: str, other: str) -> None:
    assert (file_name(one).lower() == file_name(other).lower()) == (one == other)


@pytest.mark.parametrize(("one", "other"), [("KVM", "kvm"), ("x" * 100 + "a", "x" * 100 + "b"), ("a/b", "a-b")])
def test_names_that_look_alike(one: str, other: str) -> None:
    assert file_name(one).lower() != file_name(other).lower()
    assert file_name(file_name(one)) != file_name(one) or file_name(one) == one


def test_a_plain_name_stays() -> None:
    run = "20260301-120000-quickstart-1f3a"
    assert run_file(run) == f"runs/{run}.html"


@pytest.mark.parametrize(
    "path",
    [
        "../index.html",
        "runs/../x.html",
        "runs/.x.html",
        "/index.html",
        "other.html",
        ".site/state.json",
        "runs/a/b.html",
    ],
)
def test_no_other_path_is_the_sites(path: str) -> None:
    with pytest.raises(ValidationError):
        PATHS.validate_python(path)


def test_links_lead_from_any_page_to_any_other() -> None:
    metric = Metric("e", "c")
    from_metric = Addresses({"r"}, {metric}, metric_file(metric))
    assert (from_metric.index, from_metric.all_runs) == (f"../../{INDEX}", f"../../{RUNS}")
    assert from_metric.run("r") == "../../runs/r.html"
    assert from_metric.seen_from(INDEX).metric(metric) == "metrics/e/c.html"
    assert from_metric.seen_from(run_file("r")).experiment("e") == "../experiments/e.html"
    assert from_metric.run("of another lab") is None
    assert from_metric.metric(Metric("e", "d")) is None
