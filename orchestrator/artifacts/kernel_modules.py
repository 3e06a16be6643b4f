# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's own modules as a disk that guests only read: what modprobe looks for in /lib/modules/RELEASE."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.data_disk import OPTIONS
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_files import BUILT_IN, lists_folder, module_files
from orchestrator.errors import BuildError, UsageError
from orchestrator.process import run
from orchestrator.requirements import check_installed

_KIND = "kernel-modules"
_FILE = "modules.squashfs"
_LIMIT = 1800.0
_DEPMOD = "/usr/sbin/depmod"
_LISTS = ("modules.order", BUILT_IN, f"{BUILT_IN}.modinfo")
"""What the kernel's own build writes beside its modules, and depmod reads."""


def kernel_modules(context: BuildContext, kernel: Kernel) -> Path:
    """The squashfs file of all modules of a kernel, with depmod's index; made where it is not in the cache.

    They are those of Debian's package, or those that a build tree has built. Raises UsageError for a kernel without
    any, HostError, BuildError.
    """
    folder, files = lists_folder(kernel), module_files(kernel)
    lists = [folder / name for name in _LISTS if (folder / name).is_file()]
    if not files:
        raise UsageError(
            f"kernel '{kernel.spec.name}' has no modules of its own: what it has is built in",
            hint="leave out --kernel-modules (in a test's mark: kernel_modules), or take a kernel of Debian's",
        )
    # A tree's modules may be built anew while its kernel stays the same.
    content = {} if kernel.packages else {name: _digest(file) for name, file in files.items()}

    def build(place: Path) -> None:
        for name in ("image-packages.txt", "module-packages.txt"):
            check_installed(name, "a guest with its kernel's own modules")
        context.say(f"packing the modules of {kernel.spec.name}")
        base = place / "base"
        tree = base / "lib/modules" / kernel.release
        for name, file in files.items():
            copy = tree / "kernel" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        for file in lists:
            shutil.copyfile(file, tree / file.name)
        _run(kernel, [_DEPMOD, "-b", str(base), kernel.release])
        _run(kernel, ["mksquashfs", str(tree), str(place / _FILE), *OPTIONS])
        shutil.rmtree(base)

    inputs = {"kernel": kernel.key, "content": content, "options": list(OPTIONS)}
    return context.cache.obtain(_KIND, inputs, f"modules of {kernel.spec.name}", build).path / _FILE


def _run(kernel: Kernel, command: list[str]) -> None:
    finished = run(command, time_limit=_LIMIT, environment={"SOURCE_DATE_EPOCH": None})
    if finished.status != 0:
        raise BuildError(f"the modules of {kernel.spec.name} cannot be packed", detail=finished.complaint())


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
