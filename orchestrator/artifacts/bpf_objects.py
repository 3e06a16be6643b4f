# SPDX-License-Identifier: GPL-2.0-only
"""BPF programs of users: the object file, compiled from C if necessary, and the loader that runs in a guest."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.arch import BPF_TARGET, HOST
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import build_environment, compiling_in
from orchestrator.artifacts.diagnostics import compile_error
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.artifacts.libbpf_headers import newer_libbpf
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.sources import UserSource, files_read, read_c_source, user_source
from orchestrator.artifacts.user_programs import Compiled
from orchestrator.catalog.compiler_flags import FLAGS_FILE, CompilerFlags, flags_beside
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import without_option
from orchestrator.catalog.probes import BPF_SOURCE
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import BuildError, ConfigError, HostError, UnsupportedError
from orchestrator.files import read_bounded, sha256_of
from orchestrator.host_packages import check_all_installed
from orchestrator.paths import data_dir
from orchestrator.process import Finished, run

_TYPES_HEADER = "vmlinux.h"
_TYPES = "CONFIG_DEBUG_INFO_BTF"


def kernel_types(context: BuildContext, kernel: Kernel) -> Path:
    """The folder with a kernel's ``vmlinux.h``. Raises UnsupportedError, or BuildError if it cannot be read."""
    if kernel.config.get(_TYPES) != "y":
        raise UnsupportedError(
            f"{_TYPES_HEADER} needs type information: {without_option(_TYPES, [], kernel.spec.arch)}"
        )

    def build(target: Path) -> None:
        context.say(f"writing {_TYPES_HEADER} of {kernel.spec.name}")
        image = (kernel.code_folder or kernel.headers) / "vmlinux"
        if not image.is_file():
            raise BuildError(
                f"the image of {kernel.spec.name} cannot be uncompressed, so its type information is not available"
            )
        argv = ["/usr/sbin/bpftool", "btf", "dump", "file", str(image), "format", "c"]
        dumped = run(argv, time_limit=_LIMIT, environment=compiling_in(target))
        (target / _TYPES_HEADER).write_text(
            dumped.or_raise(BuildError, f"bpftool finds no type information in {kernel.spec.name}").stdout
        )

    return context.cache.obtain("vmlinux", {"types": kernel.key}, f"types of {kernel.spec.name}", build).path


_CLANG = ("clang", "-g", "-O2", "-Wall", "-target", "bpf", BPF_TARGET, "-c")
_HOST_HEADERS = f"/usr/include/{HOST.triplet}"
"""Has asm/types.h, which clang does not find by itself with ``-target bpf``."""
_HOST_LIBRARIES = Path("/usr/lib", HOST.triplet)
_LOADER_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static")
_LIMIT = 120.0
_LARGEST = 16 << 20
_OBJECT = "own.bpf.o"
_OWN_FLAGS = "clang's flags"
"""Title of the flags that a user gives for a source, with absolute paths."""
_ON_FPROBES = ("kprobe.multi", "kprobe.session", "kretprobe.multi")


_IN_PROGRAM = re.compile(r"\??(u(?:ret)?probe(?:\.multi|\.session)?|usdt)(?:\.s)?(?:/.*)?")


def user_section(section: str) -> str | None:
    """The kind of a section whose programs are attached in a program of user space: ``uprobe``, ``usdt``; else None."""
    match = _IN_PROGRAM.fullmatch(section)
    return None if match is None else match[1]


OPTIONAL = "?"
"""How a section begins whose program libbpf does not load by itself: the tool's own loader decides."""


class UnknownProgram(BuildError):
    """A file of BPF programs lacks the program that somebody named."""


@dataclass(frozen=True)
class BpfObject:
    """A user's BPF object and its source, the loader, and the tool that queries the kernel about loaded programs.

    ``programs`` are the sections of its programs by their names, in the file's order. ``sizes`` are those that maps are
    given, ``contents`` what is put into them before the calls: files with keys and values, as ``bpfload.c`` reads them.
    """

    file: Path
    loader: Path
    tool: Path
    source: UserSource
    programs: Mapping[str, str]
    sizes: Mapping[str, int] = field(default_factory=dict)
    contents: Mapping[str, Path] = field(default_factory=dict)

    def chosen(self, kernel: Kernel, names: Sequence[str]) -> BpfObject:
        """The object with these programs alone; without names with all but those that are optional (``SEC("?...")``).

        Raises UnsupportedError, UnknownProgram.
        """
        missing = next((name for name in names if name not in self.programs), None)
        if missing is not None:
            raise UnknownProgram(unknown("program", missing, self.programs), where=self.source.file)
        chosen = {
            name: section
            for name, section in self.programs.items()
            if name in names or not (names or section.startswith(OPTIONAL))
        }
        for section in chosen.values():
            if section.startswith(_ON_FPROBES) and kernel.config.get("CONFIG_FPROBE") != "y":
                lacking = without_option("CONFIG_FPROBE", [_TYPES], kernel.spec.arch)
                raise UnsupportedError(f"{section} needs fprobes: {lacking}")
        return replace(self, programs=chosen)


def bpf_lists(file: Path) -> Mapping[str, str]:
    """The package lists that a user's BPF programs need, with what needs them."""
    lists = {"bpf-packages.txt": f"{file.name}, a BPF program of your own,"}
    if file.name.endswith(BPF_SOURCE):
        lists["bpf-compiler-packages.txt"] = f"{file.name}, which is to be compiled,"
    return lists


def bpf_object(context: BuildContext, kernel: Kernel, file: Path, flags: str = "") -> BpfObject:
    """Compile ``NAME.bpf.c``, with the ``flags`` of its row, or take ``NAME.o``.

    Raises BuildError, UnsupportedError, ConfigError, HostError.
    """
    check_all_installed(bpf_lists(file))
    made = _compiled(context, kernel, file, flags) if file.name.endswith(BPF_SOURCE) else _kept(context, file)
    programs = _programs(file, made.file.read_bytes())
    return BpfObject(made.file, _loader(context), bpf_tool(context, kernel.spec.arch), made.source, programs)


def _programs(file: Path, content: bytes) -> Mapping[str, str]:
    """The section of each program, a global function outside of .text, by its name."""
    try:
        elf = ELFFile(io.BytesIO(content))
        machine, symbols = elf["e_machine"], elf.get_section_by_name(".symtab")
        code = {
            index: section.name
            for index, section in enumerate(elf.iter_sections())
            if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR and section["sh_size"] and section.name != ".text"
        }
        programs = {
            symbol.name: code[symbol["st_shndx"]]
            for symbol in (symbols.iter_symbols() if isinstance(symbols, SymbolTableSection) else ())
            if symbol["st_shndx"] in code
            and symbol["st_info"]["type"] == "STT_FUNC"
            and symbol["st_info"]["bind"] == "STB_GLOBAL"
        }
    except DAMAGED:
        machine, programs = None, {}
    if machine != "EM_BPF":
        hint = "compile it with: clang -g -O2 -target bpf -c"
        raise BuildError("not a complete object file of BPF programs", where=str(file), hint=hint)
    if not programs:
        hint = 'a program needs a section that says where to attach it: SEC("fentry/vfs_read")'
        raise BuildError("this object file has no program", where=str(file), hint=hint)
    return programs


def _kept(context: BuildContext, file: Path) -> Compiled:
    try:
        content = read_bounded(file, _LARGEST)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    if content is None:
        raise BuildError(f"the object has more than {_LARGEST >> 20} MB", where=str(file))
    inputs = {"object": hashlib.sha256(content).hexdigest()}
    kept = context.cache.obtain_file("workloads", inputs, file.name, _OBJECT, lambda new: new.write_bytes(content))
    return Compiled(kept, user_source(file))


def _compiled(context: BuildContext, kernel: Kernel, file: Path, flags: str) -> Compiled:
    text = read_c_source(file)
    own_flags = CompilerFlags.of_text(flags).below(file.parent).behind(flags_beside(file))
    compilation = _Compilation(context, file, own_flags, _types_folder(context, kernel, file, own_flags))
    try:
        return compilation.made(())
    except BuildError as error:  # a source that an older libbpf is enough for keeps its object
        newer = newer_libbpf(context, "\n".join([text, *error.detail]))
        if newer is None:
            raise
        return compilation.made([newer])


def _types_folder(context: BuildContext, kernel: Kernel, file: Path, flags: CompilerFlags) -> Path | None:
    """The folder of the lab's ``vmlinux.h``, or the source's own; None if a named folder has one."""
    if (file.parent / _TYPES_HEADER).is_file():
        return file.parent
    if any((folder / _TYPES_HEADER).is_file() for folder in flags.folders):
        return None
    return kernel_types(context, kernel)  # its path, which has a key, is part of the flags


@dataclass(frozen=True)
class _Compilation:
    """A user's source with the user's flags, and the folder of a ``vmlinux.h`` that none of those names."""

    context: BuildContext
    file: Path
    own_flags: CompilerFlags
    types: Path | None

    def made(self, system: Sequence[Path]) -> Compiled:
        """The object; ``system`` are folders with headers that come before the host's. Raises BuildError."""
        file, own_words, types = self.file, self.own_flags.words, [] if self.types is None else [f"-I{self.types}"]
        flags = [
            *own_words,
            *types,
            f"-I{_HOST_HEADERS}",
            *(word for path in system for word in ("-isystem", str(path))),
        ]
        read = files_read([*_CLANG, *flags, str(file)], build_environment())
        source = user_source(file, [*read, *_existing(file.parent / FLAGS_FILE)], self._generated, system)
        if own_words:
            digest = hashlib.sha256(self.own_flags.text.encode()).hexdigest()
            source = replace(source, digests={**source.digests, _OWN_FLAGS: digest})
        asked = run(["clang", "--version"], time_limit=_LIMIT)
        version = asked.or_raise(HostError, "clang does not run").stdout.partition("\n")[0]
        inputs = {"compiler": version, "flags": [*_CLANG, *flags], "file": source.file, "sources": source.digests}

        def build(target: Path) -> None:
            argv = [*_CLANG, *flags, str(file), "-o", str(target)]
            finished = run(argv, time_limit=_LIMIT, environment=compiling_in(target.parent))
            if finished.status != 0:
                raise _compile_error(file, finished)

        return Compiled(self.context.cache.obtain_file("workloads", inputs, file.name, _OBJECT, build), source)

    @property
    def _generated(self) -> Path | None:
        """The folder whose headers are no source of the user's."""
        return None if self.types == self.file.parent else self.types


def _existing(file: Path) -> Sequence[Path]:
    return [file] if file.is_file() else []


def _compile_error(file: Path, finished: Finished) -> BuildError:
    lacking = re.search(r"fatal error: '([^\n']+)' file not found", finished.stderr)
    folder = (
        f"name the folder that has {lacking[1]}: cost -I FOLDER, or {FLAGS_FILE} beside the source" if lacking else ""
    )
    return compile_error(file.name, finished, folder)


def _loader(context: BuildContext) -> Path:
    folder = data_dir("images") / "bpf"
    source, lacking = folder / "bpfload.c", folder / "search_tree.c"
    # Debian 13's libelf.a unpacks sections with zstd, Debian 12's does not.
    libraries = ["-lbpf", "-lelf", "-lz", *(["-lzstd"] if (_HOST_LIBRARIES / "libzstd.a").exists() else [])]
    inputs = {
        "source": read_c_source(source),
        "lacking": read_c_source(lacking),
        "flags": [*_LOADER_FLAGS, *libraries],
        "libbpf": sha256_of(_HOST_LIBRARIES / "libbpf.a"),
    }

    def build(target: Path) -> None:
        # It runs outside of measurements, and links the host's libraries, so the host's compiler builds it.
        argv = ["gcc", *_LOADER_FLAGS, "-o", str(target), str(source), str(lacking), *libraries]
        compiled = run(argv, time_limit=_LIMIT, environment=compiling_in(target.parent))
        compiled.or_raise(BuildError, "bpfload.c does not compile", where=str(source))

    return context.cache.obtain_file("programs", inputs, "bpfload", "bpfload", build)
