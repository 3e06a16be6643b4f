# SPDX-License-Identifier: GPL-2.0-only
"""How the catalogue's YAML files become typed, read-only values."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict

# libyaml parses some ten times faster; a PyYAML built without it has only the pure Python loader.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Fact(BaseModel):
    """A catalogue entry: read-only, with no key that the code does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


FactT = TypeVar("FactT", bound=Fact)


def read(name: str, package: str = __package__) -> dict[str, object]:
    """Return the mapping in a catalogue file: ``name`` is its path below ``package``."""
    loader = _Loader(files(package).joinpath(name).read_bytes())
    try:
        content = loader.get_single_data()
    finally:
        loader.dispose()
    if not isinstance(content, dict):
        raise TypeError(f"catalogue file {name} holds no mapping")
    return content


def named(model: type[FactT], entries: object) -> Mapping[str, FactT]:
    """Return ``entries`` (a mapping of name to fields) as models by name, in the file's order."""
    if not isinstance(entries, dict):
        raise TypeError(f"{model.__name__} entries are no mapping")
    return MappingProxyType({name: model.model_validate({"name": name, **fields}) for name, fields in entries.items()})
