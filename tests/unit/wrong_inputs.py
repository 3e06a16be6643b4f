# SPDX-License-Identifier: GPL-2.0-only
"""What people get wrong, as data: files, a command line, and what the command then says.

Each file of ``wrong`` is an interface, and has a list of cases. A case is tried in a folder of its own, which has to be
afterwards as it was before. ``golden/wrong`` has what was said.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import yaml
from file_permissions import reading_by_modes
from pydantic import BaseModel, ConfigDict, Field
from typer.testing import CliRunner

from orchestrator.cli.main import app
from orchestrator.paths import data_dir

DATA = Path(__file__).with_name("wrong")

_HOST_DEPENDENT = {
    r"\b[0-9a-f]{24}\b": "KEY",
    r"own-linux-[0-9a-f]{6}": "own-linux-KEY",
    r" \[-W[a-z=-]+\]": "",  # gcc 14 calls an error what gcc 12 makes one by an option
    r"orchestrator-(build-)?\w{8}\b": "BUILD",
}
_COMPILERS_ASIDE = re.compile(r"    ( *\d* \|| *\+\+\+ \||.*: (note|warning): |cc1: |compilation terminated)")
"""Lines of a compiler that another one words differently."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Given(_Strict):
    """A file, folder or link that a case has. ``object`` and ``program`` are C code, which the host's gcc compiles."""

    text: str | None = None
    hex: str | None = None
    object: str | None = None
    program: str | None = None
    zeros: int | None = Field(default=None, description="bytes")
    padding: int | None = Field(default=None, description="bytes of the whole file, zeros behind what else it has")
    at: int = Field(default=0, description="bytes in front of what else it has, zeros")
    folder: bool = False
    fifo: bool = False
    link: str | None = None
    mode: str = Field(default="", description="octal; the usual one where it is empty")

    def make(self, path: Path) -> None:
        """Put it at ``path``, whose folder may be missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.folder:
            path.mkdir(exist_ok=True)
        elif self.fifo:
            os.mkfifo(path)
        elif self.link is not None:
            path.symlink_to(self.link)
        elif self.zeros is not None:
            path.touch()
            os.truncate(path, self.zeros)
        elif self.object is not None or self.program is not None:
            options, code = ("-c", self.object) if self.object is not None else ("-pie", self.program)
            argv = ["gcc", "-x", "c", options, "-o", str(path), "-"]
            subprocess.run(argv, input=code, text=True, check=True)
        else:
            content = bytes.fromhex(self.hex) if self.hex is not None else (self.text or "").encode()
            path.write_bytes(bytes(self.at) + content)
        if self.padding is not None:
            os.truncate(path, self.padding)
        if self.mode:
            path.chmod(int(self.mode, 8))

    def facts(self) -> str:
        """What it is, but for its text."""
        fields = self.model_dump(exclude_defaults=True, exclude={"text"})
        words = (key if value is True else f"{key} {value}" for key, value in fields.items())
        return " ".join(", ".join(words).split())


class Case(_Strict):
    """A command that has to fail. ``files`` are below the folder that it is called in; a text stands for its file."""

    title: str
    run: str
    files: Mapping[str, str | Given] = {}
    environment: Mapping[str, str] = {}
    modes: Literal["ignored", "count"] = Field(default="ignored", description="by root")
    changes: tuple[str, ...] = Field(default=(), description="what the command changes by design")

    def given(self) -> dict[str, Given]:
        """The files by their paths."""
        return {path: one if isinstance(one, Given) else Given(text=one) for path, one in self.files.items()}


class _Interface(_Strict):
    texts: Mapping[str, object] = Field(default={}, description="anchors for what several cases have")
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Trial:
    """What a command has said, and its exit status."""

    case: Case
    output: str
    status: int

    def section(self, shown: dict[str, str]) -> str:
        """It as a section of a golden file. ``shown`` has the texts of files in earlier ones, with their titles."""
        lines = [f"# {self.case.title}"]
        for path, given in self.case.given().items():
            lines.append(f"{path}: {given.facts()}".rstrip(": "))
            if given.text:
                first = shown.setdefault(given.text, self.case.title)
                lines[-1] += "" if first == self.case.title else f" (as in: {first})"
                lines += [f"    {line}".rstrip() for line in given.text.splitlines() if first == self.case.title]
        settings = [f"{name}={shlex.quote(value)} " for name, value in self.case.environment.items()]
        command = f"$ {''.join(settings)}orchestrator {self.case.run}"
        return "\n".join([*lines, command, self.output + f"status {self.status}", "", ""])


def cases(interface: str) -> tuple[Case, ...]:
    """The wrong inputs of an interface."""
    text = (DATA / f"{interface}.yaml").read_text("utf-8")
    return _Interface.model_validate(yaml.safe_load(text)).cases


def tried(case: Case, folder: Path) -> Trial:
    """Call a case's command in ``folder/here``, which is empty before and after; cache and lab are beside it.

    ``folder/linux`` is a kernel's build tree, as far as it is looked at before a guest starts: it builds modules.
    """
    here = folder / "here"
    here.mkdir()
    for path, given in case.given().items():
        given.make(here / path)
    before = _content(here)
    modes = reading_by_modes() if case.modes == "count" else contextlib.nullcontext()
    with pytest.MonkeyPatch.context() as patch, modes:
        patch.chdir(here)
        settings = {"COLUMNS": "100", "ORCHESTRATOR_CACHE": f"{folder}/cache", "ORCHESTRATOR_LAB": f"{folder}/lab"}
        for name, value in {**settings, **case.environment}.items():
            patch.setenv(name, value)
        result = CliRunner().invoke(app, shlex.split(case.run))
    assert result.exception is None or isinstance(result.exception, SystemExit), (case.title, result.exc_info)
    changed = {path for path, _ in before.items() ^ _content(here).items()}
    assert changed == set(case.changes), case.title
    assert not list(folder.glob("lab/runs/*")), case.title
    output = result.output.replace(str(here), "HERE").replace(str(folder), "FOLDER")
    output = output.replace(str(data_dir("configs").parent), "CHECKOUT")
    lines = [line.rstrip() for line in output.splitlines() if not _COMPILERS_ASIDE.match(line)]
    output = "".join(f"{line}\n" for line in lines)
    for pattern, word in _HOST_DEPENDENT.items():
        output = re.sub(pattern, word, output)
    _remove(here)
    return Trial(case, output, result.exit_code)


def make_tree(folder: Path) -> None:
    """Put the build tree of a small kernel at ``folder/linux``."""
    shutil.copytree(DATA / "linux", folder / "linux")
    options = ["X86", "MODULES", "MODULE_UNLOAD", "KALLSYMS", "DEBUG_FS", "KPROBES", "SERIAL_8250_CONSOLE"]
    options += ["BLK_DEV_INITRD", "VIRTIO_PCI", "VIRTIO_CONSOLE", "X86_64"]
    options += ["VIRTIO_BLK", "EXT4_FS", "SQUASHFS", "SQUASHFS_LZ4"]
    files = {
        ".config": "".join(f"CONFIG_{option}=y\n" for option in options),
        "include/config/kernel.release": "6.1.0-mine\n",
        "Module.symvers": "",
        "arch/x86/boot/bzImage": "\0" * 0x202 + "HdrS",
    }
    for name, text in files.items():
        (folder / "linux" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "linux" / name).write_text(text)


def _content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What a folder holds, by path: the mode, and the content or a link's target.

    Of what its mode keeps this user from reading, no content: root, whom modes do not keep off, compares that, too.
    """
    pairs = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        content = os.fsencode(path.readlink()) if path.is_symlink() else b""
        if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
            content = path.read_bytes() if facts.st_size < 1 << 20 else str(facts.st_size).encode()
        pairs[str(path.relative_to(folder))] = (facts.st_mode, content)
    return pairs


def _remove(folder: Path) -> None:
    """Remove a folder with what is in it, whatever their modes."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder)
