# SPDX-License-Identifier: GPL-2.0-only
"""A user's kernel, by the path of its build tree or of an image in it, with a name or without: ``mine=./build``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.catalog.kconfig import read_config
from orchestrator.errors import ConfigError
from orchestrator.paths import AWKWARD, kbuild_takes, user_path
from orchestrator.program import PROGRAM

IMAGE = Path("arch/x86/boot/bzImage")
RELEASE = Path("include/config/kernel.release")

_ELF = b"\x7fELF"
_BOOT_MARK = (0x202, b"HdrS")

_MAKE = "make bzImage modules"

_CPU_FAMILIES = {"5": 5, "6": 6}
"""Values of CONFIG_X86_MINIMUM_CPU_FAMILY; a 64-bit kernel has 64, and needs long mode instead."""

_NEEDED = {
    "CONFIG_MODULES": "probes are modules",
    "CONFIG_MODULE_UNLOAD": "they are taken out again",
    "CONFIG_KALLSYMS": "probe points are found by their symbols",
    "CONFIG_DEBUG_FS": "the kernel's list of kprobes is there",
    "CONFIG_KPROBES": "probes are kprobes, or find their way by one",
    "CONFIG_SERIAL_8250_CONSOLE": "the console is a serial port",
    "CONFIG_BLK_DEV_INITRD": "all programs come in an initramfs",
}


_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._+-]{0,39})=(.*/.*)", re.DOTALL)


def is_path(name: str) -> bool:
    """Whether a kernel's name is a path: it has a slash in it, which no name of the catalogue has."""
    return "/" in name


def named_path(name: str) -> tuple[str | None, str]:
    """The name that the user has given to a kernel, if any, and its path: of ``mine=./build``, ``mine``."""
    found = _NAMED.fullmatch(name)
    return (None, name) if found is None or user_path(name).exists() else (found[1], found[2])


def placed(name: str, place: Callable[[str], str]) -> str:
    """A user's kernel with its path replaced by what ``place`` makes of that."""
    given, path = named_path(name)
    return place(path) if given is None else f"{given}={place(path)}"


def find_tree(name: str) -> tuple[Path, Path]:
    """The build tree and the image at a path. Raises ConfigError with what is missing, and OSError."""
    path = user_path(named_path(name)[1])
    if path.is_dir():
        tree, image = path, path / IMAGE
    elif path.is_file():
        tree = next((folder for folder in path.parents if (folder / ".config").is_file()), path.parent)
        image = path
    else:
        commits = "a commit of a tree is measured by bisect, and by compare --config" if "@" in name else ""
        raise ConfigError(f"found {name!r}; there is no such kernel image or build tree", hint=commits)
    if path.is_file() and not (tree / ".config").is_file():
        raise ConfigError(
            f"found {name!r}; it is in no build tree: no folder above it has a .config",
            hint=_hint_of_installed(path) or "name an image in the tree that it was built in: modules are built there",
        )
    if not kbuild_takes(tree):
        what = f"modules cannot be built for it: the path of {tree} has {AWKWARD}"
        raise ConfigError(f"found {name!r}; {what}", hint="move or rename the tree")
    for file, what in ((tree / ".config", "the configuration"), (tree / RELEASE, "the release"), (image, "the image")):
        if not file.is_file():
            raise ConfigError(
                f"found {name!r}; its build tree {tree} is not whole: {what} ({file.relative_to(tree)}) is not there",
                hint=f"build it first: {_MAKE if what != 'the configuration' else f'make menuconfig, then {_MAKE}'}",
            )
    return tree, image


def _hint_of_installed(path: Path) -> str:
    """What to do instead of naming a kernel that a host is booted with; empty where it is none by its name."""
    if not path.name.startswith("vmlinuz"):
        return ""
    return (
        "a host's own kernel is installed without the tree that it was built in; take one that the lab fetches, "
        f"such as debian-amd64 (all: {PROGRAM} list kernels), or build one"
    )


def describe(name: str) -> dict[str, object]:
    """A KernelSpec's fields for the kernel at a path. Raises ConfigError where it cannot be a guest's."""
    try:
        tree, image = find_tree(name)
        config = read_config(tree / ".config")
        image = bootable(tree, image, config)
        is_image = _is_image(image)
    except OSError as error:
        path = user_path(named_path(name)[1])
        file = f"{error.filename} " if error.filename and Path(error.filename) != path else "it "
        hint = _hint_of_installed(path)
        raise ConfigError(f"found {name!r}; {file}cannot be read: {error.strerror}", hint=hint) from None
    lacking = [f"{option} ({why})" for option, why in _NEEDED.items() if config.get(option) != "y"]
    if "CONFIG_X86" not in config:
        raise ConfigError(f"found {name!r}; it is not a kernel for x86")
    if lacking:
        missing = [option.removeprefix("CONFIG_") for option in _NEEDED if config.get(option) != "y"]
        hint = f"in {tree}: scripts/config {' '.join(f'-e {option}' for option in missing)}, and build it again"
        raise ConfigError(f"found {name!r}; it was built without {', '.join(lacking)}", hint=hint)
    if not is_image:
        raise ConfigError(f"found {name!r}; {image} is no kernel's image", hint=f"build it again: {_MAKE}")
    long_mode = config.get("CONFIG_X86_64") == "y"
    stem = re.sub(r"[^A-Za-z0-9._+-]+", "-", tree.name).strip("-.+_") or "kernel"
    return {
        "name": named_path(name)[0] or f"own-{stem[:40]}-{hashlib.sha256(str(tree).encode()).hexdigest()[:6]}",
        "title": f"the kernel built in {tree}",
        "arch": "x86_64" if long_mode else "i386",
        "tree": tree,
        "image": image,
        "cpu_family": _CPU_FAMILIES.get(config.get("CONFIG_X86_MINIMUM_CPU_FAMILY", ""), 4),
        "needs_pae": long_mode or config.get("CONFIG_X86_PAE") == "y",
        "entry_offset": entry_offset(config),
    }


def bootable(tree: Path, image: Path, config: Mapping[str, str]) -> Path:
    """The file that QEMU can load for ``image``: it starts a vmlinux only by a PVH entry, which few kernels have.

    Without one it is the bzImage, if that is newer than the vmlinux. Raises ConfigError, OSError.
    """
    if image.name != "vmlinux" or config.get("CONFIG_PVH") == "y":
        return image
    compressed = tree / IMAGE
    if not compressed.is_file() or compressed.stat().st_mtime < image.stat().st_mtime:
        raise ConfigError(
            f"found {str(image)!r}; it was built without CONFIG_PVH, so only a bzImage of it can boot, and {IMAGE} "
            "is older or not there",
            hint=f"build it first: {_MAKE}",
        )
    return compressed


def _is_image(file: Path) -> bool:
    """Whether a file begins as a vmlinux or a bzImage does (Documentation/arch/x86/boot.rst)."""
    with file.open("rb") as opened:
        begin = opened.read(_BOOT_MARK[0] + len(_BOOT_MARK[1]))
    return begin.startswith(_ELF) or begin[_BOOT_MARK[0] :] == _BOOT_MARK[1]


def entry_offset(config: Mapping[str, str]) -> int:
    """Bytes before the first own instruction of most functions: an endbr, and the nop of the function tracer."""
    endbr = 4 if config.get("CONFIG_X86_KERNEL_IBT") == "y" else 0
    return endbr + (5 if config.get("CONFIG_DYNAMIC_FTRACE") == "y" else 0)
