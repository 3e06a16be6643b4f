# SPDX-License-Identifier: GPL-2.0-only
"""Typed, read-only values from the catalogue's YAML files, and suggestions for misspelt names and paths."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict

from orchestrator.errors import ConfigError
from orchestrator.files import is_file
from orchestrator.paths import user_path

# libyaml parses some ten times faster; a PyYAML built without it has only the pure Python loader.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class CatalogEntry(BaseModel):
    """A catalogue entry: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


EntryT = TypeVar("EntryT", bound=CatalogEntry)


def read(name: str, package: str = __package__) -> dict[str, Any]:
    """The mapping in the catalogue file ``name``, a path below ``package``."""
    loader = _Loader(files(package).joinpath(name).read_bytes())
    try:
        content = loader.get_single_data()
    finally:
        loader.dispose()
    if not isinstance(content, dict):
        raise TypeError(f"catalogue file {name} holds no mapping")
    return content


def named(model: type[EntryT], entries: Mapping[str, Mapping[str, object]]) -> Mapping[str, EntryT]:
    """Models by name, in the file's order, from their fields by name."""
    return MappingProxyType({name: model.model_validate({"name": name, **fields}) for name, fields in entries.items()})


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of a catalogue's patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_SHORTEST_PART = 3  # characters of a word to look for inside names; shorter ones occur in most names

_MOST = 40  # a sentence lists so many choices; of more, such as kernels, only the first _SHOWN
_SHOWN = 12


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that ``word`` abbreviates, ignoring case, or misspells; None if none is similar."""
    by_folded = {choice.casefold(): choice for choice in choices}
    # Matching is quadratic in the word's length, and all names are much shorter than this limit.
    folded = word[:100].casefold()
    if len(folded) >= _SHORTEST_PART and folded not in by_folded:
        for fits in (str.startswith, str.__contains__):
            longer = [name for name in by_folded if fits(name, folded)]
            if longer:
                return by_folded[min(longer, key=len)]
    close = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``did you mean b?`` for the choice that ``word`` misspells; empty if none is similar."""
    guess = nearest(word, choices)
    return f"did you mean {guess}?" if guess else ""


def choices_sentence(word: str, choices: Iterable[str]) -> str:
    """``allowed: a, b; did you mean 'b'?`` for a word that is not among ``choices``; of many only the first."""
    allowed = list(choices)
    more = f", and {len(allowed) - _SHOWN} more" if len(allowed) > _MOST else ""
    sentence = f"allowed: {', '.join(allowed[:_SHOWN] if more else allowed)}{more}"
    guess = nearest(word, allowed)
    return f"{sentence}; did you mean '{guess}'?" if guess else sentence


def unknown(kind: str, word: str, choices: Iterable[str]) -> str:
    """The sentence ``unknown <kind> 'word'; allowed: ...; did you mean '...'?``."""
    return f"unknown {kind} '{word}'; {choices_sentence(word, choices)}"


def existing_file(name: str, suffixes: tuple[str, ...]) -> Path:
    """The file at a path. Raises ConfigError if there is none, with a similar one of these suffixes as the hint."""
    path = user_path(name)
    if not is_file(path):
        what = "this is a folder" if path.is_dir() else "this file does not exist"
        raise ConfigError(f"found {name!r}; {what}", hint=similar_file(path, suffixes))
    return path


def similar_file(path: Path, suffixes: tuple[str, ...]) -> str:
    """A hint at a file of a similar name with one of these suffixes, or at a missing folder; else empty."""
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist"
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if entry.name.endswith(suffixes) and entry != path)
    except OSError:
        return ""
    guess = nearest(path.name, names) or nearest(path.stem, names)
    return f"did you mean {path.parent / guess}?" if guess else ""
