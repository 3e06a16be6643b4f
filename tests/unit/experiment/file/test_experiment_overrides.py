# SPDX-License-Identifier: GPL-2.0-only
"""Does ``--set`` change exactly what it names, and take the blame for it?"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError
from orchestrator.experiment.problems import DataOrigins, apply_overrides
from orchestrator.experiment.source import Data

EXAMPLE: Data = {"name": "x", "machines": [{"cpu": "pentium4"}], "benchmark": {"name": "gtodbench"}, "empty": []}


def changed(*overrides: str, data: Data = EXAMPLE) -> Data:
    return apply_overrides(copy.deepcopy(data), overrides, DataOrigins({(): "x.yaml:1"}))


def refusal(override: str) -> str:
    with pytest.raises(ConfigError) as caught:
        changed(override)
    return str(caught.value).splitlines()[0]


def test_overrides_replace_and_add_yaml_values() -> None:
    assert changed("machines.0.cpu=athlon", "benchmark.calls=1000", "probes=[none, kprobe]", "new.deep=a=b") == {
        "name": "x",
        "machines": [{"cpu": "athlon"}],
        "benchmark": {"name": "gtodbench", "calls": 1000},
        "empty": [],
        "probes": ["none", "kprobe"],
        "new": {"deep": "a=b"},
    }


def test_a_later_override_wins() -> None:
    assert changed("a={b: 1}", "a.b=2", "a.c=3", data=None) == {"a": {"b": 2, "c": 3}}


def test_a_whole_list_item_can_be_replaced() -> None:
    assert changed("machines.0={cpu: athlon64}", data={"machines": [{"cpu": "x"}]}) == {
        "machines": [{"cpu": "athlon64"}]
    }


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("name", "--set name: expected KEY=VALUE"),
        ("=1", "--set =1: expected KEY=VALUE"),
        ("a..b=1", "--set a..b=1: expected KEY=VALUE"),
        ("a b=1", "--set a b=1: expected KEY=VALUE"),
        ("\x1b[31m=1", r"--set '\x1b[31m=1': expected KEY=VALUE"),
        ("machines.1.cpu=x", "--set machines.1.cpu=x: machines is a list with one entry, machines.0; it has no '1'"),
        ("machines.cpu=x", "--set machines.cpu=x: machines is a list with one entry, machines.0; it has no 'cpu'"),
        ("empty.0=x", "--set empty.0=x: empty is a list with no entries; it has no '0'"),
        ("name.x=1", "--set name.x=1: name is neither a mapping nor a list"),
        ("name=[1", "--set name=[1: malformed YAML: a list that begins here is not closed"),
        ("name=!!str 1", "--set name=!!str 1: YAML tag '!!str' is not allowed"),
        ("name=*a", "--set name=*a: alias '*a' has no anchor before it"),
        ("name=\udcff", r"--set 'name=\udcff': a character that YAML does not allow: U+DCFF"),
        (".".join("a" * 21) + "=1", "--set " + ".".join("a" * 21) + "=1: nested more than 20 deep"),
        ("name=" + "x" * 70_000, "--set name=" + "x" * 72 + "...: larger than 64 KiB"),
    ],
)
def test_refusals_begin_with_the_override(override: str, message: str) -> None:
    assert refusal(override).startswith(message)


def test_origins_are_the_nearest_known_place() -> None:
    origins = DataOrigins({(): "x.yaml:1", ("machines",): "x.yaml:2", ("machines", 0, "cpu"): "x.yaml:3"})
    assert origins.where(("machines", 0, "cpu")) == "x.yaml:3"
    assert origins.where(("machines", 0, "smp")) == "x.yaml:2"
    origins.override(("machines", 0), "--set machines.0={}")
    assert origins.where(("machines", 0, "cpu")) == "--set machines.0={}"
    assert origins.overridden(("machines", 0, "cpu"))
    assert not origins.overridden(("machines",))
    assert origins.where(("name",)) == "x.yaml:1"


def test_a_mapping_created_by_an_override_has_its_origin() -> None:
    origins = DataOrigins({(): "x.yaml:1"})
    apply_overrides({}, ["benchmark.calls=1"], origins)
    assert origins.where(("benchmark", "name")) == "--set benchmark.calls=1"


@given(st.text(), st.text())
def test_any_text_is_applied_or_refused(key: str, value: str) -> None:
    for override in (key, f"{key}={value}", f"name={value}", f"machines.{key}={value}"):
        place = "--set "
        try:
            changed(override)
        except ConfigError as error:
            place = error.where
        assert place.startswith("--set ")
