# SPDX-License-Identifier: GPL-2.0-only
"""YAML of users as plain data. PyYAML keeps the last of two equal keys without a word; here they are an error."""

from __future__ import annotations

from typing import Any

import yaml


class DuplicateKeyError(yaml.MarkedYAMLError):
    """A mapping has a key twice."""


class MappingKeys:
    """The keys of one mapping, and their lines."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}

    def add(self, key: str, line: int, mark: yaml.Mark | None = None) -> None:
        """Note a key and its line. Raises DuplicateKeyError, with the ``mark``, if the mapping has it."""
        if key in self._lines:
            problem = f"duplicate key {key!r}, first in line {self._lines[key]}"
            raise DuplicateKeyError(problem=problem, problem_mark=mark)
        self._lines[key] = line


class _UniqueKeyLoader(yaml.SafeLoader):
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        keys = MappingKeys()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                keys.add(key.value, key.start_mark.line + 1, key.start_mark)
        super().flatten_mapping(node)


def load_unique(content: str | bytes) -> Any:
    """The data of one YAML document, as ``yaml.safe_load`` gives it. Raises yaml.YAMLError, and for a duplicate key."""
    return yaml.load(content, _UniqueKeyLoader)  # noqa: S506  # a SafeLoader
