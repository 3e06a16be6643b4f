# SPDX-License-Identifier: GPL-2.0-only
"""What is wrong with malformed YAML, in words for its writer: ``malformed.yaml``, by the parser's words."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import yaml

from orchestrator.catalog.data import Fact, read


class Mistake(Fact):
    """What the parser's ``problem`` begins or ends with, what that means, and what to do."""

    problem: str
    what: str
    hint: str
    begins: bool = False


@functools.cache
def _mistakes() -> Sequence[Mistake]:
    entries = read("malformed.yaml", __package__)["mistakes"]
    assert isinstance(entries, list)
    return [Mistake.model_validate(entry) for entry in entries]


def explained(error: yaml.MarkedYAMLError) -> tuple[str, int | None, str]:
    """A sentence, the line that it is about, and a hint; the parser's own words where they are not known."""
    problem = error.problem or ""
    mark = error.problem_mark or error.context_mark
    found = next((one for one in _mistakes() if problem.startswith(one.problem) or problem.endswith(one.problem)), None)
    if found is None:
        what, hint = " ".join(word for word in (error.context, problem) if word), ""
    else:
        what, hint = found.what, found.hint
        mark = error.context_mark if found.begins and error.context_mark is not None else mark
    return f"malformed YAML: {what}", None if mark is None else mark.line + 1, hint
