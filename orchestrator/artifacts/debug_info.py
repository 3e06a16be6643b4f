# SPDX-License-Identifier: GPL-2.0-only
"""Files with debug information (DWARF) of the code that guests execute: kernels and modules."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from orchestrator.arch import ARCHITECTURES, HOST
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debian_package import NoSuchPackageError, Package
from orchestrator.artifacts.kbuild import kbuild_of, make_modules, scratch_folder
from orchestrator.artifacts.kernel_build import KernelBuild, build_lists, compile_kernel
from orchestrator.artifacts.kernel_code import VMLINUX
from orchestrator.artifacts.kernel_config import merged
from orchestrator.artifacts.kernel_image import extract
from orchestrator.artifacts.kernel_source import kernel_source
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.pinned_packages import PackageSet, pinned_artifact
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.debian_release import debian
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import BuildError, HostError, LabError
from orchestrator.files import ScratchFolder
from orchestrator.host_packages import check_all_installed
from orchestrator.process import run

_KIND = "debug-info"
_COMPILED = ("vmlinux", "KCFLAGS=-g", "KAFLAGS=-g")
"""Not CONFIG_DEBUG_INFO: another configuration in the image (IKCONFIG) moves what is behind it."""
_UNPACK_LIMIT = 900.0
_UNPACK = str(Path(__file__).with_name("unpack-files.sh"))
_PACKAGED = "./usr/lib/debug/*/vmlinux*"


class NoDebugInfoError(LabError):
    """There is no debug information of some code, or only another build's."""


def kernel_debug_info(context: BuildContext, kernel: Kernel) -> Path:
    """A vmlinux with DWARF whose code is that of ``kernel``: fetched, built, or in the user's tree.

    Raises NoDebugInfoError if there is none or it is another build's, HostError, BuildError.
    """
    spec = kernel.spec
    measured = (kernel.code_folder or kernel.headers) / VMLINUX
    if spec.tree is not None:
        path = kernel.headers / VMLINUX
        if not path.is_file() or not has_debug_info(path):
            raise NoDebugInfoError(
                f"kernel {spec.name} has no debug information",
                where=str(path),
                hint="scripts/config -d DEBUG_INFO_NONE -e DEBUG_INFO -e DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT, "
                "make olddefconfig, and build it again",
            )
    elif spec.source is not None:
        path = _built(context, kernel)
    else:
        path = _packaged(context, kernel)
    with ScratchFolder("orchestrator-debug-info-") as scratch:
        booted = extract(kernel.image.read_bytes()) if spec.tree is not None else None
        if booted is not None:
            measured = scratch / VMLINUX
            measured.write_bytes(booted)
        if not is_same_code(measured, path):
            raise NoDebugInfoError(f"another build's vmlinux than that of kernel {spec.name}", where=str(path))
    return path


def has_debug_info(file: Path) -> bool:
    """Whether an ELF file has DWARF. Raises NoDebugInfoError for another file."""
    with _opened(file) as elf:
        return any(elf.get_section_by_name(name) is not None for name in (".debug_info", ".zdebug_info"))


def is_same_code(measured: Path, path: Path) -> bool:
    """Whether two ELF files have the same GNU build id or the same text. Raises NoDebugInfoError."""
    # Debug information changes the build id: of the lab's own builds with and without it, only the text is equal.
    (build, text), (other_build, other_text) = _identity(measured), _identity(path)
    return (bool(build) and build == other_build) or (bool(text) and text == other_text)


def _identity(file: Path) -> tuple[str, bytes]:
    """The GNU build id, empty if there is none, and the bytes of the text."""
    with _opened(file) as elf:
        sections = [section for section in elf.iter_sections() if isinstance(section, NoteSection)]
        notes = (note for section in sections for note in section.iter_notes())
        build = next((str(note["n_desc"]) for note in notes if note["n_type"] == "NT_GNU_BUILD_ID"), "")
        text = elf.get_section_by_name(".text")
        return build, b"" if text is None else text.data()


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[ELFFile]:
    try:
        with file.open("rb") as content:
            yield ELFFile(content)
    except (OSError, *DAMAGED) as error:
        raise NoDebugInfoError(f"the code cannot be read ({error})", where=str(file)) from None


def _packaged(context: BuildContext, kernel: Kernel) -> Path:
    """The vmlinux of ``linux-image-RELEASE-dbg``, which alone is kept."""
    arch = ARCHITECTURES[kernel.spec.arch].debian
    image = f"linux-image-{kernel.release}"
    name, version = f"{image}-dbg", kernel.packages.get(f"{image}:{arch}", "")

    def choose(apt: AptRoot) -> list[Package]:
        package = apt.show(name, arch)
        if package.version != version:
            raise NoSuchPackageError(f"{name} is of version {package.version}, and the kernel of {version}")
        context.say(f"fetching the debug information of {kernel.spec.name}: some 1 GB, once")
        return [package]

    def fill(apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
        (archive,) = apt.download(packages, folder / "archives")
        context.say(f"unpacking vmlinux of {name}")
        argv = ["sh", _UNPACK, str(archive), str(folder), _PACKAGED]
        run(argv, time_limit=_UNPACK_LIMIT).or_raise(HostError, f"cannot unpack {archive.name}")
        (vmlinux,) = (file for file in folder.glob("usr/lib/debug/**/vmlinux*") if not file.is_symlink())
        vmlinux.rename(folder / VMLINUX)
        shutil.rmtree(folder / "archives")
        shutil.rmtree(folder / "usr")

    places = debian().elsewhere if kernel.spec.is_searched else ()
    architectures = tuple(dict.fromkeys((HOST.debian, arch)))
    package_set = PackageSet(name, kernel.spec.arch, architectures, tuple(places))
    try:
        return pinned_artifact(context, _KIND, package_set, choose, fill).path / VMLINUX
    except NoSuchPackageError as error:
        what = f"Debian has no debug information of kernel {kernel.spec.name} any more: {error.what}"
        raise NoDebugInfoError(what) from None


def _built(context: BuildContext, kernel: Kernel) -> Path:
    """The same kernel compiled with debug information: its kept build tree has none."""
    spec = kernel.spec
    assert spec.source is not None

    def build(folder: Path) -> None:
        check_all_installed(build_lists(spec.name, merged(spec)))
        source = kernel_source(context, spec.source or "", spec.patch_files, spec.files, is_verified=True)
        context.say(f"building {spec.name} with debug information: 4 GB meanwhile, some 15 minutes of one CPU, once")
        tree = folder / "build"
        tree.mkdir()
        compile_kernel(context, KernelBuild(spec, source, merged(spec), kernel.toolchain), tree, _COMPILED)
        (tree / VMLINUX).rename(folder / VMLINUX)
        shutil.rmtree(tree)

    inputs = {"kernel": kernel.key, "make": list(_COMPILED)}
    label = f"debug information of {spec.name}"
    if context.cache.get(_KIND, inputs) is None:
        context.need_network(label)  # a build takes as long as a download: offline excludes both
    return context.cache.obtain(_KIND, inputs, label, build).path / VMLINUX


def module_debug_info(context: BuildContext, kernel: Kernel, module: Module) -> Path:
    """A module's file with DWARF: a user's .ko itself, else compiled again from the same sources.

    Raises NoDebugInfoError if a user's file has none or the text is not the measured module's, BuildError, HostError.
    """
    if module.sources is None:
        if not has_debug_info(module.file):
            hint = "compile it with -g, and do not strip it"
            raise NoDebugInfoError(f"module {module.name} has no debug information", where=str(module.file), hint=hint)
        return module.file
    sources = module.sources

    def build(folder: Path) -> None:
        final = folder.with_suffix("") / "sources"
        shutil.copytree(sources, folder / "sources")
        with scratch_folder() as scratch:
            shutil.copytree(sources, scratch, dirs_exist_ok=True)
            here = _made_in(scratch, module.name)
            inside = here.relative_to(scratch)
            # The same flags as of the measured module, whose macros name no folder; gcc takes the last map that fits.
            flags = f"-ffile-prefix-map={here}/= -g -fdebug-prefix-map={here}={final / inside}"
            # The make variables that a user's folder was built with.
            of_folder = context.cache.artifact(context.cache.root / "module-folders" / module.key.partition("-")[0])
            variables = of_folder.inputs.get("make") if of_folder is not None else None
            given = map(str, variables) if isinstance(variables, list) else ()
            finished = make_modules(context, kbuild_of(kernel), here, [*given, f"KCFLAGS={flags}", f"KAFLAGS={flags}"])
            made = next(scratch.rglob(f"{module.file.name}"), None)
            if finished.status != 0 or made is None or not has_debug_info(made):
                raise BuildError(f"module {module.name} does not build with -g", detail=finished.complaint())
            shutil.copy(made, folder / module.file.name)

    inputs = {"kernel": kernel.key, "module": module.key, "compiler": kernel.toolchain.version}
    path = context.cache.obtain(_KIND, inputs, f"debug information of {module.name}", build).path / module.file.name
    if not is_same_code(module.file, path):
        raise NoDebugInfoError(f"another build's code than that of module {module.name}", where=str(path))
    return path


def _made_in(folder: Path, name: str) -> Path:
    """The folder of a module's Kbuild or Makefile, below which a lab's module may have files of its parents."""
    places = [file.parent for kind in ("Kbuild", "Makefile") for file in folder.rglob(kind)]
    if not places:
        raise NoDebugInfoError(f"the sources of module {name} are incomplete", where=str(folder))
    return min(places, key=lambda place: len(place.parts))
