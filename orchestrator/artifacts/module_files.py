# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's own modules: files, dependencies, loading order."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from orchestrator.artifacts.kernel_image import unpacked
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.data import nearest
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import LabError

_LARGEST = 64 << 20  # bytes of a module; amdgpu.ko has 14 MB


def with_dependencies(modules: Path, names: Sequence[str]) -> list[Path]:
    """Modules below a kernel's folder, each after its dependencies (``depends=``). Built-in ones are left out."""
    return list(in_order(modules.rglob("*.ko*"), names).values())


def in_order(modules: Iterable[Path], names: Sequence[str]) -> Mapping[str, Path]:
    """The wanted modules' files by name, each after its dependencies among them. Raises LabError."""
    files = {module_name(path.name): path for path in modules}
    paths: dict[str, Path] = {}

    def add(name: str) -> None:
        path = files.pop(module_name(name), None)
        if path is not None:
            for dependency in module_info(path).get("depends", "").split(","):
                add(dependency)
            paths[module_name(name)] = path

    for name in names:
        add(name)
    return paths


def module_info(path: Path) -> dict[str, str]:
    """A module's .modinfo: ``depends``, ``vermagic``, ``license`` and so on. Raises LabError for any other file."""
    try:
        section = ELFFile(io.BytesIO(module_content(path))).get_section_by_name(".modinfo")
        if section is None:
            raise ELFError("it has no .modinfo")
        entries = section.data().decode(errors="replace").split("\0")
    except (OSError, *DAMAGED) as error:
        raise LabError(f"{path} is not a kernel module ({error})") from None
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def module_content(path: Path) -> bytes:
    """A module's file, decompressed if necessary. Raises OSError, and LabError for a damaged or too large one."""
    content = path.read_bytes()
    whole = content if path.suffix == ".ko" else unpacked(content, _LARGEST)
    if whole is None:
        raise LabError(f"{path} is not a kernel module: it is damaged, or larger than {_LARGEST >> 20} MiB")
    return whole


def unpacked_name(path: Path) -> str:
    """The file name without a compression suffix."""
    return f"{path.name.partition('.ko')[0]}.ko"


def module_name(text: str) -> str:
    """A module's name as the kernel lists it, from its file name: without suffixes, with underscores."""
    return text.partition(".ko")[0].replace("-", "_")


BUILT_IN = "modules.builtin"


def module_files(kernel: Kernel) -> Mapping[str, Path]:
    """The files of a kernel's modules by relative path, packaged or built. Raises LabError for a damaged list."""
    if kernel.modules.is_dir():
        return {str(file.relative_to(kernel.modules)): file for file in sorted(kernel.modules.rglob("*.ko*"))}
    tree = kernel.headers
    try:
        listed = (tree / "modules.order").read_text().split()
    except OSError:
        return {}
    except UnicodeDecodeError:
        raise LabError(f"{tree / 'modules.order'} is not a list of modules", hint="build the kernel again") from None
    # The list of Linux 6.1 has .ko, that of 6.12 has .o.
    files = {str(file): tree / file for file in (Path(name).with_suffix(".ko") for name in listed)}
    return {name: file for name, file in files.items() if file.is_file() and ".." not in Path(name).parts}


def lists_folder(kernel: Kernel) -> Path:
    """The folder with the build's lists of modules, such as ``modules.builtin``."""
    return kernel.modules.parent if kernel.modules.is_dir() else kernel.headers


def loaded_files(kernel: Kernel, names: Sequence[str]) -> Mapping[str, Path]:
    """The files to load for these modules, by name, in loading order. Raises LabError for files of another kind."""
    if not names:
        return {}
    if kernel.modules.is_dir():
        return _loaded_of_package(kernel.modules, tuple(names))
    return in_order(module_files(kernel).values(), names)


@lru_cache(maxsize=64)
def _loaded_of_package(modules: Path, names: Sequence[str]) -> Mapping[str, Path]:
    """Cached: searching the 4,000 files of a Debian kernel takes 0.1 s, and every cell asks."""
    return in_order(modules.rglob("*.ko*"), names)


def missing_module_reason(kernel: Kernel, names: Sequence[str]) -> str | None:
    """Why a kernel lacks modules of these names, with the nearest name; None if it has them all."""
    if not names:
        return None
    modules = {module_name(file.name) for file in module_files(kernel).values()}
    if not modules:
        return "it has no modules: everything is built in"
    with contextlib.suppress(OSError):
        built_in = (lists_folder(kernel) / BUILT_IN).read_text(errors="replace")
        modules |= {module_name(Path(line).name) for line in built_in.split()}
    for name in names:
        if module_name(name) not in modules:
            guess = nearest(module_name(name), sorted(modules))
            return f"it has no module {name} of its own" + (f"; did you mean {guess}?" if guess else "")
    return None
