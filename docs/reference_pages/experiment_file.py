# SPDX-License-Identifier: GPL-2.0-only
"""The page of the experiment file: every key, what it may be, its default, and which tables have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel

from orchestrator.attribute_docs import attribute_docs
from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment import experiment
from orchestrator.experiment.experiment import Heading
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.experiment.table import BenchmarkChoice
from orchestrator.experiment.table_kind import TableKind

from .allowed_values import allowed_values
from .defaults import NO_DEFAULT, resolved_default, static_default
from .markdown import Undescribed, anchor, fenced, filled, first_sentence, inline, listed, prose, table
from .markdown import page as whole_page

_ORDER = (
    *(
        "benchmark",
        "kernels",
        "machines",
        "probes",
        "points",
        "handlers",
        "clock",
        "profile",
        "reference",
        "parameters",
        "options",
        "kernel_for",
    ),
    *("image", "channel", "kernel_modules", "time_limit"),
)
Said = Mapping[str, Sequence[str]]
"""What is said of a key, as Markdown, by the kinds that it is said of; of several texts each is said of some."""


@dataclass(frozen=True)
class _Key:
    """A key as the page has it. ``heading`` is unique on the page."""

    name: str
    heading: str
    text: Said
    allowed: Said
    default: Said
    where: str = ""

    def section(self) -> Iterator[str]:
        yield f"### {self.heading}"
        yield from _paragraphs(self.text)
        facts = [*_fact("Allowed", self.allowed), *_fact("Default", self.default)]
        if self.where:
            facts.append(filled(f"**In tables of:** {self.where}.", first="- "))
        if self.heading in _MORE:
            facts.append(filled(f"**More:** {_MORE[self.heading]}.", first="- "))
        yield "\n".join(facts)

    def row(self) -> tuple[str, str, str]:
        first = next(iter(self.text))
        return f"[`{self.name}`](#{anchor(self.heading)})", inline(first_sentence(first)), self.where


def _paragraphs(text: Said) -> Iterator[str]:
    if len(text) == 1:
        yield prose(next(iter(text)))
        return
    for said, of in text.items():
        yield prose(f"In tables of {listed(of)}: {said[0].lower()}{said[1:]}")


def _fact(title: str, said: Said) -> Iterator[str]:
    if len(said) == 1:
        yield filled(f"**{title}:** {next(iter(said))}", first="- ")
        return
    yield f"- **{title}:**"
    for text, of in said.items():
        yield filled(f"{listed(of)}: {text[0].lower()}{text[1:]}", first="  - ")


def page() -> str:
    """All keys of a file, of its tables, of machines and of benchmarks."""
    parts = [
        filled(
            """An experiment is a YAML file. It has the keys of the file, and either those of one table, or `tables`,
            each with the keys of a table. [Experiments](../experiments.md) explains them by examples; `./lab run
            FILE --dry-run` checks a file and starts nothing. Paths are relative to the file."""
        ),
        fenced(_EXAMPLE, "yaml"),
        *_group("Keys of the file", "", [*_keys(Heading, "file"), _tables_key()]),
        *_group("Keys of a table", _KINDS, list(_table_keys())),
        *_group("Keys of a machine", "", list(_keys(MachineSpec, "machine"))),
        *_group("Keys of a benchmark", _BENCHMARK, list(_keys(BenchmarkChoice, "benchmark"))),
    ]
    for kind in kinds():
        opening = f"The keys of {listed(kind.benchmarks())}, beside `name`:"
        parts += _group(f"Benchmarks of {kind.name}", opening, list(_benchmark_keys(kind)))
    return whole_page("The experiment file", [*parts, *_overrides()])


_KINDS = "The benchmark decides the kind of a table; `./lab list benchmarks` has the kinds."
_BENCHMARK = "Further keys depend on the kind, and are below."


def _group(title: str, opening: str, keys: Sequence[_Key]) -> list[str]:
    """A heading, a table of keys, and their sections."""
    head = ("key", "what", "in tables of") if any(key.where for key in keys) else ("key", "what")
    rows = [key.row()[: len(head)] for key in keys]
    opening_part = [filled(opening)] if opening else []
    return [f"## {title}", *opening_part, table(head, rows), *(part for key in keys for part in key.section())]


_EXAMPLE = """\
name: two-handlers
kernels: [lab-i386-up, debian-686]
machines: [{cpu: pentium4, memory: 256M}]
probes: [none, kprobe, djprobe]
benchmark: {name: syscall, call: getppid, calls: 1000}
tables:
  noop: {}
  record: {handlers: [record]}
"""


_MORE: Mapping[str, str] = {
    "file: charts": "[charts](../reports.md#charts)",
    "file: budgets": "[budgets](../experiments.md#budgets), "
    "[how much may a cell regress?](../comparing.md#how-much-may-a-cell-regress)",
    "file: tables": "[several tables](../experiments.md#several-tables)",
    "benchmark": "[benchmarks](../experiments.md#benchmarks)",
    "kernels": "[kernels](../kernels.md)",
    "parameters": "[parameters and options](../kernels.md#parameters-and-options)",
    "options": "[parameters and options](../kernels.md#parameters-and-options)",
    "probes": "[probes](../probes.md), [rows](../experiments.md#rows), "
    "[modules of your own](../experiments.md#modules-of-your-own)",
    "points": "[points](../experiments.md#points), [probes in a program](../probes.md#probes-in-a-program), "
    "[in a shared library](../probes.md#probes-in-a-shared-library)",
    "profile": "[profiles](../profiles.md)",
    "image": "[images](../images.md)",
    "channel": "[a Debian in the guest](../experiments.md#a-debian-in-the-guest)",
    "kernel_modules": "[points in the kernel's own modules](../experiments.md#points-in-the-kernels-own-modules)",
    "time_limit": "[a slow host](../faults.md#a-slow-host)",
    "machine: cpu": "[adding a CPU](../adding-a-cpu.md)",
    "calls: expect": "[calls](../experiments.md#calls)",
    "calls: file": "[calls](../experiments.md#calls)",
    "calls: run": "[programs by system call](../programs.md)",
    "calls: libraries": "[probes in a shared library](../probes.md#probes-in-a-shared-library)",
    "system: aa_boots": "[whole systems](../experiments.md#whole-systems)",
}
"""Where pages that are written by hand have more of a key, by its heading."""


def _tables_key() -> _Key:
    text = attribute_docs(experiment)["TABLES"]
    return _Key("tables", "file: tables", _one(text), _one("A mapping of names to tables."), _one("One table."))


def _table_keys() -> Iterator[_Key]:
    """Each key once, with what each kind says of it."""
    for name in _ORDER:
        having = [kind for kind in kinds() if name in kind.table.model_fields]
        texts: dict[str, list[str]] = {}
        allowed: dict[str, list[str]] = {}
        default: dict[str, list[str]] = {}
        for kind in having:
            field = kind.table.model_fields[name]
            texts.setdefault(_doc(kind.table, name), []).append(kind.name)
            allowed.setdefault(allowed_values(field), []).append(kind.name)
            default.setdefault(static_default(field), []).append(kind.name)
        where = "all kinds" if len(having) == len(list(kinds())) else listed([kind.name for kind in having])
        yield _Key(name, name, texts, allowed, default, where)
    unordered = {key for kind in kinds() for key in kind.table.model_fields} - set(_ORDER)
    assert not unordered, f"where on the page shall {unordered} be?"


def _benchmark_keys(kind: TableKind) -> Iterator[_Key]:
    model = kind.table.model_fields["benchmark"].annotation
    assert isinstance(model, type)
    for key in _keys(model, kind.name):
        if key.name not in BenchmarkChoice.model_fields:
            resolved = key.default == _one(NO_DEFAULT)
            yield replace(key, default=_one(resolved_default(kind, key.name))) if resolved else key


def _keys(model: type[BaseModel], of: str) -> Iterator[_Key]:
    for name, field in model.model_fields.items():
        yield _Key(
            name, f"{of}: {name}", _one(_doc(model, name)), _one(allowed_values(field)), _one(static_default(field))
        )


def _doc(model: type[BaseModel], name: str) -> str:
    docs = attribute_docs(model)
    if name not in docs:
        raise Undescribed(f"{model.__name__}.{name} has no docstring")
    return docs[name]


def _one(text: str) -> Said:
    return {text: ()}


# --- the command line -----------------------------------------------------------------


def _overrides() -> Iterator[str]:
    yield "## On the command line"
    yield filled(
        """`--set KEY=VALUE` replaces a value: KEY is a path of keys, and of numbers for entries of lists, from 0;
        VALUE is YAML. A key that is not there is made. Paths in a value are relative to the current folder. `--set`
        of a default beside `tables` reaches the tables that have no value of their own."""
    )
    commands = (
        "run my.yaml --set benchmark.calls=1000 --set machines.0.cpu=athlon64",
        "run my.yaml --set 'kernels=[debian-686, lab-i386-up]'",
        "run two.yaml --set tables.record.time_limit=600 --dry-run",
    )
    yield fenced("\n".join(f"./lab {command}" for command in commands), "sh")
    yield filled(
        """`diff --config`, `compare --config`, `bisect` and `nightly` have the same option; [commands](commands.md)
        has all options."""
    )
