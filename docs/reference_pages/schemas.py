# SPDX-License-Identifier: GPL-2.0-only
"""Models of files as tables: their JSON schema for the types, their docstrings for the words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from orchestrator.attribute_docs import attribute_docs
from orchestrator.results.printed_json import Printed

from .markdown import Undescribed, anchor, described, inline, listed, prose, table

_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "boolean"}


def sections_to_write(models: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    """A heading, the docstring and a table of keys for each model, by title: of a file that users write."""
    titles = {model.__name__: title for title, model in models.items()}
    for title, model in models.items():
        yield f"## {title}"
        yield prose(described(model, model.__name__))
        rows = [
            (f"`{name}`", _type(one, titles), _needed(name, one, model.model_json_schema()), inline(text))
            for name, one, text in _keys(model)
        ]
        yield table(("key", "type", "default", "what"), rows)


def sections_to_read(models: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    """The same of JSON that users read: nothing has a default, and what is missing is null."""
    titles = {model.__name__: title for title, model in models.items()}
    for title, model in models.items():
        yield f"## {title}"
        yield prose(described(model, model.__name__))
        rows = [
            (f"`{name}`", _type(one, titles) + _or_null(one), inline(_NONE.sub("null", text)))
            for name, one, text in _keys(model)
        ]
        yield table(("key", "type", "what"), rows)


_NONE = re.compile(r"\bNone\b")


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Each key with its schema and its docstring."""
    docs = attribute_docs(model)
    # What is printed has computed keys, too.
    schema = model.model_json_schema(mode="serialization" if issubclass(model, Printed) else "validation")
    for name, one in schema["properties"].items():
        text = docs.get(name) or one.get("description")  # of a computed key
        if text is None:
            raise Undescribed(f"{model.__name__}.{name} has no docstring")
        yield name, one, text


def _or_null(one: Mapping[str, Any]) -> str:
    return " or null" if any(choice.get("type") == "null" for choice in one.get("anyOf", ())) else ""


def _needed(name: str, one: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if name in schema.get("required", ()):
        return "required"
    default = one.get("default")
    return "none" if default in (None, [], {}) else f"`{default}`"


def _type(one: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """A type in words, without null."""
    if "$ref" in one:
        title = titles[one["$ref"].rpartition("/")[2]]
        return f"[{title}](#{anchor(title)})"
    if "anyOf" in one:
        return " or ".join(_type(choice, titles) for choice in one["anyOf"] if choice.get("type") != "null")
    if "const" in one:
        return f"`{one['const']}`"
    if "enum" in one:
        return listed(one["enum"])
    if one["type"] == "array":
        return _list(one, titles)
    if one["type"] == "object":
        # Keys that a pattern describes have the values below it.
        (values,) = one.get("patternProperties", {}).values() or [one["additionalProperties"]]
        return f"mapping to {_plural(_type(values, titles))}"
    return _TYPES[one["type"]]


def _list(one: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    if "prefixItems" in one:
        return f"list of {len(one['prefixItems'])} numbers"
    return f"list of {_plural(_type(one['items'], titles))}"


def _plural(words: str) -> str:
    plural: Sequence[str] = ("text", "whole number", "number")
    return f"{words}s" if words in plural else words
