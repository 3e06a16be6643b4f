# SPDX-License-Identifier: GPL-2.0-only
"""What a tool's user space sets before it loads BPF programs: constants, sizes of maps, and what is in maps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.errors import ConfigError

CONSTANTS, SIZES, CONTENTS = STATE = ("rodata", "max_entries", "map")
"""Parameters of a row. Each has assignments ``NAME=VALUE``, with blanks between them, quoted as in a shell."""

_CONSTANT = re.compile(r"[A-Za-z_]\w{0,127}(?:\.[A-Za-z_]\w{0,127}|\[\d{1,9}\])*", re.ASCII)
_MAP = re.compile(r"[A-Za-z_.][\w.]{0,127}", re.ASCII)
_SIZE = re.compile(r"0x[0-9a-fA-F]{1,8}|\d{1,10}")
_LARGEST_SIZE = (1 << 32) - 1
"""max_entries of the kernel's ``union bpf_attr`` is a __u32."""
_MOST = 64
"""Assignments of one kind: as many as ``images/bpf/bpfload.c`` takes."""
_QUOTED = 40


@dataclass(frozen=True)
class ProgramState:
    """``constants`` by name or path (``filter.pid``), as text; ``sizes`` of maps; files with the ``contents`` of maps.

    A file's path is relative to the folder of the programs' own file.
    """

    constants: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_parameters(cls, parameters: Mapping[str, str]) -> ProgramState:
        """The state that a row's parameters have, those of ``STATE`` alone. Raises ConfigError."""

        def given(name: str) -> list[str]:
            try:
                return shlex.split(parameters.get(name, ""))
            except ValueError as error:
                raise ConfigError(f"{name}: {str(error).lower()}: quotes are as in a shell") from None

        return cls.of(given(CONSTANTS), given(SIZES), given(CONTENTS))

    @classmethod
    def of(cls, constants: Iterable[str] = (), sizes: Iterable[str] = (), contents: Iterable[str] = ()) -> ProgramState:
        """The state of assignments ``NAME=VALUE``. Raises ConfigError."""
        given_sizes = _assignments(SIZES, sizes, _MAP)
        return cls(
            _assignments(CONSTANTS, constants, _CONSTANT),
            {name: _size(name, text) for name, text in given_sizes.items()},
            _assignments(CONTENTS, contents, _MAP),
        )

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters of a row: the inverse of ``of_parameters``."""
        every = zip(STATE, (self.constants, self.sizes, self.contents), strict=True)
        texts = {name: shlex.join(f"{key}={value}" for key, value in assigned.items()) for name, assigned in every}
        return {name: text for name, text in texts.items() if text}

    @property
    def is_given(self) -> bool:
        return bool(self.constants or self.sizes or self.contents)

    def behind(self, earlier: ProgramState) -> ProgramState:
        """Both; this one wins."""
        return ProgramState(
            {**earlier.constants, **self.constants},
            {**earlier.sizes, **self.sizes},
            {**earlier.contents, **self.contents},
        )


def _assignments(what: str, words: Iterable[str], form: re.Pattern[str]) -> Mapping[str, str]:
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not form.fullmatch(name) or not value:
            raise ConfigError(f"{what}: found {word[:_QUOTED]!r}; an assignment is NAME=VALUE")
        if name in given:
            raise ConfigError(f"{what}: found {name} twice; give it once")
        given[name] = value
    if len(given) > _MOST:
        raise ConfigError(f"{what}: found {len(given)} assignments; at most {_MOST} are allowed")
    return given


def _size(name: str, text: str) -> int:
    size = int(text, 0) if _SIZE.fullmatch(text) and not re.match(r"0\d", text) else 0
    if not 0 < size <= _LARGEST_SIZE:
        raise ConfigError(f"{SIZES}: {name} has {text[:_QUOTED]!r}; a map has 1 to {_LARGEST_SIZE} entries")
    return size
