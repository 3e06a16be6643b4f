# SPDX-License-Identifier: GPL-2.0-only
"""What may a key of an experiment file be? Its validators say it, else its type."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.fields import MAX_ENTRIES, OneOf, Whole, entries
from orchestrator.experiment.guest_spec import MachineSpec

from .markdown import described, first_sentence, inline, listed

_MACHINE = "a mapping with the [keys of a machine](#keys-of-a-machine)"
_BENCHMARK = "a mapping with the [keys of a benchmark](#keys-of-a-benchmark)"
_TYPES: Mapping[Any, str] = {
    bool: "`true` or `false`.",
    MachineSpec: _MACHINE,
    **{kind.table.model_fields["benchmark"].annotation: _BENCHMARK for kind in kinds()},
}


def allowed_values(field: FieldInfo) -> str:
    """What a key may be, as Markdown: from its validators, else from its type."""
    return _sentence(_described_type(field.annotation, field.metadata))


def _described_type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
    checks = [validator.func for validator in metadata if isinstance(validator, BeforeValidator)]
    inner = get_args(annotation)
    known = [said for said in (_by_check(check, inner) for check in checks) if said is not None]
    if known:
        return known[0]
    said = [inline(first_sentence(described(check, str(check)))) for check in checks if check.__doc__]
    if said:
        is_list = get_origin(annotation) is tuple and get_origin(inner[0]) is Annotated
        return f"{said[-1]} Each: {_item(inner[0])}" if is_list else said[-1]
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return _described_type(next(choice for choice in inner if choice is not type(None)))
    return _TYPES[annotation]


def _by_check(check: object, inner: Sequence[Any]) -> str | None:
    """What a check that knows its values allows; None for one that has but a docstring."""
    if isinstance(check, OneOf):
        return listed(check.choices())
    if isinstance(check, Whole):
        return f"a whole number, {_number(check.low)} to {_number(check.high)}"
    if check is entries:
        item = _item(inner[0])
        among = f" of {item}" if item.startswith("`") and "," in item else f"; each {item}"
        return f"a list of 1 to {MAX_ENTRIES} different entries{among}"
    return None


def _item(annotation: Any) -> str:
    text = _described_type(annotation)
    return text[0].lower() + text[1:]


def _number(number: int) -> str:
    """A number as people read it: 1 000 000."""
    return f"{number:,}".replace(",", " ") if number < 2**31 else str(number)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
