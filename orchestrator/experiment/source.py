# SPDX-License-Identifier: GPL-2.0-only
"""Parse untrusted YAML into plain data, with the line of every part.

The data has text, whole numbers, true/false, null, lists, and mappings with text keys. Any other scalar (``1.5``,
``yes``, ``0x10``, ``+5``) stays text, so that errors quote it as written; it is ``Unquoted``, so that the schema can
require quotes. The data is built from PyYAML's events: its composer's nodes do not show tags and aliases, and the
composer recurses without a bound.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from orchestrator.catalog.data import CatalogEntry, nearest, read
from orchestrator.catalog.unique_keys import DuplicateKeyError, MappingKeys
from orchestrator.errors import ConfigError
from orchestrator.files import read_bounded


class Mistake(CatalogEntry):
    """How the parser's ``problem`` begins or ends, what it means, and what to do."""

    problem: str
    what: str
    hint: str
    begins: bool = False


@functools.cache
def _mistakes() -> Sequence[Mistake]:
    return TypeAdapter(list[Mistake]).validate_python(read("malformed.yaml", __package__)["mistakes"])


def explained(error: yaml.MarkedYAMLError) -> tuple[str, int | None, str]:
    """A sentence, its line, and a hint; for an unknown error the parser's own words."""
    problem = error.problem or ""
    mark = error.problem_mark or error.context_mark
    mistake = next(
        (
            mistake
            for mistake in _mistakes()
            if problem.startswith(mistake.problem) or problem.endswith(mistake.problem)
        ),
        None,
    )
    if mistake is None:
        what, hint = " ".join(word for word in (error.context, problem) if word), ""
    else:
        what, hint = mistake.what, mistake.hint
        mark = error.context_mark if mistake.begins and error.context_mark is not None else mark
    return f"malformed YAML: {what}", None if mark is None else mark.line + 1, hint


Scalar = str | int | bool | None
Data = Scalar | list["Data"] | dict[str, "Data"]
KeyPath = tuple[str | int, ...]

MAX_BYTES = 64 * 1024
MAX_NODES = 10_000  # counted with every alias written out
MAX_DEPTH = 20

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_C_SUFFIXES = (".c", ".h", ".j2")
_C_TEXT = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]", re.MULTILINE)
_USE_OF_C = (
    "an experiment file names C files: a module or BPF programs in probes: [none, ./mine.c], "
    "a workload in benchmark: {name: workload, file: ./mine.c}"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unquoted(str):
    """Text that the file has neither in quotes nor in a block."""

    __slots__ = ()


class Quoted(str):
    """Text to write in quotes, because without them it would be parsed as something else."""

    __slots__ = ()


@dataclass(frozen=True)
class Source:
    """Plain data and the line of every key and list item, by its path from the top."""

    data: Data
    lines: dict[KeyPath, int]


@dataclass(frozen=True)
class _Anchored:
    """A complete part that aliases repeat, and the lines of what is in it, by its path inside."""

    data: Data
    line: int
    inside: list[tuple[KeyPath, int]]


def read_source(path: Path) -> Source:
    """Read and parse a YAML file. Raises ConfigError, with file and line, for an unreadable or malformed one."""
    try:
        content = read_bounded(path, MAX_BYTES)
    except FileNotFoundError:
        raise ConfigError("no such file", where=str(path), hint=_similar_file(path)) from None
    except IsADirectoryError:
        hint = next((f"name a file in it, such as '{file}'" for file in _files_in(path)), "name a file")
        raise ConfigError("is a folder; expected a file", where=str(path), hint=hint) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(path)) from None
    except ValueError as error:  # a path with a NUL in it
        raise ConfigError(f"cannot be read: {error}", where=repr(str(path))) from None
    if content is None:
        raise ConfigError(f"larger than {MAX_BYTES // 1024} KiB", where=str(path), hint="is it an experiment file?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError("not UTF-8 text", where=f"{path}:{line}", hint="save the file as UTF-8") from None
    try:
        return parse(text, lambda line: f"{path}:{line}")
    except ConfigError:
        if path.suffix in _C_SUFFIXES or _C_TEXT.search(text):
            raise ConfigError("this is C, not YAML", where=str(path), hint=_USE_OF_C) from None
        raise


_KERNEL_KEYS = {"kernels", "kernel_for"}


def names_kernels(path: Path, overrides: Sequence[str]) -> bool:
    """Whether an experiment file with these overrides names kernels, for all tables or for one. Raises ConfigError."""
    keys = {place[-1] for place in read_source(path).lines if len(place) in (1, 3)}
    return sets_kernels(overrides) or not _KERNEL_KEYS.isdisjoint(keys)


def sets_kernels(overrides: Sequence[str]) -> bool:
    """Whether ``KEY=VALUE`` overrides name kernels."""
    return any(not _KERNEL_KEYS.isdisjoint(text.partition("=")[0].strip().split(".")) for text in overrides)


def kernels_override(name: str) -> str:
    """The override that measures all cells on this kernel."""
    return f"kernels=[{json.dumps(name, ensure_ascii=False)}]"


def parse(text: str, place: Callable[[int], str]) -> Source:
    """Parse one YAML document; ``place`` gives an error's ``where`` for a line number.

    Raises ConfigError for malformed YAML, a tag, a duplicate key, a recursive or unknown alias, more than
    MAX_NODES nodes after expanding aliases, or nesting deeper than MAX_DEPTH.
    """
    return _Builder(text, place).build()


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.y*ml"))
    except OSError:
        return []


def _similar_file(path: Path) -> str:
    guess = nearest(path.name, [file.name for file in _files_in(path.parent)])
    return f"did you mean '{path.with_name(guess)}'?" if guess else ""


def _scalar(event: yaml.ScalarEvent) -> Scalar:
    text: str = event.value
    if not event.implicit[0]:  # quoted, or a block of text
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    return int(text) if _INT.fullmatch(text) else Unquoted(text)


def _inside(events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    return takewhile(lambda event: not isinstance(event, yaml.CollectionEndEvent), events)


class _Builder:
    def __init__(self, text: str, place: Callable[[int], str]) -> None:
        self._text = text
        self._place = place
        self._line = 1
        self._nodes = 0
        self._lines: list[tuple[KeyPath, int]] = []  # a part's own entry, then those of what is in it
        self._anchors: dict[str, _Anchored | None] = {}  # None: the part is not complete yet

    def build(self) -> Source:
        try:
            data = self._document(self._events())
        except yaml.MarkedYAMLError as error:
            what, place, hint = explained(error)
            raise self._error(what, place or self._line, hint) from None
        except yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 1
            what = f"a character that YAML does not allow: U+{error.character:04X}"
            raise self._error(what, line, "is it a text file?") from None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            # PyYAML passes an escape beyond Unicode or an endless version number to chr() and int().
            raise self._error(f"malformed YAML: {error}", self._line) from None
        return Source(data, dict(self._lines or [((), 1)]))

    def _error(self, what: str, line: int, hint: str = "") -> ConfigError:
        return ConfigError(what, where=self._place(line), hint=hint)

    def _events(self) -> Iterator[yaml.Event]:
        # Not libyaml's parser, whose messages differ.
        for event in yaml.parse(self._text, yaml.SafeLoader):
            if event.start_mark is not None:
                self._line = event.start_mark.line + 1
            yield event

    def _document(self, events: Iterator[yaml.Event]) -> Data:
        root: Data = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self._lines:
                    raise self._error("a second YAML document", self._line, hint="keep one document in a file")
                root = self._part(next(events), events, ())
        return root

    def _part(self, event: yaml.Event, events: Iterator[yaml.Event], path: KeyPath, key_line: int = 0) -> Data:
        """Build the part at ``path`` that ``event`` begins, its line its key's; recurses to MAX_DEPTH at most."""
        line = self._line
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(str(event.anchor), path, key_line)
        self._count(1, len(path) + 1, line)
        begin = len(self._lines)
        self._lines.append((path, key_line or line))
        anchor: str | None = None
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            self._refuse_tag(event.tag, line)
            anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        data: Data
        if isinstance(event, yaml.ScalarEvent):
            data = self._checked(_scalar(event), line)
        elif isinstance(event, yaml.SequenceStartEvent):
            data = [self._part(entry, events, (*path, index)) for index, entry in enumerate(_inside(events))]
        else:
            data = self._entries(events, path)
        if anchor is not None:
            inside = [(part[len(path) :], at) for part, at in self._lines[begin + 1 :]]
            self._anchors[anchor] = _Anchored(data, line, inside)
        return data

    def _refuse_tag(self, tag: str | None, line: int) -> None:
        if tag is not None:
            short = tag.replace("tag:yaml.org,2002:", "!!", 1)
            hint = "write the value plainly; put a text that looks like a number in quotes"
            raise self._error(f"YAML tag {short!r} is not allowed", line, hint)

    def _entries(self, events: Iterator[yaml.Event], path: KeyPath) -> dict[str, Data]:
        entries: dict[str, Data] = {}
        keys = MappingKeys()
        for event in _inside(events):
            line = self._line
            if not isinstance(event, yaml.ScalarEvent):
                raise self._error("a key must be plain text", line, "put a text that begins with { or [ in quotes")
            self._refuse_tag(event.tag, line)
            key = str(self._checked(event.value, line))
            if key == "<<" and event.implicit[0]:
                raise self._error("merge keys (<<) are not allowed", line, "write the values out")
            try:
                keys.add(key, line)
            except DuplicateKeyError as error:
                raise self._error(str(error.problem), line) from None
            entries[key] = self._part(next(events), events, (*path, key), line)
        return entries

    def _checked(self, value: Scalar, line: int) -> Scalar:
        if isinstance(value, str) and _SURROGATE.search(value):
            raise self._error("half of a surrogate pair is not text", line)
        return value

    def _aliased(self, anchor: str, path: KeyPath, key_line: int) -> Data:
        if anchor not in self._anchors:
            raise self._error(f"alias '*{anchor}' has no anchor before it", self._line)
        part = self._anchors[anchor]
        if part is None:
            raise self._error(f"alias '*{anchor}' contains itself", self._line)
        deepest = max((len(inside) for inside, _ in part.inside), default=0)
        self._count(1 + len(part.inside), len(path) + 1 + deepest, self._line)
        self._lines.append((path, key_line or part.line))
        self._lines += [((*path, *inside), at) for inside, at in part.inside]
        return copy.deepcopy(part.data)

    def _count(self, nodes: int, depth: int, line: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self._error(f"more than {MAX_NODES} values, with aliases written out", line)
        if depth > MAX_DEPTH:
            raise self._error(f"nested more than {MAX_DEPTH} deep", line)
