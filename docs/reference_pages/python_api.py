# SPDX-License-Identifier: GPL-2.0-only
"""Classes, methods and fields of Python as sections and tables."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.attribute_docs import attribute_docs

from .markdown import WIDTH, Undescribed, described, fenced, first_sentence, inline, link, prose, table


def methods_table(head: Sequence[str], methods: Mapping[str, Callable[..., Any]]) -> str:
    """A row for each method, by its heading, with the first sentence of its docstring."""
    rows = [(link(name), inline(first_sentence(described(method, name)))) for name, method in methods.items()]
    return table(head, rows)


def method_section(call: str, method: Callable[..., Any]) -> Iterator[str]:
    """How a method is called, and its whole docstring. ``call`` is what stands before the bracket."""
    yield fenced(signature(call, method), "python")
    yield prose(described(method, call))


def signature(call: str, method: Callable[..., Any]) -> str:
    """How a method is called, with types and defaults: in a line, or with a line for each parameter."""
    signature = inspect.signature(method)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    words: list[str] = []
    for parameter in parameters:
        if (
            parameter.kind is parameter.KEYWORD_ONLY
            and "*" not in words
            and not any(word.startswith("*") for word in words)
        ):
            words.append("*")
        words.append(_parameter(parameter))
    gives = str(signature.return_annotation)
    opening, ending = call, "" if gives == "None" else f" -> {gives}"
    if inspect.isgeneratorfunction(inspect.unwrap(method)):
        yielded = gives.removeprefix("Iterator[").removesuffix("]")
        opening, ending = f"with {call}", "" if yielded == "None" else f" as {yielded}"
    line = f"{opening}({', '.join(words)}){ending}"
    if len(line) < WIDTH - 10:
        return line
    return "\n".join([f"{opening}(", *(f"    {word}," for word in words), f"){ending}"])


def fields_table(model: type, properties: Sequence[str] = ()) -> str:
    """The fields of a class that are described, and properties of it."""
    docs = attribute_docs(model)
    rows = []
    for field in dataclasses.fields(model):
        if field.name not in docs:
            raise Undescribed(f"{model.__name__}.{field.name} has no docstring")
        rows.append((f"`{field.name}`", f"`{field.type}`", inline(docs[field.name])))
    return table(("attribute", "type", "what"), [*rows, *property_rows(model, properties)])


def property_rows(model: type, names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Rows of properties, as ``fields_table`` has them."""
    pairs = [(name, inspect.getattr_static(model, name).fget) for name in names]
    return [
        (f"`{name}`", f"`{inspect.signature(method).return_annotation}`", inline(described(method, name)))
        for name, method in pairs
    ]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = (
        "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    )
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter)}"
    return f"{stars}{parameter.name}: {parameter.annotation}{default}"


def _default(parameter: inspect.Parameter) -> str:
    if isinstance(parameter.default, Mapping):
        return "{}"
    return f"0o{parameter.default:o}" if parameter.name == "mode" else repr(parameter.default)
