# SPDX-License-Identifier: GPL-2.0-only
"""Does whatever stands in any field of an experiment file stay in its place, or is refused with file, line and key?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile_texts import hostile_texts
from hypothesis import example, given
from hypothesis import strategies as st
from loaded_tables import only_table

from orchestrator.benchmarks.calls.table import CallsTable
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import ConfigError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.guest.machine import Machine, Wiring, qemu_command

ORDINARY: dict[str, Any] = {
    "name": "small",
    "description": "one line",
    "clock": "instructions",
    "kernels": ["debian-686", "lab-i386-up"],
    "kernel_for": {"kprobe": "lab-i386-up"},
    "machines": [{"cpu": "pentium4", "smp": 1, "memory": "256M"}, {"cpu": "athlon", "memory": "1G"}],
    "probes": ["none", "kprobe"],
    "handlers": ["noop"],
    "points": ["do_nanosleep+0x5"],
    "profile": ["symbols"],
    "channel": "framed",
    "time_limit": 60,
    "benchmark": {
        "name": "syscall",
        "call": "open",
        "arguments": ["/nowhere", 0, {"buffer": 10}],
        "expect": "ENOENT",
        "entry": "int80",
        "calls": 1000,
        "repeats": 4,
        "hits": 1,
    },
}

CPU_NAMES = frozenset({"qemu64", "pentium", "max"})
"""Models of QEMU's own."""


def places(part: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all values, of single ones and of those that hold others."""
    if path:
        yield path
    if isinstance(part, dict):
        for key, value in part.items():
            yield from places(value, (*path, key))
    if isinstance(part, list):
        for index, value in enumerate(part):
            yield from places(value, (*path, index))


def value_at(part: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        part = part[step]
    return part


def replaced(part: Any, path: tuple[str | int, ...], value: object) -> Any:
    """A copy with another value at a path."""
    if not path:
        return value
    first, *rest = path
    if isinstance(part, dict):
        return {key: replaced(inner, tuple(rest), value) if key == first else inner for key, inner in part.items()}
    return [replaced(inner, tuple(rest), value) if n == first else inner for n, inner in enumerate(part)]


def renamed(part: Any, path: tuple[str | int, ...], name: str) -> Any:
    """A copy in which the key at a path has another name."""
    holder = value_at(ORDINARY, path[:-1])
    return replaced(part, path[:-1], {name if key == path[-1] else key: value for key, value in holder.items()})


PLACES = list(places(ORDINARY))
KEYS = [path for path in PLACES if isinstance(path[-1], str)]


@st.composite
def hostile_files(draw: st.DrawFn) -> tuple[tuple[str | int, ...], dict[str, Any]]:
    """A place, and an experiment with something hostile there: alone, or before or behind what is right."""
    path, text = draw(st.sampled_from(PLACES)), draw(hostile_texts)
    right = value_at(ORDINARY, path)
    if isinstance(right, str):
        text = draw(st.sampled_from([text, right + text, text + right]))
    return path, replaced(ORDINARY, path, text)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the experiment is: a folder with nothing else in it."""
    return tmp_path_factory.mktemp("hostile") / "x.yaml"


def loaded(file: Path, content: object) -> Experiment | None:
    """The experiment; None where it is refused, which must say where and how."""
    file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    try:
        return load_experiment(file, kinds(), (), lambda: CPU_NAMES)
    except ConfigError as error:
        check_refusal(error, rf"{re.escape(str(file))}:\d+")
        return None


def check_refusal(error: ConfigError, place: str) -> None:
    """It says where, and is safe to print."""
    assert any(re.match(place, line) for line in [error.where, *error.detail]), error
    assert all(line.isprintable() for line in [error.what, error.hint, error.where, *error.detail]), error


def check_boots(experiment: Experiment) -> None:
    """What reaches QEMU and the guest's kernel is of the catalogue, or of the shape that its place has."""
    table = only_table(experiment, CallsTable)
    assert set(table.all_kernels) <= set(kernels())
    for boot in plan(experiment).boots:
        machine = Machine(cpu(boot.cpu), Path("/k"), Path("/i"), boot.smp, boot.memory_mib)
        usual = Machine(cpu("pentium4"), Path("/k"), Path("/i"), boot.smp)
        command, expected = (qemu_command(one, Wiring(3, 4, Path("/c"))) for one in (machine, usual))
        assert len(command) == len(expected)
        changed = {expected[n - 1] for n, word in enumerate(command) if word != expected[n]}
        assert changed <= {"-cpu", "-m"}
        assert re.fullmatch(r"[1-9][0-9]{1,3}M", command[command.index("-m") + 1], re.ASCII)
        assert machine.cpu.name in {"pentium4", "athlon", *CPU_NAMES} or "," not in boot.cpu
    for point in table.points or ():
        assert (
            re.fullmatch(
                r"((program|[A-Za-z0-9_][A-Za-z0-9_.+-]*\.so[.0-9A-Za-z]*):([A-Za-z_][A-Za-z0-9_]*:)?)?"
                r"[A-Za-z_][A-Za-z0-9_.]*(\+0x[0-9a-f]+)?",
                point,
                re.ASCII,
            )
            or table.points == "executed"
        )


@given(hostile_files())
@example((("machines", 0, "memory"), replaced(ORDINARY, ("machines", 0, "memory"), "256M,slots=2,maxmem=9G")))
@example((("machines", 0, "cpu"), replaced(ORDINARY, ("machines", 0, "cpu"), "pentium4,+avx")))
@example((("points", 0), replaced(ORDINARY, ("points", 0), '"; panic("x"); "')))
@example((("kernels", 0), replaced(ORDINARY, ("kernels", 0), "./a\0b")))
def test_a_value_stays_in_its_place_or_is_refused(
    file: Path, drawn: tuple[tuple[str | int, ...], dict[str, Any]]
) -> None:
    path, content = drawn
    experiment = loaded(file, content)
    if experiment is None:
        return
    check_boots(experiment)
    # Nothing else than what was written there has changed.
    text = value_at(content, path)
    table = only_table(experiment, CallsTable)
    if path[:2] == ("benchmark", "arguments"):
        assert table.benchmark.arguments[int(path[2])] == text
        assert text.isprintable()
    elif path != ("description",):
        assert re.fullmatch(r"[A-Za-z0-9_.+-]+", text, re.ASCII), (path, text)


@given(st.sampled_from(KEYS), hostile_texts)
def test_a_key_is_one_of_the_schema_s_or_is_refused(file: Path, path: tuple[str | int, ...], name: str) -> None:
    keys = set(value_at(ORDINARY, path[:-1]))
    experiment = loaded(file, renamed(ORDINARY, path, name))
    assert experiment is None or name in keys or re.fullmatch(r"[a-z-]+", name), (path, name)


@given(st.sampled_from(PLACES), hostile_texts)
def test_an_override_is_a_value_or_refused(file: Path, path: tuple[str | int, ...], text: str) -> None:
    file.write_text(yaml.safe_dump(ORDINARY), encoding="utf-8")
    override = f"{'.'.join(map(str, path))}={text}"
    try:
        experiment = load_experiment(file, kinds(), [override], lambda: CPU_NAMES)
    except ConfigError as error:
        check_refusal(error, rf"--set |{re.escape(str(file))}:\d+")
    else:
        check_boots(experiment)
