# SPDX-License-Identifier: GPL-2.0-only
"""Which programs does a Python file call by their names?

Found in the calls that start a process with a list of words, or with a name that such a list was assigned to.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

_OF_SUBPROCESS = {"run", "Popen", "check_call", "check_output"}
_OF_THE_LAB = {"run", "spawn"}
_CALL = re.compile(rf"\b({'|'.join(sorted(_OF_SUBPROCESS | _OF_THE_LAB))})\s*\(")
"""What each file has that starts a process: to parse the others takes a second."""

Assigned = Mapping[str, list[ast.expr]]


def called_programs(source: str) -> set[str]:
    """The first words of the commands, as far as they are literal."""
    if _CALL.search(source) is None:
        return set()
    tree = ast.parse(source)
    assigned: dict[str, list[ast.expr]] = defaultdict(list)
    calls = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    assigned[target.id].append(node.value)
        elif isinstance(node, ast.Call) and node.args and _starts_process(node):
            calls.append(node)
    return {word for call in calls for word in _first_words(call.args[0], assigned)}


def _starts_process(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="subprocess"), attr=name):
            return name in _OF_SUBPROCESS
        case ast.Name(id=name):
            return name in _OF_THE_LAB
    return False


def _first_words(command: ast.expr, assigned: Assigned) -> Iterator[str]:
    """The literal first word of a command; more than one where a name was assigned several."""
    match command:
        case ast.Constant(value=str(word)):
            yield word
        case ast.Name(id=name):
            other_exprs = {other: values for other, values in assigned.items() if other != name}
            for value in assigned.get(name, []):
                yield from _first_words(value, other_exprs)
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
            yield from _first_words(first.value if isinstance(first, ast.Starred) else first, assigned)
