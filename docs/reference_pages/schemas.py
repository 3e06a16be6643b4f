# SPDX-License-Identifier: GPL-2.0-only
"""Models of files as tables: their JSON schema for the types, their docstrings for the words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from orchestrator.attribute_docs import attribute_docs
from orchestrator.results.printed_json import Printed

from .markdown import Undescribed, anchor, described, inline, listed, prose, table

_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "boolean"}


_Titles = Mapping[str, str]
_Row = tuple[str, ...]
_RowOf = Callable[[type[BaseModel], str, Mapping[str, Any], str, _Titles], _Row]


def sections_to_write(models: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    """A heading, the docstring and a table of keys for each model, by title: of a file that users write."""

    def row(model: type[BaseModel], key: str, schema: Mapping[str, Any], text: str, titles: _Titles) -> _Row:
        return f"`{key}`", _type(schema, titles), _needed(key, schema, model.model_json_schema()), inline(text)

    return _sections(models, ("key", "type", "default", "what"), row)


def sections_to_read(models: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    """The same of JSON that users read: nothing has a default, and what is missing is null."""

    def row(_: type[BaseModel], key: str, schema: Mapping[str, Any], text: str, titles: _Titles) -> _Row:
        return f"`{key}`", _type(schema, titles) + _or_null(schema), inline(_NONE.sub("null", text))

    return _sections(models, ("key", "type", "what"), row)


def _sections(models: Mapping[str, type[BaseModel]], head: _Row, row: _RowOf) -> Iterator[str]:
    titles = {model.__name__: title for title, model in models.items()}
    for title, model in models.items():
        yield f"## {title}"
        yield prose(described(model, model.__name__))
        yield table(head, [row(model, key, schema, text, titles) for key, schema, text in _keys(model)])


_NONE = re.compile(r"\bNone\b")


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Each key with its schema and its docstring."""
    docs = attribute_docs(model)
    # What is printed has computed keys, too.
    whole = model.model_json_schema(mode="serialization" if issubclass(model, Printed) else "validation")
    for key, schema in whole["properties"].items():
        text = docs.get(key) or schema.get("description")  # of a computed key
        if text is None:
            raise Undescribed(f"{model.__name__}.{key} has no docstring")
        yield key, schema, text


def _or_null(schema: Mapping[str, Any]) -> str:
    return " or null" if any(choice.get("type") == "null" for choice in schema.get("anyOf", ())) else ""


def _needed(key: str, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    if key in whole.get("required", ()):
        return "required"
    default = schema.get("default")
    return "none" if default in (None, [], {}) else f"`{default}`"


def _type(schema: Mapping[str, Any], titles: _Titles) -> str:
    """A type in words, without null."""
    if "$ref" in schema:
        title = titles[schema["$ref"].rpartition("/")[2]]
        return f"[{title}](#{anchor(title)})"
    if "anyOf" in schema:
        return " or ".join(_type(choice, titles) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return listed(schema["enum"])
    if schema["type"] == "array":
        return _list(schema, titles)
    if schema["type"] == "object":
        # Keys that a pattern describes have the values below it.
        (values,) = schema.get("patternProperties", {}).values() or [schema["additionalProperties"]]
        return f"mapping to {_plural(_type(values, titles))}"
    return _TYPES[schema["type"]]


def _list(schema: Mapping[str, Any], titles: _Titles) -> str:
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])} numbers"
    return f"list of {_plural(_type(schema['items'], titles))}"


def _plural(words: str) -> str:
    plural: Sequence[str] = ("text", "whole number", "number")
    return f"{words}s" if words in plural else words
