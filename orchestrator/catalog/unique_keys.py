# SPDX-License-Identifier: GPL-2.0-only
"""YAML of users as plain data. PyYAML keeps the last of two equal keys without a word; here they are an error."""

from __future__ import annotations

from typing import Any

import yaml


class DuplicateKeyError(yaml.MarkedYAMLError):
    """A mapping has a key twice."""


class _UniqueKeyLoader(yaml.SafeLoader):
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in lines:
                    problem = f"duplicate key {key.value!r}, first in line {lines[key.value]}"
                    raise DuplicateKeyError(problem=problem, problem_mark=key.start_mark)
                lines[key.value] = key.start_mark.line + 1
        super().flatten_mapping(node)


def load_unique(content: str | bytes) -> Any:
    """The data of one YAML document, as ``yaml.safe_load`` gives it. Raises yaml.YAMLError, and for a duplicate key."""
    return yaml.load(content, _UniqueKeyLoader)  # noqa: S506  # a SafeLoader
