# SPDX-License-Identifier: GPL-2.0-only
"""Whether the kernel in a user's build tree is what its sources and its configuration say now, as make would decide."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.catalog.kernels import IMAGE, read_config
from orchestrator.errors import UsageError
from orchestrator.program import command

_SOURCES = (".c", ".h", ".S")
_MAKEFILES = ("Makefile", "Kbuild")
_NOT_COMPILED = (".git", "Documentation")
_GENERATED = ("include/generated", "arch/x86/include/generated", "arch/x86/boot", "scripts", "tools", "certs")
_NAMES = re.compile(rb"[^\s:;\"'\\()$]+")
_CHANGED_OPTIONS = "include/config/auto.conf"
"""The configuration as make has last used it: the lines of .config that set an option."""
_MOST_NAMED = 4


class UnbuiltTreeError(UsageError):
    """A user's tree has changed since its kernel was built: another kernel than the tree's would be measured."""


def source_of(tree: Path) -> Path:
    """The source of a build tree: itself, or what the link of a build folder (O=) leads to."""
    return (tree / "source").resolve() if (tree / "source").is_dir() else tree


def source_files(source: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The C and assembly sources and the makefiles of a kernel for x86 that no build generates, with their status."""
    left_out = {*_GENERATED, *_NOT_COMPILED}
    folders = [("", str(source))]
    while folders:
        below, folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if name not in left_out and (below != "arch/" or entry.name == "x86"):
                        folders.append((f"{name}/", entry.path))
                elif entry.name in _MAKEFILES or (entry.name.endswith(_SOURCES) and not entry.name.endswith(".mod.c")):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)


def check_built(context: BuildContext, tree: Path, image: Path) -> None:
    """Check once in a command that the kernel ``image`` in ``tree`` is that of the tree's sources and configuration.

    Raises UnbuiltTreeError, which names what has changed, and OSError.
    """
    stamp = ("built tree", tree, image, image.stat().st_mtime_ns)
    if stamp in context.checked:
        return
    options = _changed_options(tree)
    if options:
        what = f"the configuration has changed since the kernel in {tree} was built: {_some(options)}"
        raise UnbuiltTreeError(what, where=str(tree / ".config"), hint=_hint(tree))
    source, built = source_of(tree), _built_at(tree, image)
    later = [file for file, status in source_files(source) if status.st_mtime_ns > built]
    if later:
        changed = [*_not_compiled(tree, later, built), *_not_listed(tree, source, later)]
        if changed:
            more = f", and {_some(_below(source, changed[1:]))}" if changed[1:] else ""
            what = f"changed since the kernel in {tree} was built{more}"
            raise UnbuiltTreeError(what, where=str(changed[0]), hint=_hint(tree))
        makefiles = [file for file in later if file.name in _MAKEFILES]
        if makefiles:
            named = _some(_below(source, makefiles))
            context.warn(
                f"{named} in {source} changed since the kernel was built: if it compiles other code now, build it"
            )
    context.checked.add(stamp)


def _hint(tree: Path) -> str:
    return f"build it again: {command('build', '--tree', str(tree))}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join([*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def _below(source: Path, files: Iterable[Path]) -> Sequence[str]:
    return [str(file.relative_to(source)) for file in files]


def _built_at(tree: Path, image: Path) -> int:
    """When the kernel was last built, in ns: make writes the compressed image after a vmlinux."""
    images = [image, tree / IMAGE] if image.name == "vmlinux" else [image]
    return max(file.stat().st_mtime_ns for file in images if file.is_file())


def _changed_options(tree: Path) -> Sequence[str]:
    used = tree / _CHANGED_OPTIONS
    if not used.is_file():
        return ()
    before, now = (
        {option: _unquoted(value) for option, value in read_config(file).items()} for file in (used, tree / ".config")
    )
    names = [option for option in {**before, **now} if before.get(option) != now.get(option)]
    return [f"{option} is {now.get(option, 'n')}, and was {before.get(option, 'n')}" for option in sorted(names)]


def _unquoted(value: str) -> str:
    """A value without a string's quotes, which the auto.conf of Linux 6.1 and later has not."""
    is_text = len(value) > 1 and value.startswith('"') and value.endswith('"')
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if is_text else value


def _not_compiled(tree: Path, later: Sequence[Path], built: int) -> Sequence[Path]:
    """The files that an older object, or an object that is not linked yet, was made from.

    kbuild writes into ``.NAME.cmd`` what NAME was made from. A file that is in no object is no part of this kernel.
    """
    named: dict[bytes, list[Path]] = {}
    for file in later:
        named.setdefault(os.fsencode(file.name), []).append(file)
    times = {file: file.lstat().st_mtime_ns for file in later}
    compiled: set[Path] = set()
    for record in _records(tree):
        content = record.read_bytes()
        made = record.with_name(record.name.removeprefix(".").removesuffix(".cmd"))
        parts = {word for word in set(_NAMES.findall(content)) if word.rpartition(b"/")[2] in named}
        if not parts or not made.exists():
            continue
        at = made.stat().st_mtime_ns
        for part in parts:
            place = os.path.realpath(tree / os.fsdecode(part))
            for file in named[part.rpartition(b"/")[2]]:
                is_of_module = b"-DMODULE" in content
                if place == os.path.realpath(file) and (at < times[file] or (at > built and not is_of_module)):
                    compiled.add(file)
    return [file for file in later if file in compiled]


def _records(tree: Path) -> Iterator[Path]:
    """The ``.NAME.cmd`` of objects, assembly and linker scripts of the kernel and its modules."""
    folders = [str(tree)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.startswith(".") and entry.name.endswith((".o.cmd", ".s.cmd", ".lds.cmd")):
                    yield Path(entry.path)


def _not_listed(tree: Path, source: Path, later: Sequence[Path]) -> Sequence[Path]:
    """New files that a changed makefile beside them names, and that have no object."""
    makefiles: Mapping[Path, str] = {
        folder: "".join(
            (folder / name).read_text(errors="replace") for name in _MAKEFILES if (folder / name) in set(later)
        )
        for folder in {file.parent for file in later if file.name in _MAKEFILES}
    }
    return [
        file
        for file in later
        if file.suffix in (".c", ".S")
        and not (tree / file.relative_to(source)).with_suffix(".o").exists()
        and re.search(rf"(?<![\w.-]){re.escape(file.stem)}\.o\b", makefiles.get(file.parent, ""))
    ]
