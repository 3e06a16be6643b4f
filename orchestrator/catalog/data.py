# SPDX-License-Identifier: GPL-2.0-only
"""How the catalogue's YAML files become typed, read-only values; suggestions for misspelt words and paths."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict

from orchestrator.errors import ConfigError
from orchestrator.paths import user_path

# libyaml parses some ten times faster; a PyYAML built without it has only the pure Python loader.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Fact(BaseModel):
    """A catalogue entry: read-only, with no key that the code does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


FactT = TypeVar("FactT", bound=Fact)


def read(name: str, package: str = __package__) -> dict[str, Any]:
    """Return the mapping in a catalogue file: ``name`` is its path below ``package``."""
    loader = _Loader(files(package).joinpath(name).read_bytes())
    try:
        content = loader.get_single_data()
    finally:
        loader.dispose()
    if not isinstance(content, dict):
        raise TypeError(f"catalogue file {name} holds no mapping")
    return content


def named(model: type[FactT], entries: Mapping[str, Mapping[str, object]]) -> Mapping[str, FactT]:
    """Return ``entries``, fields by names, as models by name, in the file's order."""
    return MappingProxyType({name: model.model_validate({"name": name, **fields}) for name, fields in entries.items()})


_SHORTEST_PART = 3  # characters of a word that is looked for inside other names: fewer are in most of them

_MOST = 40  # choices that a sentence lists; there are more kernels. Of more it lists so many:
_SHOWN = 12


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that ``word`` abbreviates, ignoring case, or misspells; None where none is similar."""
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
    """A hint at the choice that ``word`` misspells; empty where none is similar."""
    guess = nearest(word, choices)
    return f"did you mean {guess}?" if guess else ""


def choices_sentence(word: str, choices: Iterable[str]) -> str:
    """Return ``allowed: a, b; did you mean 'b'?`` for a word that is not one of ``choices``; of many the first ones."""
    allowed = list(choices)
    more = f", and {len(allowed) - _SHOWN} more" if len(allowed) > _MOST else ""
    sentence = f"allowed: {', '.join(allowed[:_SHOWN] if more else allowed)}{more}"
    guess = nearest(word, allowed)
    return f"{sentence}; did you mean '{guess}'?" if guess else sentence


def unknown(kind: str, word: str, choices: Iterable[str]) -> str:
    """Return the sentence ``unknown <kind> 'word'; allowed: ...; did you mean '...'?``."""
    return f"unknown {kind} '{word}'; {choices_sentence(word, choices)}"


def existing_file(name: str, suffixes: tuple[str, ...]) -> Path:
    """The file at a path. Raises ConfigError where there is none, with a similar one of these suffixes."""
    path = user_path(name)
    if not path.is_file():
        what = "that is a folder" if path.is_dir() else "there is no such file"
        raise ConfigError(f"found {name!r}; {what}", hint=similar_file(path, suffixes))
    return path


def similar_file(path: Path, suffixes: tuple[str, ...]) -> str:
    """A hint at the file with one of these suffixes that is probably meant; empty where there is none."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    try:
        found = sorted(entry.name for entry in path.parent.iterdir() if entry.name.endswith(suffixes) and entry != path)
    except OSError:  # it cannot be listed
        return ""
    guess = nearest(path.name, found) or nearest(path.stem, found)
    return f"did you mean {path.parent / guess}?" if guess else ""
