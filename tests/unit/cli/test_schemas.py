# SPDX-License-Identifier: GPL-2.0-only
"""Does each command that prints JSON say by which schema?

That its answers are so is checked wherever tests see one, with and without guests (``printed_json.check_printed``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from called_commands import refusal
from printed_json import printing_commands, schema_of

COMMANDS = list(map(" ".join, printing_commands()))


def objects(schema: Any) -> Iterator[Any]:
    """Each part of a schema that describes an object with fixed keys."""
    yield from (part for part in [schema, *schema.get("$defs", {}).values()] if "properties" in part)


def test_the_commands_that_print_json_are_found() -> None:
    assert {"run", "report", "compare", "cost", "list", "fleet status"} <= {*COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_prints_json_prints_its_schema(command: str) -> None:
    described = list(objects(schema_of(*command.split())))
    assert described
    # A key that nobody has described would not be noticed.
    assert not [part["title"] for part in described if part.get("additionalProperties") is not False]


def test_the_schema_of_a_nightly_run_is_that_of_its_webhook() -> None:
    assert {part["title"] for part in objects(schema_of("nightly"))} >= {"NightReport", "UnmeasuredNight"}


def test_the_schema_of_a_report_is_by_its_clock() -> None:
    assert schema_of("report", "--clock", "modelled")["title"] == "ModelledRun"
    assert schema_of("report")["title"] == "RunRecord"
    assert "leave out RUN" in refusal("report", "latest", "--schema")
    assert "leave out --claims" in refusal("report", "--claims", "--schema")
    assert "leave out --format csv" in refusal("report", "--schema", "--format", "csv")
