# SPDX-License-Identifier: GPL-2.0-only
"""Compilers and what they make: guest programs, users' shared libraries, QEMU's plugin, and values of C constants."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from orchestrator.arch import ARCHITECTURES, HOST
from orchestrator.artifacts.cache import Artifact, BuildContext
from orchestrator.artifacts.debian import NoSuchPackageError, unpacked_packages
from orchestrator.artifacts.diagnostics import compile_error
from orchestrator.artifacts.sources import UserSource, files_read, included, read_c_source, user_source
from orchestrator.catalog.images import debian
from orchestrator.errors import ConfigError, HostError
from orchestrator.files import sha256_of
from orchestrator.paths import data_dir
from orchestrator.process import run
from orchestrator.program import check_installed

# The compiler for code that runs in guests is the one that built their kernels, on every host.
#
# Another compiler may put one more instruction into a path, and counts would then depend on the host.

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
    found = matching_toolchain(context, release)
    name = f"gcc-{_major(release)}"  # as distributions name additional compilers
    if found.release == release or not shutil.which(name):
        return found
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


_CODE = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fcf-protection=none"),
    *("-fno-asynchronous-unwind-tables", "-nostdlib"),
    "-Wl,--build-id=none,-z,noexecstack",
)
_FIXED = ("-fno-pie", "-no-pie")
_FLAGS = (*_CODE, *_FIXED, "-static")
LIBRARIES = "/tmp/libraries"  # noqa: S108 - in the guest
"""Where a program first looks for its shared libraries."""
_LINKED = (
    # A library's own memcpy() must win over that of runtime.c, which an exported symbol would not.
    *(*_CODE, *_FIXED, "-fvisibility=hidden"),
    # Resolve everything before the first call; a library with undefined symbols finds them in the guest.
    *("-Wl,-z,now", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"),
    # The older tag, which also applies to libraries of libraries.
    f"-Wl,--disable-new-dtags,-rpath,{LIBRARIES}",
)
_INCLUDE = Path("/usr/include")
_MULTIARCH = _INCLUDE / HOST.triplet
_KERNEL_HEADERS = f"-idirafter{_MULTIARCH}"
"""Where the host's compiler for i386 finds <asm/...>, which is for both."""
_OF_KERNEL = re.compile(r"^\s*#\s*include\s*<(?:linux|asm|asm-generic)/", re.MULTILINE)
_COMPILE_LIMIT = 60.0
_COMPILED = (".c", ".S")
_IN_A_LIBRARY = "functions that it calls must be in one of benchmark.libraries, or in runtime.h"


def build_environment() -> dict[str, str | None]:
    """A build environment without KCFLAGS, ARCH, CPATH and other user settings, which no cache key covers."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**dict.fromkeys(os.environ), **kept, "LC_ALL": "C"}


def compiling_in(folder: Path) -> dict[str, str | None]:
    """The same, with the compiler's temporary files in the build's folder: a killed compiler leaves them behind."""
    return {**build_environment(), "TMPDIR": str(folder)}


def _own_inputs(toolchain: Toolchain, flags: Sequence[str], files: Iterable[Path]) -> dict[str, object]:
    sources = {file.name: read_c_source(file) for file in files}
    return {"compiler": toolchain.version, "flags": flags, "sources": sources}


def guest_programs(context: BuildContext, arch: str) -> Artifact:
    """``init``, ``agent`` and the benchmarks of ``images/guest`` as static programs for ``arch``."""
    folder, toolchain = data_dir("images") / "guest", guest_toolchain(context)
    mains = [file for file in sorted(folder.glob("*.c")) if not file.with_suffix(".h").exists()]
    sources = {main: [main, *included(read_c_source(main), [folder])] for main in mains}
    inputs = {"arch": arch, **_own_inputs(toolchain, _FLAGS, chain.from_iterable(sources.values()))}

    def build(target: Path) -> None:
        context.say(f"compiling the guest's programs ({arch})")
        for main, files in sources.items():
            _compile(toolchain, arch, files, [], target / main.stem)

    return context.cache.obtain("programs", inputs, f"guest programs, {arch}", build)


def bpf_tool(context: BuildContext, arch: str, name: str = "bpfprobe") -> Path:
    """``images/bpf/NAME.c``, which attaches BPF programs in a guest, as a static program for ``arch``."""
    toolchain, folders, files = _lab_files(context, f"bpf/{name}.c")
    inputs = {"arch": arch, **_own_inputs(toolchain, _FLAGS, files)}
    compile_it = partial(_compile, toolchain, arch, files, folders)
    return context.cache.obtain_file("programs", inputs, f"{name}, {arch}", name, compile_it)


def _lab_files(context: BuildContext, name: str) -> tuple[Toolchain, list[Path], list[Path]]:
    main = data_dir("images") / name
    folders = [main.parent, data_dir("images") / "guest"]
    return guest_toolchain(context), folders, [main, *included(read_c_source(main), folders)]


@dataclass(frozen=True)
class Compiled:
    """A compiled C file of a user's, with its source."""

    file: Path
    source: UserSource


def compiled_workload(context: BuildContext, arch: str, file: Path, libraries: Sequence[Path] = ()) -> Compiled:
    """A user's ``workload()``, linked at fixed addresses with code that times it. Raises BuildError, ConfigError."""
    images, toolchain = data_dir("images"), guest_toolchain(context)
    folders = [file.parent, images / "workload", images / "guest"]
    # This includes a user's own workload.h, if there is one.
    text = '#include "workload.h"\n' + read_c_source(file)
    shared = [other for other in included(text, folders) if other != file]
    if any(other.parent == file.parent and other.name == "workload.h" for other in shared):
        raise ConfigError("its folder has a workload.h, a name that is reserved for the lab's", where=str(file))
    timed = included('#include "bench.h"\n', folders[1:])
    files = [file, *dict.fromkeys([*shared, *timed])]
    # With -l:, a library without SONAME is recorded by its file name, not by its path on the host.
    named = (word for library in libraries for word in (f"-L{library.parent}", f"-l:{library.name}"))
    linked = (*_LINKED, f"-Wl,--dynamic-linker={ARCHITECTURES[arch].loader}", *named) if libraries else _FLAGS
    flags = (*linked, "-Wno-error", _KERNEL_HEADERS)
    source, inputs = _source(toolchain, arch, files, folders)
    digests = {str(library): sha256_of(library) for library in libraries}
    inputs = {**inputs, "flags": flags, "libraries": digests}
    compile_it = partial(_compile, toolchain, arch, files, folders, flags=flags)
    made = context.cache.obtain_file("workloads", inputs, f"{file.name}, {arch}", "workload", compile_it)
    return Compiled(made, source)


def shared_library(context: BuildContext, arch: str, file: Path) -> Compiled:
    """A user's ``NAME.c`` as ``NAME.so``; it may include ``usdt.h``. Raises BuildError, ConfigError."""
    toolchain, name = guest_toolchain(context), f"{file.stem}.so"
    folders = [file.parent, data_dir("images") / "workload"]
    files = [file, *(other for other in included(read_c_source(file), folders) if other != file)]
    flags = (*_CODE, "-fPIC", "-shared", f"-Wl,-soname,{name}", "-Wno-error", _KERNEL_HEADERS)
    source, inputs = _source(toolchain, arch, files, folders)
    compile_it = partial(_compile, toolchain, arch, files, folders, flags=flags)
    made = context.cache.obtain_file("workloads", {**inputs, "flags": flags}, f"{name}, {arch}", name, compile_it)
    return Compiled(made, source)


def _source(
    toolchain: Toolchain, arch: str, files: Sequence[Path], folders: Sequence[Path]
) -> tuple[UserSource, Mapping[str, object]]:
    """The source as a ``UserSource``, and the inputs that decide the result besides flags."""
    if any(_OF_KERNEL.search(read_c_source(one)) for one in files):
        check_installed("header-packages.txt", f"{files[0].name}, which includes headers of the kernel,")
    sources = [str(file) for file in files if file.suffix in _COMPILED]
    places = (f"-I{folder}" for folder in folders)
    words = [toolchain.program("gcc"), ARCHITECTURES[arch].gcc_flag, *_CODE, *places, _KERNEL_HEADERS, *sources]
    source = user_source(files[0], [*files, *files_read(words, build_environment())], toolchain.packages)
    facts = {"arch": arch, "compiler": toolchain.version, "file": source.file, "sources": source.digests}
    return source, facts


def _compile(
    toolchain: Toolchain,
    arch: str,
    files: Sequence[Path],
    folders: Sequence[Path],
    target: Path,
    flags: Sequence[str] = _FLAGS,
) -> None:
    sources = [str(file) for file in files if file.suffix in _COMPILED]
    # Libraries apply to the objects before them.
    wanted = [*(f"-I{folder}" for folder in folders), "-o", str(target), *sources, *flags]
    argv = [toolchain.program("gcc"), ARCHITECTURES[arch].gcc_flag, *wanted]
    finished = run(argv, time_limit=_COMPILE_LIMIT, environment=compiling_in(target.parent))
    if finished.status != 0:
        without = "there is no C library: use the functions of runtime.h" if "-static" in flags else _IN_A_LIBRARY
        raise compile_error(files[0].name, finished, without if folders else "")


# Its C library functions come from the QEMU that loads it: it needs neither headers nor start files.
_PLUGIN_FLAGS = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-m64"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fvisibility=hidden"),
    *("-fPIC", "-shared", "-nostdlib", "-Wl,--build-id=none,-z,noexecstack"),
)


_PLUGINS = {"count": "counting plugin", "cover": "coverage plugin", "cpus": "plugin for several CPUs"}


def qemu_plugin(context: BuildContext, name: Literal["count", "cover", "cpus"]) -> Path:
    """A plugin of ``images/plugin``, built by the compiler of the guest programs. Raises HostError, BuildError."""
    toolchain, folders, files = _lab_files(context, f"plugin/{name}.c")
    inputs = _own_inputs(toolchain, _PLUGIN_FLAGS, files)
    compile_it = partial(_compile, toolchain, HOST.name, files, folders, flags=_PLUGIN_FLAGS)
    return context.cache.obtain_file("plugins", inputs, f"QEMU's {_PLUGINS[name]}", f"{name}.so", compile_it)


# Values of C constants in system calls, such as ``O_RDONLY``, from the host's compiler.
#
# The kernel's headers come first: the C library has another ``O_LARGEFILE``. Constants that only the C library
# declares, such as ``SOCK_STREAM``, come from its headers.

_LIBRARY = ("fcntl.h", "mqueue.h", "poll.h", "sched.h", "signal.h", "time.h", "unistd.h", "netinet/in.h", "net/if.h")
"""Headers of the C library besides those in ``sys/``."""
_VALUE = re.compile(r"^\s*value (-?\d+)$", re.MULTILINE)
_FUNCTION = 'void function(void) { __asm__ volatile("value %%c0" : : "i" ((long)(%s))); }'
"""The method of the kernel's kbuild.h: the compiler prints a constant into its assembly."""
_REFUSING = re.compile(r"(?:from |^)[^\s:]*constant\.c:(\d+)[:,]", re.MULTILINE)


@lru_cache(maxsize=256)
def header_constant(name: str) -> int:
    """The value of a C constant. Raises ConfigError if it has none or several, HostError if packages are missing."""
    check_installed("header-packages.txt", f"{name}, a constant of C,")
    places = [[header] for header in _declaring(name)]
    # Names with a leading underscore are reserved: only a header line tells __WALL from a compiler's own macros.
    found = _values(name, places) or ({} if name.startswith("_") else _values(name, [[]]))
    if not found:
        raise ConfigError(f"no header of the kernel or of the C library has a constant {name}")
    if len(found) > 1:
        raise ConfigError(f"{name} is {', '.join(f'{value} {where}' for value, where in found.items())}")
    return next(iter(found))


def _values(name: str, places: Sequence[Sequence[str]]) -> Mapping[int, str]:
    found: dict[int, str] = {}
    for headers in places:
        printed = {arch: _compiled(name, arch, headers or _library_headers(arch))[0] for arch in ARCHITECTURES}
        of_each = {arch: one[1] if (one := _VALUE.search(text)) else None for arch, text in printed.items()}
        where = f"in <{headers[0]}>" if headers else ""
        for arch, value in of_each.items():
            if value is not None:
                on = f"on {arch}" if len({*of_each.values()}) > 1 else ""
                found.setdefault(int(value), " ".join(filter(None, [on, where])))
    return found


def _declaring(name: str) -> Iterator[str]:
    declared = re.compile(rf"^\s*(?:#\s*define\s+{name}\b|{name}\s*(?:[=,/]|$))".encode(), re.MULTILINE)
    for root, folder in ((_INCLUDE, "linux"), (_MULTIARCH, "asm"), (_INCLUDE, "asm-generic")):
        for file in sorted((root / folder).rglob("*.h")):
            if declared.search(file.read_bytes()):
                yield str(file.relative_to(root))


@lru_cache(maxsize=2)
def _library_headers(arch: str) -> Sequence[str]:
    """The C library headers that can be included together, without those that reject an architecture."""
    headers = [*_LIBRARY, *(f"sys/{file.name}" for file in sorted((_MULTIARCH / "sys").glob("*.h")))]
    while True:
        # The first header is in line 2.
        refused = {int(line) - 2 for line in _REFUSING.findall(_compiled("0", arch, headers)[1])}
        left = [header for place, header in enumerate(headers) if place not in refused]
        if len(left) == len(headers):
            return headers
        headers = left


def _compiled(expression: str, arch: str, headers: Sequence[str]) -> tuple[str, str]:
    lines = ["#define _GNU_SOURCE", *(f"#include <{header}>" for header in headers)]
    with TemporaryDirectory(prefix="lab-constant-") as name:
        folder = Path(name)
        # For i386, headers include gnu/stubs-32.h, which only the 32-bit package has. An empty one will do.
        (folder / "gnu").mkdir()
        (folder / "gnu/stubs-32.h").touch()
        source = folder / "constant.c"
        source.write_text("\n".join([*lines, _FUNCTION % expression, ""]))
        flags = ["-w", f"-I{folder}", f"-idirafter{_MULTIARCH}"]
        argv = ["gcc", "-std=c11", ARCHITECTURES[arch].gcc_flag, *flags, "-S", "-o", "-", str(source)]
        finished = run(argv, time_limit=_COMPILE_LIMIT, environment=compiling_in(folder))
    return finished.stdout if finished.status == 0 else "", finished.stderr
