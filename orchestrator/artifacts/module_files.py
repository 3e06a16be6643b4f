# SPDX-License-Identifier: GPL-2.0-only
"""The modules of its own that a kernel has: their files, and the order in which they are loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from orchestrator.artifacts.drivers import module_name, ordered
from orchestrator.artifacts.kernels import Kernel
from orchestrator.catalog.spelling import nearest
from orchestrator.errors import LabError

BUILT_IN = "modules.builtin"


def module_files(kernel: Kernel) -> Mapping[str, Path]:
    """The files of a kernel's modules by their paths: of Debian's package, or those that a build tree has built.

    Raises LabError for a damaged list in a build tree.
    """
    if kernel.modules.is_dir():
        return _files_of_package(kernel.modules)
    return {name: kernel.headers / name for name in _ordered(kernel.headers)}


def lists_folder(kernel: Kernel) -> Path:
    """The folder with the lists that the kernel's build writes beside its modules, such as ``modules.builtin``."""
    return kernel.modules.parent if kernel.modules.is_dir() else kernel.headers


def loaded_files(kernel: Kernel, names: Sequence[str]) -> Mapping[str, Path]:
    """The files that the kernel loads for modules, by the names it lists them by, each behind what it depends on.

    Nothing of what is built in or not there. Raises LabError for a file that is no module.
    """
    if not names:
        return {}
    if kernel.modules.is_dir():
        return _loaded_of_package(kernel.modules, tuple(names))
    return _in_order(module_files(kernel), names)


@lru_cache(maxsize=64)
def _loaded_of_package(modules: Path, names: Sequence[str]) -> Mapping[str, Path]:
    """Each cell with a point in a module asks, and to look through the 4,000 files of a Debian kernel takes 0.1 s.

    What a package was unpacked into stays as it is. A build tree may be built again, so its files are looked for anew.
    """
    return _in_order(_files_of_package(modules), names)


def _in_order(files: Mapping[str, Path], names: Sequence[str]) -> Mapping[str, Path]:
    by_name = {module_name(file.name): file for file in files.values()}
    return {module_name(file.name): file for file in ordered(by_name, names)}


def missing_module_reason(kernel: Kernel, names: Sequence[str]) -> str | None:
    """Why a kernel cannot have modules of these names, with the nearest one; None where it has all of them."""
    if not names:
        return None
    found = {module_name(file.name) for file in module_files(kernel).values()}
    if not found:
        return "it has no modules of its own: what it has is built in"
    known = found | _built_in(kernel)
    for name in names:
        if module_name(name) not in known:
            guess = nearest(module_name(name), sorted(known))
            return f"it has no module {name} of its own" + (f"; did you mean {guess}?" if guess else "")
    return None


def _files_of_package(modules: Path) -> Mapping[str, Path]:
    return {str(file.relative_to(modules)): file for file in sorted(modules.rglob("*.ko*"))}


def _built_in(kernel: Kernel) -> set[str]:
    try:
        listed = (lists_folder(kernel) / BUILT_IN).read_text(errors="replace")
    except OSError:
        return set()
    return {module_name(Path(line).name) for line in listed.split()}


def _ordered(tree: Path) -> list[str]:
    """The modules that a build tree says it has built, those of them that are there."""
    try:
        names = (tree / "modules.order").read_text().split()
    except OSError:
        return []
    except UnicodeDecodeError:
        raise LabError(f"{tree / 'modules.order'} is no list of modules", hint="build the kernel again") from None
    # The list of Linux 6.1 has .ko, that of 6.12 has .o.
    files = (str(Path(name).with_suffix(".ko")) for name in names)
    return [name for name in files if (tree / name).is_file() and ".." not in Path(name).parts]
