# SPDX-License-Identifier: GPL-2.0-only
"""What commands print for programs: models whose text and JSON schema are made from one description.

To let a command print JSON:

1. Describe it as a subclass of ``Printed``: a docstring for the class and for each key, keys in the order of printing.
2. Make the model from what was computed, and print its ``json_text()``; of several, ``json_texts()``.
3. Give the command ``_schema: Annotated[bool, options.schema(lambda: MyModel)] = False``; the model may also be
   ``list[MyModel]`` or a union.

``tests/unit/cli/test_schemas.py`` finds the command by its option, and tests validate each output that they see.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, PlainSerializer, TypeAdapter

from orchestrator.results.contract import Record

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


IsoTime = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str, when_used="json")]
"""A time, printed as ISO 8601 with its difference to UTC: ``+00:00``."""


class Printed(BaseModel):
    """A part of what a command prints: frozen, with each key always present."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def json_text(self, indent: int = 2) -> str:
        """JSON, ASCII only, without a newline at the end."""
        return json.dumps(self.model_dump(mode="json"), indent=indent)


def json_texts(parts: Iterable[Printed], indent: int = 2) -> str:
    """A JSON list of models, as ``json_text()``."""
    return json.dumps([part.model_dump(mode="json") for part in parts], indent=indent)


def json_schema(of: Any) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a model, or of a list or union of models.

    The schema of a record is that of what may be read: its serializer leaves out keys.
    """
    kinds = (of, *(kind for part in get_args(of) for kind in (part, *get_args(part))))
    reads = any(isinstance(kind, type) and issubclass(kind, Record) for kind in kinds)
    return {"$schema": _DRAFT, **TypeAdapter(of).json_schema(mode="validation" if reads else "serialization")}
