# SPDX-License-Identifier: GPL-2.0-only
"""Sections of BPF programs: what libbpf attaches their programs to by itself, and the nearest one to a wrong word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import CatalogEntry, named, nearest, read


class SectionWord(CatalogEntry):
    """A section's word before the slash, a row of ``bpf_sections.yaml``, which explains the fields."""

    name: str
    kind: str | None = None
    at: Literal["function", "system call", "event", "tracepoint", "hook", "file", "name"] | None = None
    runs_on: str = ""
    sleep: bool = False


@lru_cache(maxsize=1)
def section_words() -> Mapping[str, SectionWord]:
    """The words by name."""
    return named(SectionWord, read("bpf_sections.yaml"))


@dataclass(frozen=True)
class Section:
    """A program's section: its ``word``, None for one that libbpf has not, and the ``target`` behind the slash."""

    word: SectionWord | None
    target: str

    @classmethod
    def of(cls, text: str) -> Section:
        """As ``sec_def_matches()`` of libbpf divides it: whole words come first, a ``?`` (no autoload) is left out."""
        name = text.removeprefix("?")
        whole = section_words().get(name)
        if whole is not None:
            return cls(whole, "")
        first, slash, target = name.partition("/")
        word = section_words().get(first.removesuffix(".s"))
        is_known = word is not None and (word.sleep or not first.endswith(".s")) and (word.at is not None or not slash)
        return cls(word if is_known else None, target)


def nearest_section(text: str) -> str | None:
    """The section that libbpf has with the most similar word, and the same text behind it; None if none is similar."""
    name = text.removeprefix("?")
    first, slash, target = name.partition("/")
    plain, sleepable, _ = first.partition(".s") if first.endswith(".s") else (first, "", "")
    takers = [word for word in section_words().values() if word.at is not None]
    below = [word for word in section_words() if word.startswith(f"{first}/")]
    if slash and below:
        return nearest(name, below)
    if slash:
        exact = next((word.name for word in takers if word.name == plain), None)
        guess = exact or nearest(plain, [word.name for word in takers if word.sleep or not sleepable])
        if guess is not None:
            return f"{guess}{sleepable if section_words()[guess].sleep else ''}/{target}"
    whole = [word.name for word in section_words().values() if slash == "" or word.at is None]
    return nearest(name, whole) or nearest(first.partition("_")[0], whole)
