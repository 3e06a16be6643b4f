# SPDX-License-Identifier: GPL-2.0-only
"""The parameters that a user gives a module: how they are written behind its path, checked, and shown in results.

Among the probes of an experiment they stand behind a module's path: ``./mine.c size=64 mode=fast``, with quotes as in a
shell: ``./mine.c 'label=two words'``.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.errors import ConfigError

VALUE_MAX = 1024
"""Characters of a value (STRING_MAX of param_set_charp(), kernel/params.c)."""

NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})

TEXT_MAX = 1000
"""Characters of all parameters behind a path."""

_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
_FILE = r"(.*?\.(?:c\.j2|c|ko|o))"
_WITH_PARAMETERS = re.compile(_FILE + r"\s+(['\"]?[A-Za-z0-9_]+=.*)")
_WITH_OTHER_WORDS = re.compile(_FILE + r"\s+(\S.*)")
_PLAIN = re.compile(r"[A-Za-z0-9_-]*")
_SHOWN = 60
_DIGITS = 6
_QUOTED = 40


def split_path(name: str) -> tuple[str, str]:
    """A probe's path, and the text of parameters behind it; a path may have spaces, as long as none looks like one."""
    name = name.rstrip()
    parts = _WITH_PARAMETERS.fullmatch(name)
    if parts is None and not re.fullmatch(_FILE, name):
        parts = _WITH_OTHER_WORDS.fullmatch(name)
    return (name, "") if parts is None else (parts[1], parts[2])


def with_path(path: str, text: str) -> str:
    """What ``split_path`` has split."""
    return f"{path} {text}" if text else path


def parse_parameters(text: str) -> dict[str, str]:
    """The parameters in a text, in its order. Raises ConfigError for a text that is not ``NAME=VALUE ...``."""
    if len(text) > TEXT_MAX:
        raise ConfigError(f"found parameters of {len(text)} characters; at most {TEXT_MAX} are allowed")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"found {text[:_QUOTED]!r}; {_spelled(error)}") from None
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"found {word[:_QUOTED]!r} behind a module's path; a parameter is NAME=VALUE")
        wrong = parameter_problem(name, value)
        if wrong is not None:
            raise ConfigError(wrong)
        if name in given:
            raise ConfigError(f"found parameter {name!r} twice; give it once")
        given[name] = value
    return given


def parameter_problem(name: str, value: str) -> str | None:
    """Why the kernel could not be given a parameter, in a sentence; None where it can."""
    if not _NAME.fullmatch(name):
        return f"found {name[:_QUOTED]!r}; a module parameter's name has letters, digits and '_'"
    if not value.isprintable() or '"' in value or len(value) > VALUE_MAX:
        return f"{name}: found {value[:_QUOTED]!r}; a value is one line of at most {VALUE_MAX} characters without '\"'"
    return None


def written(parameters: Mapping[str, str]) -> str:
    """The one spelling of parameters in a text."""
    return shlex.join(f"{name}={value}" for name, value in parameters.items())


def in_name(parameters: Mapping[str, str]) -> str:
    """The parameters as a part of a row's name, of characters that are safe in files' names and filters.

    ``.size-64.mode-fast``; with a digest where a value has other characters, or many: no two sets have one name.
    """
    shown = "".join(f".{name}-{re.sub(r'[^A-Za-z0-9_-]', '_', value)}" for name, value in parameters.items())
    if len(shown) <= _SHOWN and all(_PLAIN.fullmatch(value) for value in parameters.values()):
        return shown
    return f"{shown[:_SHOWN]}.{hashlib.sha256(written(parameters).encode()).hexdigest()[:_DIGITS]}"


def _spelled(error: ValueError) -> str:
    """What shlex says, as a part of a sentence."""
    return f"{str(error).lower()}: quotes are as in a shell"
