# SPDX-License-Identifier: GPL-2.0-only
"""What each kind of probe can do by List 15 of the djprobe document, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import Fact, read

SHOWN_FOR = ("kprobe", "jprobe", "djprobe")
"""The list's columns."""


class Grant(Fact):
    """What the document says of one probe's ability, and how a guest shows it: by hits, or by a refusal.

    Where it grants nothing and hits are counted, a hit is one in which the ability was seen not to be there.
    """

    int3: int | None
    grants: bool
    shown: Literal["hits", "refusal"]
    note: str | None = None


class Ability(Fact):
    """One thing that probes may be able to do, in one of the list's rows."""

    row: str
    title: str
    probes: dict[str, Grant]


class ListRow(Fact):
    """A row of the list, in the document's words."""

    title: str
    published: dict[str, str]


class AbilityList(Fact):
    """The whole list."""

    rows: dict[str, ListRow]
    footnote: str
    abilities: dict[str, Ability]


@lru_cache(maxsize=1)
def ability_list() -> AbilityList:
    """Return List 15."""
    return AbilityList.model_validate(read("capabilities.yaml", __package__))


@lru_cache(maxsize=1)
def ability_names() -> Mapping[str, tuple[str, str]]:
    """Return the probe and the ability of each name that an experiment may say: ``djprobe.pre-exec``."""
    abilities = ability_list().abilities
    return {
        f"{probe}.{name}": (probe, name)
        for probe in SHOWN_FOR
        for name, ability in abilities.items()
        if probe in ability.probes
    }
