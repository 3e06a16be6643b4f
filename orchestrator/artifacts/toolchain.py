# SPDX-License-Identifier: GPL-2.0-only
"""The compiler for code that runs in guests is the one that built their kernels, on every host.

Another compiler may put one more instruction into a path, and counts would then depend on the host.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from orchestrator.arch import HOST
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debian_package import NoSuchPackageError
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.catalog.debian_release import debian
from orchestrator.errors import HostError
from orchestrator.process import run

_TOOLS_LIMIT = 60.0


_LLVM = {"LD": "ld.lld", **{tool.upper(): f"llvm-{tool}" for tool in ("ar", "nm", "strip", "objcopy", "readelf")}}
"""make variables of a kernel's build, and the programs that LLVM=1 sets them to."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler and its binutils, by plain names in ``folder``, or on the host's PATH (None).

    ``release`` is the compiler's (``12.2.0``), ``version`` its full version line, ``variables`` are for make.
    """

    folder: Path | None
    release: str
    version: str
    name: str = "gcc"
    variables: tuple[str, ...] = ("CC=gcc",)

    @property
    def compiler(self) -> str:
        return f"{self.name} {self.release}"

    def program(self, name: str) -> str:
        return name if self.folder is None else str(self.folder / name)

    @property
    def packages(self) -> Path | None:
        """The folder of its unpacked packages; None if installed on the host."""
        return None if self.folder is None else self.folder.parent / "packages"

    @lru_cache  # noqa: B019 - a process has few of them
    def takes(self, flag: str) -> bool:
        return run([self.program("gcc"), flag, "-E", "-x", "c", "/dev/null"], time_limit=_TOOLS_LIMIT).status == 0

    @cached_property
    def linker(self) -> str:
        """The full version line of its linker."""
        named = dict(variable.split("=", 1) for variable in self.variables)
        argv = [named.get("LD", self.program("ld")), "--version"]
        return run(argv, time_limit=_TOOLS_LIMIT).stdout.partition("\n")[0]

    def for_make(self) -> list[str]:
        """The make variables that select these tools in a kernel's build."""
        folder = self.folder
        return list(self.variables) if folder is None else [f"CROSS_COMPILE={folder}/", f"CC={folder}/gcc"]


_found: dict[tuple[Path, str | None], Toolchain] = {}


def guest_toolchain(context: BuildContext) -> Toolchain:
    """The compiler of the guests' Debian: the host's if its release is the same, else a package. Raises HostError."""
    return matching_toolchain(context, debian().compiler)


def matching_toolchain(context: BuildContext, release: str | None) -> Toolchain:
    """The compiler of that release, from the host or the guests' Debian; otherwise the host's. Raises HostError."""
    # Keyed by the cache's folder: a context belongs to one run, and would keep that run's printer alive.
    place = context.cache.root, release
    if place not in _found:
        toolchain = host = _host_toolchain()
        if release not in (None, host.release) and release == debian().compiler:
            try:
                toolchain = _debian_toolchain(context)
            except NoSuchPackageError as error:
                instead = f"compiling with the host's gcc {host.release}, as there is no gcc {release}"
                context.say(f"{instead}: {error.what}")
        _found[place] = toolchain
    return _found[place]


def tree_toolchain(context: BuildContext, config: Mapping[str, str]) -> Toolchain:
    """The compiler of a user's kernel, by exact or major release; otherwise as ``matching_toolchain``."""
    release = release_in(config)
    if release is None:
        return matching_toolchain(context, None)
    if _is_clang(config):
        return _installed_clang(release, config) or matching_toolchain(context, None)
    toolchain = matching_toolchain(context, release)
    name = f"gcc-{_major(release)}"  # as distributions name additional compilers
    if toolchain.release == release or not shutil.which(name):
        return toolchain
    return replace(_examined(name, None), variables=(f"CC={name}",))


def release_in(config: Mapping[str, str]) -> str | None:
    """The compiler release that a kernel was configured with; None if its configuration does not state it."""
    number = config.get("CONFIG_CLANG_VERSION" if _is_clang(config) else "CONFIG_GCC_VERSION", "")
    if not number.isdecimal() or int(number) == 0:
        return None
    return f"{int(number) // 10000}.{int(number) // 100 % 100}.{int(number) % 100}"


def compiler_in(config: Mapping[str, str]) -> str | None:
    """The compiler and release that a kernel was configured with; None if unknown."""
    release = release_in(config)
    return None if release is None else f"{'clang' if _is_clang(config) else 'gcc'} {release}"


def llvm_programs(config: Mapping[str, str]) -> Mapping[str, str]:
    """By make variable, the LLVM programs that build a kernel's modules beside clang; empty if GNU ld links it."""
    return _LLVM if config.get("CONFIG_LD_IS_LLD") == "y" else {}


def _is_clang(config: Mapping[str, str]) -> bool:
    return config.get("CONFIG_CC_IS_CLANG") == "y"


def _installed_clang(release: str, config: Mapping[str, str]) -> Toolchain | None:
    """A clang of the same major release with the kernel's linker; its programs are beside it, by plain names."""
    major = _major(release)
    for name in (f"clang-{major}", "clang", f"/usr/lib/llvm-{major}/bin/clang"):
        place = shutil.which(name)
        if place is None:
            continue
        finished = run([place, "--version"], time_limit=_TOOLS_LIMIT)
        printed = finished.stdout.partition("\n")[0]
        number = re.search(r"\d+(?:\.\d+)+", printed)
        programs = {variable: Path(place).resolve().with_name(tool) for variable, tool in llvm_programs(config).items()}
        if number is None or _major(number[0]) != major or not all(map(Path.is_file, programs.values())):
            continue
        linked_by = ["LLVM=1", *(f"{variable}={program}" for variable, program in programs.items())] if programs else []
        assembled_by = ["LLVM_IAS=0"] if config.get("CONFIG_AS_IS_GNU") == "y" else []
        return Toolchain(None, number[0], printed, "clang", (*linked_by, *assembled_by, f"CC={place}"))
    return None


def _major(release: str) -> str:
    return release.partition(".")[0]


def _debian_toolchain(context: BuildContext) -> Toolchain:
    if ":" in str(context.cache.root):  # a colon separates folders for the loader and for gcc
        hint = "set ORCHESTRATOR_CACHE to another folder"
        raise HostError(
            f"a compiler cannot run in {context.cache.root}: it does not accept colons in a path", hint=hint
        )
    packages = unpacked_packages(
        context,
        f"compiler-{debian().compiler}",
        HOST.name,
        lambda apt: [apt.show(name, HOST.debian) for name in debian().compiler_packages],
    )
    script, tools = Path(__file__).with_name("run-tool.sh").read_text(), debian().compiler_tools

    def build(folder: Path) -> None:
        # Relative: all artifacts are siblings, and a user may move the whole cache.
        (folder / "packages").symlink_to(os.path.relpath(packages.path, folder))
        (folder / "bin").mkdir()
        for tool in tools:
            program = folder / "bin" / tool
            program.write_text(script)
            program.chmod(0o755)

    inputs = {"packages": packages.key, "script": script, "tools": tools}
    made = context.cache.obtain("toolchains", inputs, f"gcc {debian().compiler} of {debian().title}", build)
    return _examined(str(made.path / "bin/gcc"), made.path / "bin")


@lru_cache(maxsize=1)
def _host_toolchain() -> Toolchain:
    return _examined("gcc", None)


def _examined(gcc: str, folder: Path | None) -> Toolchain:
    # The kernel's build system and the lab match the compiler's output, which must be English.
    version, release = (run([gcc, option], time_limit=_TOOLS_LIMIT) for option in ("--version", "-dumpfullversion"))
    if version.status != 0 or release.status != 0:
        raise HostError(f"{gcc} does not run", detail=version.complaint())
    # "gcc (Debian 12.2.0-14) 12.2.0": the first word is the name it was called by.
    return Toolchain(folder, release.stdout.strip(), f"gcc {version.stdout.splitlines()[0].partition(' ')[2]}")
