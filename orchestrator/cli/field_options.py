# SPDX-License-Identifier: GPL-2.0-only
"""Options of a command that are the fields of a dataclass, and of a model that the dataclass chooses values for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import typer
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from orchestrator.experiment.fields import ValidationContext, Whole
from orchestrator.experiment.problems import problems_of
from orchestrator.guest.qemu_facts import qemu_cpu_names
from orchestrator.program import PROGRAM

R = TypeVar("R")
Typed = tuple[Any, Any]
"""A parameter's annotation and its default."""


@dataclass(frozen=True)
class OptionsOf:
    """Makes a dataclass's field, a mapping of names to values, the options of a model's ``arguments``.

    ``option`` has the names of options that are called otherwise, ``completion`` the shell's completion of values, and
    ``note`` what only the command line has to say. Arguments in ``unchecked`` are checked with the others only.
    """

    arguments: Mapping[str, FieldInfo]
    summaries: Callable[[], Mapping[str, str]]
    option: Mapping[str, str] = field(default_factory=dict)
    completion: Mapping[str, Callable[[str], list[str]]] = field(default_factory=dict)
    note: Mapping[str, str] = field(default_factory=dict)
    unchecked: Container[str] = ()

    def parameters(self) -> Mapping[str, Typed]:
        """The command's parameters, by the arguments' names."""
        summaries = self.summaries()
        return {name: self._typed(name, described, summaries[name]) for name, described in self.arguments.items()}

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that differ from their defaults, as the model takes them."""
        plain = {name: value.value if isinstance(value, StrEnum) else value for name, value in values.items()}
        usual = {name: self.arguments[name].default or None for name in plain}
        return {name: value for name, value in plain.items() if value not in (None, False, usual[name])}

    def _typed(self, name: str, described: FieldInfo, summary: str) -> Typed:
        kind: Any = described.annotation
        default = described.default or None
        text = summary.replace("./lab", PROGRAM).replace("``", "")
        text += f" {self.note[name]}" if name in self.note else ""
        words = [self.option.get(name, f"--{name.replace('_', '-')}")]
        options: dict[str, Any] = {"autocompletion": self.completion.get(name)}
        if kind is bool:
            return Annotated[bool, typer.Option(*words, help=text)], False
        if get_origin(kind) is tuple:
            several, metavar = (list[Path], "PATH") if Path in get_args(kind) else (list[str], "REGEX")
            help_text = f"{text} May be repeated."
            return Annotated[cast(Any, several) | None, typer.Option(*words, metavar=metavar, help=help_text)], None
        if get_origin(kind) is Literal:
            words_by_name = {word.upper(): word for word in get_args(kind)}
            choices: Any = cast(Any, StrEnum)("Choices", words_by_name)
            return Annotated[choices, typer.Option(*words, help=text)], choices(default)
        if kind is int:
            (whole,) = (check for datum in described.metadata if isinstance(check := datum.func, Whole))
            return Annotated[int, typer.Option(*words, min=whole.low, max=whole.high, help=text)], default
        if name not in self.unchecked:
            options["parser"] = functools.partial(_checked, described)
        if default is not None:
            options["metavar"] = "SIZE"
        return Annotated[str | None, typer.Option(*words, help=text, **options)], default


def _checked(described: FieldInfo, text: str) -> Any:
    checked: Any = described.annotation
    if described.metadata:
        checked = Annotated[checked, *described.metadata]
    adapter: TypeAdapter[Any] = TypeAdapter(checked)
    try:
        return adapter.validate_python(text, context=ValidationContext(qemu_cpu_names))
    except ValidationError as error:
        raise typer.BadParameter("; ".join(problem.sentence for problem in problems_of(error, str))) from None


def from_fields(group: type[Any], without: Container[str] = ()) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a command whose parameter ``choice`` is of the dataclass ``group`` take its fields as options."""

    def decorated(command: Callable[..., R]) -> Callable[..., R]:
        chosen = _chosen(group, without)
        places = inspect.signature(command).parameters
        hints = get_type_hints(command, include_extras=True)

        @functools.wraps(command)
        def called(**values: Any) -> R:
            choice = {name: part.value(values) for name, part in chosen.items()}
            return command(choice=group(**choice), **values)

        taken = []
        for name, place in places.items():
            several = {name: (hints[name], place.default)}
            if name == "choice":
                several = {name: typed for part in chosen.values() for name, typed in part.parameters.items()}
            taken += [
                place.replace(name=name, annotation=annotation, default=default)
                for name, (annotation, default) in several.items()
            ]
        vars(called)["__signature__"] = inspect.Signature(taken)
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
        return called

    return decorated


@dataclass(frozen=True)
class _Chosen:
    """A field of the dataclass: the command's parameters that it is made of."""

    parameters: Mapping[str, Typed]
    options: OptionsOf | None = None

    def value(self, values: dict[str, Any]) -> Any:
        """The field's value, which is removed from the ``values`` of the command's parameters."""
        taken = {name: values.pop(name) for name in self.parameters}
        return taken.popitem()[1] if self.options is None else self.options.given(taken)


def _chosen(group: type[Any], without: Container[str]) -> Mapping[str, _Chosen]:
    hints = get_type_hints(group, include_extras=True)
    chosen = {}
    for each in fields(group):
        options = next((part for part in get_args(hints[each.name]) if isinstance(part, OptionsOf)), None)
        typed = {each.name: (hints[each.name], each.default)} if options is None else options.parameters()
        parameters = {name: kind for name, kind in typed.items() if name not in without}
        if parameters:
            chosen[each.name] = _Chosen(parameters, options)
    return chosen
