# SPDX-License-Identifier: GPL-2.0-only
"""Tools that attach BPF programs themselves: commands, scripts of bpftrace, and lines that have several places."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.user_files import LARGEST, read_user_elf
from orchestrator.errors import ConfigError
from orchestrator.files import is_file, read_bounded
from orchestrator.paths import user_path

TOOL_PREFIX = "tool:"
TOOLS_IMAGE = "debian-amd64-tools-13"
"""The lab's image with the tools of bcc and with bpftrace, of Debian 13."""
SCRIPT_SUFFIX = ".bt"
BPFTRACE_PROGRAM = "bpftrace"
TOOL_FOLDER = "/tmp/lab-tool"  # noqa: S108 - in the guest
"""Where the user's own program or script is."""
LARGEST_SCRIPT = 1 << 20
"""Bytes of a script."""
LONGEST_COMMAND = 1000
"""Characters of a command."""
_OF_THE_IMAGE = ("/bin/", "/lib/", "/opt/", "/sbin/", "/usr/")
"""Where a path that is not relative names a file of the image."""
_MOST_WORDS = 100
_DIGITS = 6
_SHOWN = 24


@dataclass(frozen=True)
class ToolCommand:
    """A command that attaches programs itself: ``argv`` as the guest starts it, and the user's ``file`` that it runs.

    ``title`` is what the user wrote. One that ``is_static`` needs nothing of an image. ``prints_by_hit`` is False where
    the text says that hits leave nothing to be read.
    """

    title: str
    argv: tuple[str, ...]
    file: Path | None = None
    is_static: bool = False

    @property
    def program(self) -> str:
        """What is started, without its folder."""
        return Path(self.argv[0]).name

    @property
    def name(self) -> str:
        """Its name in results, safe in file names and filters: its words and a digest of all of them.

        A user's file counts by its name, as in the names of modules: it keeps its history in another folder, and in
        the copy of a repository that has a commit.
        """
        words = "_".join(re.findall(r"[A-Za-z0-9]+", self.title))[:_SHOWN].strip("_")
        return ".".join(filter(None, ["tool", words, hashlib.sha256(self.title.encode()).hexdigest()[:_DIGITS]]))


def is_tool(name: str) -> bool:
    """Whether a probe's name is a command that attaches programs itself."""
    return name.startswith(TOOL_PREFIX)


def tool_words(name: str) -> Sequence[str]:
    """The words of ``tool: COMMAND``, quoted as in a shell. Raises ConfigError for what is no command."""
    text = name.removeprefix(TOOL_PREFIX).strip()
    if len(text) > LONGEST_COMMAND:
        raise ConfigError(f"found a command of {len(text)} characters; at most {LONGEST_COMMAND} are allowed")
    if not text.isprintable():
        raise ConfigError(f"found {name[:80]!r}; a command is one line of printable characters")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"found {text[:80]!r}; {str(error).lower()}: quotes are as in a shell") from None
    if not words or not words[0] or len(words) > _MOST_WORDS:
        raise ConfigError(f"found {name[:80]!r}; a tool is a command: '{TOOL_PREFIX} opensnoop -x'")
    return words


def tool_command(name: str) -> ToolCommand:
    """The command of ``tool: COMMAND``. Raises ConfigError for what is none, and a file that the guest cannot run."""
    first, *arguments = tool_words(name)
    if named_file(name) is None:
        return ToolCommand(shlex.join([first, *arguments]), (first, *arguments))
    file = user_path(first)
    is_static = _is_static(file, first)
    return ToolCommand(shlex.join([file.name, *arguments]), (in_guest(file), *arguments), file, is_static)


def tool_row(name: str) -> str:
    """The same row with the user's file by its whole path."""
    file = named_file(name)
    return with_named_file(name, tool_words(name)[0] if file is None else str(user_path(file)))


def named_file(name: str) -> str | None:
    """The path, as it is written, of the user's file that a command or a script names; None for one of the image.

    Raises ConfigError for what is no command.
    """
    if not is_tool(name):
        return split_script(name)[0]
    first, *_ = tool_words(name)
    return first if "/" in first and not first.startswith(_OF_THE_IMAGE) else None


def with_named_file(name: str, file: str) -> str:
    """The row of a command or a script with another path in place of its own."""
    if is_tool(name):
        _, *arguments = tool_words(name)
        return f"{TOOL_PREFIX} {shlex.join([file, *arguments])}"
    _, parameters = split_script(name)
    return " ".join(filter(None, [file, shlex.join(parameters)]))


def in_guest(file: Path) -> str:
    """The path of a user's file in the guest."""
    return f"{TOOL_FOLDER}/{re.sub(r'[^A-Za-z0-9._+-]', '_', file.name)}"


def _is_static(file: Path, written: str) -> bool:
    """Whether a user's program needs no shared library. Raises ConfigError for one that a guest cannot run."""
    if not file.is_file():
        raise ConfigError(f"found {written!r}; this file does not exist, and a tool of the image has no path before it")
    try:
        with file.open("rb") as opened:
            start = opened.read(2)
    except OSError as error:
        raise ConfigError(f"found {written!r}; it cannot be read: {error.strerror}") from None
    if start == b"#!":
        if file.stat().st_size > LARGEST:
            raise ConfigError(f"found {written!r}; it is larger than {LARGEST >> 20} MiB")
        return False
    elf = read_user_elf(file, written, "a program for x86, or a script that begins with #!")
    if elf.arch != "x86_64":
        raise ConfigError(f"found {written!r}; it is a program for {elf.arch}, and guests of tools are x86_64")
    return not elf.has_loader


# What a parameter NAME=VALUE begins with is no part of a path: ./x.bpf.c map=seen=./data.bt names a source.
_SCRIPT = re.compile(rf"((?:(?!\s['\"]?\w+=).)*?{re.escape(SCRIPT_SUFFIX)})(?:\s+(.*))?", re.DOTALL)


def is_script(name: str) -> bool:
    """Whether a probe's name is the path of a bpftrace script, with parameters or not."""
    return _SCRIPT.fullmatch(name.strip()) is not None and not name.startswith((TOOL_PREFIX, f"{BPFTRACE_PROGRAM}:"))


def split_script(name: str) -> tuple[str, Sequence[str]]:
    """A script's path, which may have spaces, and its positional parameters. Raises ConfigError."""
    match = _SCRIPT.fullmatch(name.strip())
    assert match is not None
    try:
        return match[1], shlex.split(match[2] or "")
    except ValueError as error:
        raise ConfigError(f"found {name[:80]!r}; {str(error).lower()}: quotes are as in a shell") from None


def script_row(name: str) -> str:
    """The same row with the script by its whole path."""
    return with_named_file(name, str(user_path(split_script(name)[0])))


def script_command(name: str) -> ToolCommand:
    """Bpftrace with a script as it is, and its parameters. Raises ConfigError for one that cannot be read."""
    path, parameters = split_script(name)
    file = user_path(path)
    script_text(file)
    title = shlex.join([file.name, *parameters])
    return ToolCommand(title, (BPFTRACE_PROGRAM, in_guest(file), *parameters), file)


def script_text(file: Path) -> str:
    """A script's text. Raises ConfigError for one that cannot be read, or is longer than ``LARGEST_SCRIPT``."""
    try:
        if file.exists() and not is_file(file):  # a pipe's end never comes
            raise ConfigError("cannot be read: not a file", where=str(file))
        content = read_bounded(file, LARGEST_SCRIPT)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ConfigError(f"cannot be read: {(reason or 'no such file').lower()}", where=str(file)) from None
    if content is None:
        raise ConfigError(f"it has more than {LARGEST_SCRIPT >> 20} MiB", where=str(file))
    if not content.strip():
        raise ConfigError("it is empty", where=str(file))
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigError("cannot be read: not UTF-8 text", where=str(file)) from None
