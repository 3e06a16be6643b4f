# SPDX-License-Identifier: GPL-2.0-only
"""The text of a bpftrace program, read as bpftrace's lexer reads it: its attach points, and its comments.

The rules are those of ``src/lexer.l``, ``src/parser.yy`` and ``src/ast/attachpoint_parser.cpp`` of bpftrace 0.17 and
0.23. Of predicates and actions only the ends are looked for. A program that these rules do not read is left to
bpftrace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

PROVIDERS: Mapping[str, Sequence[str]] = {
    "kprobe": ["k"],
    "kretprobe": ["kr"],
    "fentry": ["f", "kfunc"],
    "fexit": ["fr", "kretfunc"],
    "tracepoint": ["t"],
    "rawtracepoint": ["rt"],
    "uprobe": ["u"],
    "uretprobe": ["ur"],
    "usdt": ["U"],
    "profile": ["p"],
    "interval": ["i"],
    "software": ["s"],
    "hardware": ["h"],
    "watchpoint": ["w"],
    "asyncwatchpoint": ["aw"],
    "iter": ["it"],
    "BEGIN": [],
    "END": [],
    "self": [],
    "test": [],
    "bench": [],
}
"""The kinds of probe with their short and their old names (``PROBE_LIST`` of bpftrace's ``src/types.h``)."""

_FULL_NAMES = {word: name for name, words in PROVIDERS.items() for word in (name, *words)}

AT_FUNCTIONS = ("kprobe", "kretprobe", "fentry", "fexit")
"""Providers whose last part is a function of the kernel, with its module before it or not."""

IN_PROGRAMS = ("uprobe", "uretprobe", "usdt")
"""Providers whose parts are a program of user space, and a place in it."""


@dataclass(frozen=True)
class AttachPoint:
    """A probe: its ``provider`` as it is written, and the ``parts`` after it, which colons divide, without quotes."""

    provider: str
    parts: tuple[str, ...]

    @property
    def kind(self) -> str | None:
        """The provider's full name; None for one that is a wildcard or that bpftrace has not."""
        return _FULL_NAMES.get(self.provider)

    @property
    def function(self) -> str | None:
        """The function of the kernel where it is, or a wildcard, without an offset; None for other probes."""
        if self.kind not in AT_FUNCTIONS or not 1 <= len(self.parts) <= 2:
            return None
        return self.parts[-1].partition("+")[0]

    @property
    def offset(self) -> int | None:
        """Bytes behind the function's symbol; None for the function itself."""
        digits = self.parts[-1].partition("+")[2] if self.function is not None else ""
        return int(digits) if digits.isdecimal() else None

    @property
    def event(self) -> str | None:
        """The tracepoint where it is, ``CATEGORY:NAME`` or of a raw one ``NAME``; None for other probes."""
        if self.kind == "tracepoint" and len(self.parts) == 2:
            return ":".join(self.parts)
        return self.parts[-1] if self.kind == "rawtracepoint" and self.parts else None

    def __str__(self) -> str:
        return ":".join((self.provider, *self.parts))


class UnreadTextError(ValueError):
    """The text is not a program by the rules that are known here; a newer bpftrace may have others."""


class Token(NamedTuple):
    """A token: its ``kind``, its ``text`` in the program, and where that begins."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


_STRING = r'"(?:[^"\\\n]|\\[^\n])*"'
_NUMBER = r"[0-9](?:[0-9_]*[0-9])?(?:[uU]?[lL][lL]|[uU])?"
_TOKEN = re.compile(
    rf"""
    (?P<gap> [ \t\n\r]+ | /\*.*?\*/ | //[^\n]*+(?=\n) | ^\#![^\n]*+(?=\n) )
    | (?P<preprocessor> \#[^!][^\n]* )
    | (?P<path> :(?:\\[^\n]|[-_./a-zA-Z0-9\#*])+ )
    | (?P<integer> 0[xX][0-9a-fA-F]+ | {_NUMBER}[eE]{_NUMBER} | {_NUMBER} )
    | (?P<type> (?:struct|union|enum)(?![_a-zA-Z0-9]) )
    | (?P<word> [_a-zA-Z][_a-zA-Z0-9]* )
    | (?P<string> {_STRING} )
    | (?P<parameter> \$[0-9]+ )
    | (?P<variable> @[_a-zA-Z][_a-zA-Z0-9]* | @ | \$[_a-zA-Z][_a-zA-Z0-9]* | \$\# )
    | (?P<end_of_predicate> /(?=[ \t\n\r]*[/{{]) )
    | (?P<operator> <<= | >>= | [-+*/%&|^=!<>]= | << | >> | && | \|\| | \+\+ | -- | -> | /(?!\*)
                  | [-+*%&|^=!<>~.?:;,(){{}}\[\]] )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
"""Like flex, each alternative is the longest at its place, and of equally long ones the first in ``lexer.l``.

A comment ``//`` needs the end of its line: at the end of the text flex takes it for a predicate's end.
"""

_BRACES_OR_END = re.compile(r"[{}*),]")


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a program, without spaces and comments. Raises UnreadTextError where bpftrace reads none."""
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise UnreadTextError(f"no token of bpftrace begins with {text[place : place + 10]!r}")
        kind, end = match.lastgroup, match.end()
        if kind == "type":
            kind, end = _type(text, end)
        if kind != "gap":
            yield Token(kind, text[place:end], place)
        place = end


def _type(text: str, place: int) -> tuple[str, int]:
    """The kind and the end of a type's name or definition, which lasts to a ``*``, ``)``, ``,`` or its last brace."""
    depth = 0
    for match in _BRACES_OR_END.finditer(text, place):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth <= 0:
                return "definition", match.end() + text.startswith(";", match.end())
        elif depth == 0:
            return "word", match.start()
    raise UnreadTextError("the end of a type is missing")


_PRINTING = ("printf", "print", "cat", "join", "time", "strftime", "errorf", "warnf")
"""Functions whose hits leave something for bpftrace to print."""
_NEWER_WORDS = ("let", "for", "has_key", "config")


def prints(text: str) -> bool:
    """Whether an action prints; False for a text that is not read."""
    return any(token.text in _PRINTING and behind.text == "(" for token, behind in pairwise(_readable(text)))


def needs_newer(text: str) -> bool:
    """Whether a program has what bpftrace 0.17 lacks and 0.23 has, or prints.

    0.17 wakes a reader by an interrupt for each hit that prints: no batch of calls is without one.
    """
    try:
        points = attach_points(text)
    except UnreadTextError:
        points = []
    is_newer = any(
        point.provider in ("fentry", "fexit", "rawtracepoint", "rt", "self")
        or (point.kind in ("kprobe", "kretprobe") and len(point.parts) > 1)
        for point in points
    )
    return is_newer or prints(text) or any(token.text in _NEWER_WORDS for token in _readable(text))


def _readable(text: str) -> Sequence[Token]:
    try:
        return list(tokens(text))
    except UnreadTextError:
        return []


def attach_points(text: str) -> Sequence[AttachPoint]:
    """The attach points of all probes of a program, in their order. Raises UnreadTextError."""
    reader = _Reader(list(tokens(text)))
    return list(reader.program())


_OF_ATTACH_POINTS = ("word", "string", "path", "integer", "parameter")
_SIGNS_OF_ATTACH_POINTS = (":", ".", "+", "*", "[", "]")


class _Reader:
    """Reads a program from its tokens, as the grammar of ``parser.yy`` has it."""

    def __init__(self, listed: Sequence[Token]) -> None:
        self._tokens, self._next = listed, 0

    def program(self) -> Iterator[AttachPoint]:
        while self._kind() in ("preprocessor", "definition"):
            self._next += 1
        if self._texts(2) == ["config", "="]:
            self._next += 2
            self._block()
        while self._next < len(self._tokens):
            yield from self._probe()

    def _probe(self) -> Iterator[AttachPoint]:
        written = ""
        while (token := self._token()) and token.text not in ("{", "/"):
            if token.text == ",":
                yield from _divided(written)
                written = ""
            elif token.kind in _OF_ATTACH_POINTS or token.text in _SIGNS_OF_ATTACH_POINTS:
                written += _in_attach_point(token)
            else:
                raise UnreadTextError(f"{token.text!r} is not a part of an attach point")
            self._next += 1
        yield from _divided(written)
        if self._kind() == "operator" and self._texts(1) == ["/"]:
            self._predicate()
        self._block()

    def _predicate(self) -> None:
        while (token := self._token()) and token.kind != "end_of_predicate":
            if token.text == "{":
                raise UnreadTextError("the end of a predicate is missing")
            self._next += 1
        self._next += 1

    def _block(self) -> None:
        depth = 0
        while token := self._token():
            self._next += 1
            depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "operator" else 0
            if depth <= 0:
                if token.text != "}":
                    raise UnreadTextError("a probe has no action")
                return
        raise UnreadTextError("the end of an action is missing")

    def _token(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _kind(self) -> str | None:
        token = self._token()
        return None if token is None else token.kind

    def _texts(self, number: int) -> list[str]:
        return [token.text for token in self._tokens[self._next : self._next + number]]


_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


def _content(string: str) -> str:
    """The content of a string, its escapes replaced. Raises UnreadTextError for an escape that bpftrace has not."""

    def character(escape: re.Match[str]) -> str:
        octal, hexadecimal, letter = escape.groups()
        if letter is not None and letter not in _ESCAPED:
            raise UnreadTextError(f"bpftrace has no escape {escape[0]}")
        return _ESCAPED[letter] if letter is not None else chr(int(octal or hexadecimal, 8 if octal else 16) & 0xFF)

    return _ESCAPE.sub(character, string[1:-1])


def _in_attach_point(token: Token) -> str:
    """A token as the grammar joins it to an attach point: a string in quotes, a number in decimal digits."""
    if token.kind == "string":
        return '"' + _content(token.text).replace('"', '\\"') + '"'
    return str(_number(token.text)) if token.kind == "integer" else token.text


def _number(text: str) -> int:
    digits = text.replace("_", "").lower()
    if digits.startswith("0x"):
        return int(digits, 16)
    coefficient, _, exponent = digits.partition("e")
    power = int(exponent.rstrip("ul") or 0)
    if power > _LARGEST_POWER:
        raise UnreadTextError(f"{text} is too large a number")
    return int(coefficient.rstrip("ul") + "0" * power)


_LARGEST_POWER = 16
"""The largest exponent of a number in scientific notation (``src/ast/int_parser.cpp``)."""


def _divided(written: str) -> Iterator[AttachPoint]:
    """The attach point that is ``written``; none for an empty one, which bpftrace leaves out (a comma at the end)."""
    parts, is_quoted, place = [""], False, 0
    while place < len(written):
        letter = written[place]
        if letter == ":" and not is_quoted:
            parts.append("")
        elif letter == '"':
            is_quoted = not is_quoted
        elif letter == "$" and not is_quoted:  # a parameter of the command line: the lab gives none, so it is empty
            number = re.compile(r'[^:"]*').match(written, place + 1)
            if number is None or not number[0].isdecimal():
                raise UnreadTextError(f"{written[place:]!r} is no parameter")
            place = number.end() - 1
        else:
            place += letter == "\\" and is_quoted and place + 1 < len(written)
            parts[-1] += written[place]
        place += 1
    if parts[0]:
        yield AttachPoint(parts[0], tuple(parts[1:]))
