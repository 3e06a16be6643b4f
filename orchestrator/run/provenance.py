# SPDX-License-Identifier: GPL-2.0-only
"""A run's provenance: enough to repeat it, and to see why another run differs."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.diagnostics import WARNINGS_FILE
from orchestrator.artifacts.digests import of_file as recorded_digest
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.sources import OF_THE_LAB, UserSource
from orchestrator.artifacts.toolchain import guest_toolchain
from orchestrator.catalog.debian_release import debian
from orchestrator.catalog.probes import probe_name
from orchestrator.errors import LabError, UsageError
from orchestrator.files import sha256_of, write_whole
from orchestrator.guest.qemu_facts import qemu_version
from orchestrator.run.benchmark_kind import BootArtifacts, Prepared
from orchestrator.run.boot_events import GuestBooted
from orchestrator.version import __version__

_FILE = "provenance.json"
_LONGEST_NAME = 100
"""Length of a line in its folder's name; file systems allow 255 bytes."""
_BEGIN_ANEW = "leave out --resume to start a new run"
_PARTS = ("kernel", "image", "work", "kernel_modules")
"""Parts in which boots may differ by name; the same name must mean the same content."""
_TOOLS = ("orchestrator", "qemu", "compiler")


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sessions: list[dict[str, object]] = []
    boots: list[dict[str, object]] = []


class _Input(BaseModel):
    file: str = ""
    key: str = ""


class _Module(_Input):
    name: str = ""
    file_sha256: str = ""


class _Kernel(BaseModel):
    name: str = ""


class _Recorded(BaseModel):
    """A boot's recorded sources; earlier versions recorded only modules."""

    kernel: _Kernel = _Kernel()
    modules: dict[str, _Module] = {}
    sources: dict[str, dict[str, str]] = {}
    inputs: dict[str, dict[str, _Input]] = {}

    def places(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Digests by title: of each user's file by its path, and of each cell's modules and lines."""
        for cell, inputs in self.inputs.items():
            yield from ((artifact.file or cell, self.sources.get(artifact.key, {})) for artifact in inputs.values())
        yield from ((name, self.sources.get(module.key, {})) for name, module in self.modules.items())


def host_facts(context: BuildContext) -> dict[str, object]:
    """The host, its QEMU, the compiler for guests, their Debian release, and this program.

    Raises HostError if QEMU or a compiler is missing.
    """
    return {
        "orchestrator": __version__,
        "python": platform.python_version(),
        "qemu": qemu_version(),
        "compiler": guest_toolchain(context).version,
        "guests": debian().title,
        "host": {"kernel": platform.release(), "machine": platform.machine(), "cpus": os.cpu_count()},
    }


class Provenance:
    """A run's ``provenance.json``, ``modules/`` and ``sources/``, extended by every boot."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / _FILE
        self._modules, self._texts = directory / "modules", directory / "sources"
        self._content = _Content()
        if self._file.exists():
            try:
                self._content = _Content.model_validate_json(self._file.read_bytes())
            except ValidationError:
                raise self._damaged() from None

    def session(self, facts: dict[str, object]) -> None:
        """A process starts to work on the run. Raises UsageError if its tools differ from earlier processes'."""
        for earlier in self._content.sessions:
            self._check_same({tool: earlier.get(tool) for tool in _TOOLS}, {tool: facts[tool] for tool in _TOOLS})
        self._content.sessions.append(facts)
        self._write()

    def boot(self, booted: GuestBooted, folder: str, artifacts: BootArtifacts) -> None:
        """Record a started guest: its command line, packages of kernel and image, and its modules.

        ``folder`` is the boot's. Raises UsageError if earlier cells of the run had another kernel of that name,
        initramfs or image of that name: their baseline is not this guest's.
        """
        modules: dict[str, dict[str, object]] = {}
        sources: dict[str, Mapping[str, str]] = {}  # by key, as cells share modules and workloads
        inputs: dict[str, dict[str, object]] = {}
        for cell, prepared in artifacts.cells.items():
            for role, source in prepared.sources.items():
                inputs.setdefault(cell, {})[role] = {"name": source.name, "file": source.file, "key": source.key}
                if source.key not in sources:
                    sources[source.key] = source.digests
                    self._keep_texts(source)
            for name, module in _modules_of(cell, prepared):
                modules[name] = {"name": module.name, "file_sha256": sha256_of(module.file), "key": module.key}
                if module.parameters:
                    modules[name]["parameters"] = dict(module.parameters)
                if module.key not in sources:
                    sources[module.key] = _source_hashes(module)
                    self._keep_sources(artifacts.kernel.spec.name, module)
        content = _made_of(booted, artifacts)
        for earlier in self._content.boots:
            if all(_part(earlier, part).get("name") == _part(content, part).get("name") for part in _PARTS):
                self._check_same(_parts(earlier), _parts(content))
        name = f"{folder}/{booted.name}"
        self._content.boots.append(
            {
                "name": name,
                **({"worker": booted.worker} if booted.worker else {}),
                "qemu": list(booted.command_line),
                **content,
                "modules": modules,
                **({"inputs": inputs} if inputs else {}),
                "sources": sources,
                "cells": list(artifacts.cells),
            }
        )
        self._write()

    def check_sources(self, artifacts: Iterable[BootArtifacts]) -> None:
        """Raise UsageError if source texts of cells still to measure differ from the run's earlier ones.

        The user's files are compared by path, what the lab generates for a cell by cell. A module of equal texts must
        have been built to the same file: headers of a user's kernel tree may have changed, and its image not.
        """
        artifacts = list(artifacts)
        earlier: dict[tuple[str, str], str] = {}
        try:
            boots = [_Recorded.model_validate(boot) for boot in self._content.boots]
        except ValidationError:
            raise self._damaged() from None
        for boot in boots:
            for place, digests in boot.places():
                earlier |= {(place, title): digest for title, digest in digests.items()}
        self._check_built(boots, artifacts)
        changed: dict[str, None] = {}
        for cell, prepared in chain.from_iterable(artifact.cells.items() for artifact in artifacts):
            places = [(source.file or cell, source.digests) for source in prepared.sources.values()]
            places += [(name, _source_hashes(module)) for name, module in _modules_of(cell, prepared)]
            for place, digests in places:
                for title, digest in digests.items():
                    if earlier.get((place, title), digest) != digest:
                        changed[_path_of(place, title)] = None
        if changed:
            raise UsageError(
                "changed since the run was started: its figures would mix two versions",
                where=next(iter(changed)),
                detail=list(changed)[1:],
                hint=f"{self._texts} has the version that the run was started with; {_BEGIN_ANEW}",
            )

    @staticmethod
    def _check_built(boots: Iterable[_Recorded], artifacts: Iterable[BootArtifacts]) -> None:
        earlier = {
            (boot.kernel.name, module.name, frozenset(boot.sources.get(module.key, {}).items())): module.file_sha256
            for boot in boots
            for module in boot.modules.values()
        }
        for artifact in artifacts:
            for prepared in artifact.cells.values():
                for module in prepared.modules:
                    key = (artifact.kernel.spec.name, module.name, frozenset(_source_hashes(module).items()))
                    now = sha256_of(module.file)
                    if earlier.get(key, now) != now:
                        what = f"module {module.name} is built from the same sources to another file than before"
                        hint = f"headers of {artifact.kernel.spec.name} or the compiler have changed; {_BEGIN_ANEW}"
                        raise UsageError(what, where=str(module.file), hint=hint)

    def _damaged(self) -> LabError:
        return LabError("damaged: the run cannot be resumed", where=str(self._file), hint=_BEGIN_ANEW)

    def _check_same(self, before: Mapping[str, object], now: Mapping[str, object]) -> None:
        changed = [
            f"{key}: was {before.get(key, 'absent')}, is {now.get(key, 'absent')}"
            for key in {**before, **now}
            if before.get(key) != now.get(key)
        ]
        if changed:
            raise UsageError(
                "the run was started with something else: its numbers and new ones cannot be mixed",
                where=str(self._file),
                detail=changed,
                hint=_BEGIN_ANEW,
            )

    def _keep_sources(self, kernel: str, module: Module) -> None:
        folder = self._modules / kernel / f"{module.name}-{module.key[:8]}"
        if module.sources is not None:
            shutil.copytree(module.sources, folder, dirs_exist_ok=True)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(module.file, folder)

    def _keep_texts(self, source: UserSource) -> None:
        name = probe_name(Path(source.name.replace("/", "_")))[:_LONGEST_NAME]
        for title, text in source.texts.items():
            # Keeps files from a sibling folder of the main file's below the run's own.
            place = self._texts / f"{name}-{source.key[:8]}" / title.replace("..", "_")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def _write(self) -> None:
        write_whole(self._file, self._content.model_dump_json(indent=1) + "\n")


def _made_of(booted: GuestBooted, artifacts: BootArtifacts) -> dict[str, object]:
    kernel = artifacts.kernel
    content: dict[str, object] = {
        "kernel": {
            "name": kernel.spec.name,
            "release": kernel.release,
            "packages": dict(kernel.packages),
            "origin": dict(kernel.origin),
            "image_sha256": recorded_digest(kernel.image),
            **({} if not kernel.spec.options else {"options": kernel.spec.options.splitlines()}),
            **({} if not kernel.implied else {"implied_options": dict(kernel.implied)}),
            **({} if kernel.packaged is None else {"packaged_image_sha256": recorded_digest(kernel.packaged)}),
        },
        "initramfs_sha256": recorded_digest(artifacts.machine.initramfs),
    }
    if booted.restored_from is not None:
        content["restored_from"] = booted.restored_from
    if booted.work:
        content["work"] = dict(booted.work)
    root = artifacts.machine.root
    if root is not None:
        content["image"] = {"name": root.name, "key": root.key, "packages": dict(root.packages)}
    if artifacts.kernel_modules:
        files = {name: sha256_of(file) for name, file in artifacts.kernel_modules.items()}
        content["kernel_modules"] = {"name": ", ".join(files), "file_sha256": files}
    return content


def _part(boot: Mapping[str, object], name: str) -> dict[str, object]:
    content = boot.get(name)
    return dict(content) if isinstance(content, dict) else {}


def _parts(boot: Mapping[str, object]) -> dict[str, object]:
    """What a boot's numbers depend on, by part."""
    kernel = _part(boot, "kernel")
    kernel.pop("origin", None)  # suites may share a package
    return {
        **{name: value for name, value in kernel.items() if name != "packages"},
        **_part(kernel, "packages"),
        "image": _part(boot, "image").get("key"),
        **_part(boot, "work"),
        **_part(_part(boot, "kernel_modules"), "file_sha256"),
        "initramfs_sha256": boot.get("initramfs_sha256"),
    }


def _modules_of(cell: str, prepared: Prepared[Any]) -> Iterator[tuple[str, Module]]:
    """A cell's modules, by the names they are recorded under."""
    for module in prepared.modules:
        yield (cell if len(prepared.modules) == 1 else f"{cell}: {module.name}"), module


def _path_of(place: str, title: str) -> str:
    """A source's name for people: a path, a file of the lab's, or a file of a cell's module."""
    if title.startswith(OF_THE_LAB):
        return title
    path = Path(place)
    return os.path.normpath(path.parent / title) if path.is_absolute() else f"{place}: {title}"


def _source_hashes(module: Module) -> dict[str, str]:
    """SHA-256 of each source file of a module, by name; of a user's .ko, its own."""
    if module.sources is None:
        return {module.file.name: sha256_of(module.file)}
    files = (path for path in sorted(module.sources.rglob("*")) if path.is_file() and path.name != WARNINGS_FILE)
    return {str(path.relative_to(module.sources)): sha256_of(path) for path in files}
