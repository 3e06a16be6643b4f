# SPDX-License-Identifier: GPL-2.0-only
"""What a run was made with: enough to repeat it, and to see why another run differs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from pathlib import Path

from orchestrator import __version__
from orchestrator.artifacts.compiler import compiler_version
from orchestrator.artifacts.modules import Module
from orchestrator.experiment.supplies import Supplies, Target
from orchestrator.guest.machine import QEMU
from orchestrator.process import run

_FILE = "provenance.json"


def host_facts() -> dict[str, object]:
    """The host, its QEMU and compiler, and this program. Raises HostError where QEMU or the compiler is missing."""
    return {
        "orchestrator": __version__,
        "python": platform.python_version(),
        "qemu": run([QEMU, "--version"], time_limit=10).stdout.splitlines()[0],
        "compiler": compiler_version(),
        "host": {"kernel": platform.release(), "machine": platform.machine(), "cpus": os.cpu_count()},
    }


class Provenance:
    """A run's ``provenance.json`` and ``modules/``; grows with every boot."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / _FILE
        self._modules = directory / "modules"
        self._content: dict[str, list[object]] = {"sessions": [], "boots": []}
        if self._file.exists():
            self._content = json.loads(self._file.read_text())

    def session(self, facts: dict[str, object]) -> None:
        """A process begins to work on the run."""
        self._content["sessions"].append(facts)
        self._write()

    def boot(self, name: str, supplies: Supplies, argv: tuple[str, ...]) -> None:
        """A guest was booted: its command line, its kernel's packages and the modules that go into it."""
        modules = {}
        for cell, target in supplies.targets.items():
            if isinstance(target, Target) and isinstance(target.module, Module):
                modules[cell] = {"file_sha256": _sha256(target.module.file), "key": target.module.key}
                self._keep_sources(supplies.kernel.spec.name, target.module)
        kernel = supplies.kernel
        self._content["boots"].append(
            {
                "name": name,
                "qemu": list(argv),
                "kernel": {
                    "name": kernel.spec.name,
                    "release": kernel.release,
                    "packages": dict(kernel.packages),
                    "image_sha256": _sha256(kernel.image),
                },
                "initramfs_sha256": _sha256(supplies.machine.initramfs),
                "modules": modules,
            }
        )
        self._write()

    def _keep_sources(self, kernel: str, module: Module) -> None:
        shutil.copytree(module.sources, self._modules / kernel / f"{module.name}-{module.key[:8]}", dirs_exist_ok=True)

    def _write(self) -> None:
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps(self._content, indent=1) + "\n")
        unfinished.replace(self._file)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
