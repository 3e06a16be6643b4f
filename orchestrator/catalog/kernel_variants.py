# SPDX-License-Identifier: GPL-2.0-only
"""Kernels with parameters and options of one's own: ``KERNEL+WORD+WORD``.

A word is a kernel parameter (``mitigations=auto``), an option (``CONFIG_KFENCE=y``) or the path of a file of options
(``./kasan.config``). Two variants of one kernel with equal options share its build.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from orchestrator.catalog.data import read
from orchestrator.errors import ConfigError
from orchestrator.files import read_bounded_text
from orchestrator.paths import user_path

MARK = "+"
SUFFIX = ".config"
OPTION = re.compile(r'(CONFIG_[A-Za-z0-9_]+)=([ynm]|-?[0-9]+|0x[0-9a-fA-F]+|"[^"+\n]*")', re.ASCII)
UNSET = re.compile(r"# (CONFIG_[A-Za-z0-9_]+) is not set", re.ASCII)
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(=[A-Za-z0-9_.,:-]+)?", re.ASCII)
_WORD = re.compile(rf"CONFIG_|(?:{_PARAMETER.pattern})\Z", re.ASCII)
_LARGEST_FILE = 64 << 10
_LONGEST_TITLE = 80

_PARAMETER_FORM = "a parameter is NAME or NAME=VALUE, of letters, digits and . , : _ -, such as mitigations=auto"
_OPTION_FORM = "an option is CONFIG_NAME=y, =n, a number or a text in double quotes, such as CONFIG_KFENCE=y"


def split(name: str) -> tuple[str, tuple[str, ...]]:
    """A kernel without its words, and the words. The longest existing path of a user's tree has none in it."""
    parts = name.split(MARK)
    first = len(parts)
    while first > 1 and (parts[first - 1].endswith(SUFFIX) or _WORD.match(parts[first - 1])):
        first -= 1
    if "/" in parts[0]:
        first = next((end for end in range(len(parts), first, -1) if _exists(MARK.join(parts[:end]))), first)
    return MARK.join(parts[:first]), tuple(parts[first:])


def _exists(name: str) -> bool:
    """Whether ``PATH`` or ``NAME=PATH`` is there."""
    try:
        return any(user_path(path).exists() for path in (name, name.partition("=")[2]) if "/" in path)
    except (OSError, ConfigError):  # too long, or of an unknown user
        return False


def joined(name: str, words: Sequence[str]) -> str:
    """A kernel with its words: the inverse of ``split``."""
    return MARK.join([name, *words])


def placed(words: Sequence[str], place: Callable[[str], str]) -> Sequence[str]:
    """The words with each path of a file of options replaced by ``place(path)``."""
    return [place(word) if word.endswith(SUFFIX) else word for word in words]


@dataclass(frozen=True)
class Variant:
    """What the words mean: the kernel's ``parameters``, and ``options`` as lines of a .config."""

    title: str
    parameters: Sequence[str]
    options: str


def variant(words: Sequence[str]) -> Variant:
    """Read the words. Raises ConfigError for one that is malformed, or that the lab's measurements do not allow."""
    parameters, lines, titles = list[str](), list[str](), list[str]()
    for word in words:
        if word.endswith(SUFFIX):
            lines += _file(word)
            titles.append(user_path(word).name)
        elif word.startswith("CONFIG_"):
            lines.append(option_line(word))
            titles.append(word)
        else:
            parameters.append(checked_parameter(word))
            titles.append(word)
    return Variant(_title(titles), parameters, "".join(f"{line}\n" for line in lines))


def _title(words: Sequence[str]) -> str:
    """A short name of the words, of characters that cells' names may have."""
    text = MARK.join(words)
    plain = re.sub(r"[^A-Za-z0-9._+=,-]", "-", text)
    return (
        plain
        if len(text) <= _LONGEST_TITLE
        else f"{plain[: _LONGEST_TITLE - 9]}-{sha256(text.encode()).hexdigest()[:8]}"
    )


def option_line(word: str) -> str:
    """The line of a .config for ``CONFIG_NAME=VALUE``. Raises ConfigError."""
    match = OPTION.fullmatch(word)
    if match is None:
        raise ConfigError(f"found {word!r}; {_OPTION_FORM}")
    if match[2] == "m":
        raise ConfigError(f"found {word!r}; the lab's guests have no module of it: set it to y")
    return f"# {match[1]} is not set" if match[2] == "n" else word


def _file(name: str) -> Sequence[str]:
    path = user_path(name)
    try:
        text = read_bounded_text(path, _LARGEST_FILE)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"found {name!r}; this file of options cannot be read: {why}") from None
    if text is None:
        what = f"it has more than {_LARGEST_FILE >> 10} KiB: name only the options that differ from the kernel's"
        raise ConfigError(f"found {name!r}; {what}")
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        if line and not (OPTION.fullmatch(line) or UNSET.fullmatch(line) or line.startswith("# ") or line == "#"):
            raise ConfigError(f"found {line[:80]!r}; {_OPTION_FORM}", where=f"{path}:{number}")
    assigned = [option_line(line) for line in lines if OPTION.fullmatch(line)]
    return [*assigned, *(line for line in lines if UNSET.fullmatch(line))]


def checked_parameter(word: str) -> str:
    """A kernel parameter that leaves the lab's clock, proofs and channel alone. Raises ConfigError."""
    if not _PARAMETER.fullmatch(word):
        raise ConfigError(f"found {word!r}; {_PARAMETER_FORM}")
    name = parameter_name(word)
    reason = next((why for why, names in reserved_parameters().items() if name in names), None)
    if reason is not None:
        raise ConfigError(f"found {word!r}; the lab sets it or leaves it out: {reason}")
    return word


def parameter_name(word: str) -> str:
    """A parameter's name as the kernel compares names: a hyphen is an underscore (kernel/params.c, parameqn)."""
    return word.partition("=")[0].replace("-", "_")


@lru_cache(maxsize=1)
def reserved_parameters() -> Mapping[str, Sequence[str]]:
    """The names of parameters that no experiment sets, by the reason."""
    reserved: Mapping[str, Sequence[str]] = read("kernel_parameters.yaml")["reserved"]
    return reserved
