# SPDX-License-Identifier: GPL-2.0-only
"""Docstrings of attributes: the string below ``name: Type`` in a class, or below ``NAME = value`` in a module."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from types import ModuleType


def attribute_docs(holder: type | ModuleType) -> Mapping[str, str]:
    """The docstrings by the attributes' names; of a class, the bases' too, which a class's own replace."""
    if isinstance(holder, ModuleType):
        return _docs(ast.parse(inspect.getsource(holder)).body)
    docs: dict[str, str] = {}
    for base in reversed(holder.__mro__):
        if base.__module__.startswith("orchestrator."):
            docs |= _own_docs(base)
    return docs


@cache
def _own_docs(holder: type) -> Mapping[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(holder))).body
    assert isinstance(definition, ast.ClassDef)
    return _docs(definition.body)


def _docs(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for above, below in pairwise(body):
        name = _name(above)
        if name is not None and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[name] = inspect.cleandoc(str(below.value.value))
    return found


def _name(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return None
