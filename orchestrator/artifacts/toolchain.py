# SPDX-License-Identifier: GPL-2.0-only
"""Which compiler makes what runs in guests? The one that made their kernels, on every host.

Another compiler may put one instruction more into a path, and a number would then depend on the host.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from orchestrator.artifacts.apt import NoSuchPackageError
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debian import HOST_ARCHITECTURE, unpacked_packages
from orchestrator.catalog.debian import debian
from orchestrator.errors import HostError
from orchestrator.process import run

_KIND = "toolchains"
_NAME = "compiler"
_SCRIPT = Path(__file__).with_name("run-tool.sh")
_LIMIT = 60.0
_LLVM = {"LD": "ld.lld", **{tool.upper(): f"llvm-{tool}" for tool in ("ar", "nm", "strip", "objcopy", "readelf")}}
"""Variables of a kernel's build, and the programs that LLVM=1 gives them."""
_RELEASE = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Toolchain:
    """A compiler and its binutils.

    ``folder`` holds the programs by their plain names; None: they are found on the host's PATH. ``release`` is the
    compiler's version (``12.2.0``), ``version`` its own whole line. ``variables`` are make's for one on the PATH.
    """

    folder: Path | None
    release: str
    version: str
    name: str = "gcc"
    variables: tuple[str, ...] = ("CC=gcc",)

    @property
    def compiler(self) -> str:
        """The compiler and its release, as text."""
        return f"{self.name} {self.release}"

    def program(self, name: str) -> str:
        """What to call for ``gcc``, ``ld`` and their like."""
        return name if self.folder is None else str(self.folder / name)

    @property
    def packages(self) -> Path | None:
        """Where its packages are unpacked; None: they are installed on the host."""
        return None if self.folder is None else self.folder.parent / "packages"

    def takes(self, flag: str) -> bool:
        """Whether the compiler knows a flag."""
        return _takes(self.program("gcc"), flag)

    def for_make(self, folder: Path | None = None) -> list[str]:
        """The variables by which the kernel's build system takes these tools, from ``folder`` where one is given."""
        folder = folder or self.folder
        return list(self.variables) if folder is None else [f"CROSS_COMPILE={folder}/", f"CC={folder}/gcc"]


_found: dict[tuple[Path, str | None], Toolchain] = {}


def guest_toolchain(context: BuildContext) -> Toolchain:
    """The compiler of the guests' Debian release: the host's where it is the same, else that of the release's packages.

    Where the release has no such packages, the host's. Raises HostError where there is none at all.
    """
    return matching_toolchain(context, debian().compiler)


def matching_toolchain(context: BuildContext, release: str | None) -> Toolchain:
    """The compiler of that release, where the host or the guests' Debian has it; else the host's.

    It is the same for as long as the process lives. Raises HostError where it exists and cannot be fetched now.
    """
    # By the cache's folder: a context belongs to one run, and refers to all that this has printed.
    place = context.cache.root, release
    if place not in _found:
        _found[place] = _matching(context, release)
    return _found[place]


def tree_toolchain(context: BuildContext, config: Mapping[str, str]) -> Toolchain:
    """The compiler of a user's kernel: of its own release, or else of its major one, where the host has it.

    Else a gcc, as ``matching_toolchain`` does. Raises HostError as that does.
    """
    release = release_in(config)
    if release is None:
        return matching_toolchain(context, None)
    if _is_clang(config):
        return _installed_clang(release, config) or matching_toolchain(context, None)
    found = matching_toolchain(context, release)
    return found if found.release == release else _installed_gcc(release) or found


def _matching(context: BuildContext, release: str | None) -> Toolchain:
    host = _host_toolchain()
    if release in (None, host.release) or release != debian().compiler:
        return host
    try:
        return _debian_toolchain(context)
    except NoSuchPackageError as error:
        context.say(f"compiling with the host's gcc {host.release}, for there is no gcc {release}: {error.what}")
        return host


def release_in(config: Mapping[str, str]) -> str | None:
    """The release of the compiler that a kernel was configured with; None where its configuration does not say it."""
    number = config.get("CONFIG_CLANG_VERSION" if _is_clang(config) else "CONFIG_GCC_VERSION", "")
    if not number.isdecimal() or int(number) == 0:
        return None
    return f"{int(number) // 10000}.{int(number) // 100 % 100}.{int(number) % 100}"


def compiler_in(config: Mapping[str, str]) -> str | None:
    """The compiler that a kernel was configured with, and its release; None where that is not known."""
    release = release_in(config)
    return None if release is None else f"{'clang' if _is_clang(config) else 'gcc'} {release}"


def llvm_programs(config: Mapping[str, str]) -> Mapping[str, str]:
    """The programs that build a kernel's modules beside clang, by make's variables: none where GNU ld links it."""
    return _LLVM if config.get("CONFIG_LD_IS_LLD") == "y" else {}


def _is_clang(config: Mapping[str, str]) -> bool:
    return config.get("CONFIG_CC_IS_CLANG") == "y"


def _installed_gcc(release: str) -> Toolchain | None:
    """A gcc of the same major release, as distributions call those beside their usual one."""
    name = f"gcc-{_major(release)}"
    return replace(_examined(name, None), variables=(f"CC={name}",)) if shutil.which(name) else None


def _installed_clang(release: str, config: Mapping[str, str]) -> Toolchain | None:
    """A clang of the same major release with what links the kernel; its programs are beside it, by plain names."""
    major = _major(release)
    for name in (f"clang-{major}", "clang", f"/usr/lib/llvm-{major}/bin/clang"):
        place = shutil.which(name)
        if place is None:
            continue
        printed = run([place, "--version"], time_limit=_LIMIT, environment={"LC_ALL": "C"}).stdout.partition("\n")[0]
        number = _RELEASE.search(printed)
        programs = {variable: Path(place).resolve().with_name(tool) for variable, tool in llvm_programs(config).items()}
        if number is None or _major(number[0]) != major or not all(map(Path.is_file, programs.values())):
            continue
        linked_by = ["LLVM=1", *(f"{variable}={program}" for variable, program in programs.items())] if programs else []
        assembled_by = ["LLVM_IAS=0"] if config.get("CONFIG_AS_IS_GNU") == "y" else []
        return Toolchain(None, number[0], printed, "clang", (*linked_by, *assembled_by, f"CC={place}"))
    return None


def _major(release: str) -> str:
    return release.partition(".")[0]


@lru_cache(maxsize=1)
def _host_toolchain() -> Toolchain:
    return _examined("gcc", None)


def _debian_toolchain(context: BuildContext) -> Toolchain:
    if ":" in str(context.cache.root):  # which separates folders for the loader, and for gcc
        hint = "set ORCHESTRATOR_CACHE to another folder"
        raise HostError(f"a compiler cannot work in {context.cache.root}: it takes no colons in a path", hint=hint)
    packages = unpacked_packages(
        context,
        f"{_NAME}-{debian().compiler}",
        "x86_64",
        lambda apt: [apt.show(name, HOST_ARCHITECTURE) for name in debian().compiler_packages],
    )
    script, tools = _SCRIPT.read_text(), debian().compiler_tools

    def build(folder: Path) -> None:
        # Artifacts of all kinds lie side by side, and a whole cache may be moved.
        (folder / "packages").symlink_to(os.path.relpath(packages.path, folder))
        (folder / "bin").mkdir()
        for tool in tools:
            program = folder / "bin" / tool
            program.write_text(script)
            program.chmod(0o755)

    inputs = {"packages": packages.key, "script": script, "tools": tools}
    made = context.cache.obtain(_KIND, inputs, f"gcc {debian().compiler} of {debian().title}", build)
    return _examined(str(made.path / "bin/gcc"), made.path / "bin")


@lru_cache
def _takes(gcc: str, flag: str) -> bool:
    return run([gcc, flag, "-E", "-x", "c", "/dev/null"], time_limit=_LIMIT).status == 0


def _examined(gcc: str, folder: Path | None) -> Toolchain:
    # The kernel's build system matches compilers' output, and so does the lab: it must be in English.
    version = run([gcc, "--version"], time_limit=_LIMIT, environment={"LC_ALL": "C"})
    release = run([gcc, "-dumpfullversion"], time_limit=_LIMIT, environment={"LC_ALL": "C"})
    if version.status != 0 or release.status != 0:
        raise HostError(f"{gcc} does not run", detail=version.complaint())
    # "gcc (Debian 12.2.0-14) 12.2.0": the first word is the name that it was called by.
    return Toolchain(folder, release.stdout.strip(), f"gcc {version.stdout.splitlines()[0].partition(' ')[2]}")
