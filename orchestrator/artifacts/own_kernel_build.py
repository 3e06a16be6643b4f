# SPDX-License-Identifier: GPL-2.0-only
"""Kernels of users' source trees: built in the tree, at a commit, or in a copy of it with options of one's own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.build_relocation import relocate
from orchestrator.artifacts.built_tree import source_files, source_of
from orchestrator.artifacts.cache import Artifact, digest
from orchestrator.artifacts.compiler import build_environment
from orchestrator.artifacts.diagnostics import kernel_error
from orchestrator.artifacts.kernel_build import IDENTITY, CompileProgress, build_lists
from orchestrator.artifacts.kernel_config import merged, not_granted, write_implied
from orchestrator.artifacts.toolchain import Toolchain
from orchestrator.catalog.kernels import DRIVERS, IMAGE, SET_OPTION, KernelSpec, kernel, lacking_options, read_config
from orchestrator.errors import BuildError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.host_packages import check_all_installed
from orchestrator.process import run


def is_kernel_source(tree: Path) -> bool:
    """Whether a folder is a kernel's source tree that can be built for x86."""
    return (tree / "Kconfig").is_file() and (tree / "arch" / "x86" / "Makefile").is_file()


@dataclass(frozen=True)
class TreeBuild:
    """How to build a kernel in its tree: the configuration, and variables for make (``CC=gcc-12``)."""

    config: Path
    variables: Sequence[str] = ()

    @classmethod
    def of(cls, tree: Path, config: Path | None, variables: Sequence[str]) -> Self:
        """From ``config`` or the tree's own.

        Raises UsageError if either is given for a tree that is not a kernel's, and as ``check`` does if it is one.
        """
        is_kernel = is_kernel_source(tree)
        if (config is not None or variables) and not is_kernel:
            what = f"--kconfig and --make are for a kernel's tree, and {tree} is not one"
            raise UsageError(what, hint="leave them out")
        build = cls((config or tree / ".config").absolute(), tuple(variables))
        if is_kernel:
            build.check()
        return build

    def check(self) -> None:
        """Raise UsageError for a wrong variable, and for a configuration that is missing or not for x86."""
        self._check_variables()
        if not self.config.is_file():
            hint = "name one with --kconfig, or create one there: make defconfig"
            raise UsageError("the kernel has no configuration", where=str(self.config), hint=hint)
        if not self._arch:
            raise UsageError("not a configuration of a kernel for x86", where=str(self.config))

    def _check_variables(self) -> None:
        for variable in self.variables:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=[ -~]*", variable):
                raise UsageError(f"--make: found {variable!r}; expected NAME=VALUE", hint="such as --make CC=gcc-12")

    @property
    def _arch(self) -> str:
        # An i386 configuration does not say that it is not for 64 bits; make must be told.
        config = read_config(self.config)
        return next((name for name, arch in ARCHITECTURES.items() if config.get(arch.option) == "y"), "")

    def configure(self, tree: Path, say: Callable[[str], None]) -> None:
        """Write a tree's configuration: the options of a lab kernel over the tree's own defaults.

        Options that the tree does not have are ignored. With the lab's options alone (allnoconfig) it would hardly be
        the tree's kernel; x86_64_defconfig has half as many options again, of drivers that no guest has.

        Raises UsageError for a wrong variable, BuildError.
        """
        self._check_variables()
        say(f"configuring {tree}: the lab's options over the tree's own defaults")
        with ScratchFolder("orchestrator-config-") as folder:
            path = folder / "lab.config"
            path.write_text(merged(kernel(ALL_MECHANISMS)) + _NOT_PREEMPTIBLE + _FOR_DEBUGGERS)
            environment = {"KCONFIG_ALLCONFIG": str(path)}
            _make(tree, "x86_64", [*self.variables, "alldefconfig"], 300.0, environment=environment)

    def complete(self, tree: Path) -> None:
        """Drop options of a tree's configuration that others do not allow, and give new ones their defaults."""
        _make(tree, self._arch, [*self.variables, "olddefconfig"], 900.0)

    @property
    def tools(self) -> Sequence[str]:
        """The programs that decide what is built, besides those that the tree brings."""
        given = dict(variable.split("=", 1) for variable in self.variables)
        usual = (
            {"CC": "clang", "LD": "ld.lld", "AS": "clang"} if "LLVM" in given else {"CC": "gcc", "LD": "ld", "AS": "as"}
        )
        return [given.get(name, program) for name, program in {**usual, "PAHOLE": "pahole"}.items()]

    def build(self, tree: Path, say: Callable[[str], None]) -> None:
        """Configure and compile the kernel. Raises BuildError."""
        self.prepare(tree)
        self.compile(tree, say)

    def prepare(self, tree: Path) -> None:
        """Write the configuration into a tree, as the tree completes it; nothing of the kernel is compiled."""
        if self.config != tree / ".config":
            # Without a name of its own, a commit that changes no code builds the same image (scripts/setlocalversion).
            unnamed = b"\n# CONFIG_LOCALVERSION_AUTO is not set\n"
            (tree / ".config").write_bytes(self.config.read_bytes() + unnamed)
        check_all_installed(build_lists("a kernel", self.config.read_text(errors="replace")))
        self.complete(tree)

    def check_bootable(self, tree: Path, source: Path) -> None:
        """Raise UsageError if no guest could run the kernel of a prepared tree; hints name the user's ``source``."""
        config, needed = read_config(tree / ".config"), needed_options(tree / ".config")
        if not needed:
            return
        detail = [f"{option}: {why}" for option, why in needed.items()]
        file = "" if self.config == source / ".config" else f" --file {shlex.quote(str(self.config))}"
        beneath = [name for name in BENEATH if f"CONFIG_{name}" not in config]
        enabled = " ".join(f"-e {name}" for name in [*beneath, *(option.removeprefix("CONFIG_") for option in needed)])
        hint = f"in {source}: scripts/config{file} {enabled}"
        raise UsageError("the lab cannot use this configuration", where=str(self.config), detail=detail, hint=hint)

    def compile(self, tree: Path, say: Callable[[str], None]) -> None:
        """Build the kernel of a prepared tree. Raises BuildError."""
        say(f"building the kernel in {tree}")
        unnamed = [] if self.config == tree / ".config" else ["LOCALVERSION="]
        words = [*unnamed, *self.variables, f"-j{len(os.sched_getaffinity(0))}", "bzImage", "modules"]
        begun = time.time_ns()
        _make(tree, self._arch, words, 12 * 3600.0, listener=CompileProgress(say, "the kernel").line)
        image = tree / IMAGE
        if image.is_file() and image.stat().st_mtime_ns < begun:
            # Nothing that has changed is in this kernel: the image is that of the sources as they are now.
            os.utime(image)


BENEATH = ("MULTIUSER", "SYSFS", "PROC_FS", "PRINTK", "TTY", "SERIAL_8250", "PCI", "VIRTIO_MENU", "DEBUG_KERNEL")
"""What the options that the lab needs depend on, and a very small configuration lacks."""


def needed_options(file: Path) -> Mapping[str, str]:
    """The options that a user's kernel lacks and no guest can do without, with the reasons; of its .config.

    Raises OSError.
    """
    config = read_config(file)
    return lacking_options(file) | {name: "the lab's channel" for name in DRIVERS if config.get(name) != "y"}


def _make(
    tree: Path,
    arch: str,
    words: Sequence[str],
    time_limit: float,
    *,
    environment: Mapping[str, str] | None = None,
    listener: Callable[[str], None] | None = None,
) -> None:
    variables = {**build_environment(), **IDENTITY, **(environment or {})}
    command = ["make", "-C", str(tree), f"ARCH={arch}", *words]
    finished = run(command, time_limit=time_limit, environment=variables, listener=listener)
    if finished.status != 0:
        raise kernel_error("the kernel does not build", tree, finished.stdout + finished.stderr)


ALL_MECHANISMS = "lab-x86_64-smp-bpf@7.3"
"""The kernel of the lab whose options a tree without a configuration gets."""
_NOT_PREEMPTIBLE = "# CONFIG_PREEMPT_DYNAMIC is not set\n"
"""A default since Linux 5.12 that makes a kernel with PREEMPT_NONE a preemptible one, whose kprobes have no booster."""
_FOR_DEBUGGERS = "CONFIG_PROC_KCORE=y\n"
"""Selects CONFIG_CRASH_CORE, since Linux 6.9 CONFIG_VMCORE_INFO: the note that drgn opens a panic's vmcore by."""
_BESIDES = ("FTRACE", "KALLSYMS_ALL", "KPROBE_EVENTS", "PERF_EVENTS", "UPROBE_EVENTS")
_KCONFIG = ("arch/Kconfig", "init/Kconfig*", "kernel/**/Kconfig*", "lib/Kconfig*", "security/Kconfig*")


def lacking_for_mechanisms(source: Path, config: Mapping[str, str]) -> Sequence[str]:
    """The options, known to a kernel's ``source``, without which some mechanism cannot be measured on its kernel."""
    fragments = kernel(ALL_MECHANISMS).model_copy(update={"fragments": ["ftrace", "bpf"]})
    set_to_y = (option for option, value in SET_OPTION.findall(merged(fragments)) if value == "y")
    useful = [*(f"CONFIG_{name}" for name in _BESIDES), *set_to_y]
    given = {"CONFIG_DEBUG_INFO_DWARF5"} if config.get("CONFIG_DEBUG_INFO") == "y" else set()
    files = [file for pattern in _KCONFIG for file in source.glob(pattern)]
    texts = "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    known = {f"CONFIG_{name}" for name in re.findall(r"^\s*(?:menu)?config (\w+)", texts, re.MULTILINE)}
    return [option for option in useful if option in known - given and option not in config]


def own_variant(context: BuildContext, spec: KernelSpec, key: str, toolchain: Toolchain) -> Artifact:
    """A user's tree ``key``, copied and built with the variant's options, in ``build/``. Raises BuildError, HostError.

    The tree itself is only read. Objects that the options do not concern are not compiled again.
    """
    assert spec.tree is not None
    tree = spec.tree
    source = source_of(tree)
    # The options may compile files that the tree's own kernel has not.
    files = {str(file.relative_to(source)): (at.st_mtime_ns, at.st_size) for file, at in source_files(source)}
    stamps = digest(files)
    inputs = {"tree": key, "sources": stamps, "options": spec.options, "compiler": toolchain.version}

    def build(folder: Path) -> None:
        context.need_network(spec.name)  # a build takes as long as a download: offline excludes both
        check_all_installed(build_lists(spec.name, (tree / ".config").read_text(errors="replace") + spec.options))
        context.say(f"copying {tree} and building it with {', '.join(spec.options.splitlines())}")
        copy = folder / "build"
        shutil.copytree(tree, copy, symlinks=True, ignore=lambda at, _: [".git"] if Path(at) == tree else [])
        own_source = copy if source == tree else source
        relocate(copy, tree, source, source)
        before = read_config(copy / ".config")
        with (copy / ".config").open("a") as file:
            file.write(spec.options)
        words = [*([f"O={copy}"] if own_source != copy else []), *toolchain.for_make()]
        _make(own_source, spec.arch, [*words, "olddefconfig"], 900.0)
        config = read_config(copy / ".config")
        refused = not_granted(spec.options, config)
        if refused:
            hint = "an option may depend on another one that is off, or have another name in this version"
            raise BuildError(f"the configuration of {spec.name} is not what its options say", detail=refused, hint=hint)
        jobs = f"-j{len(os.sched_getaffinity(0))}"
        listener = CompileProgress(context.say, spec.name).line
        _make(own_source, spec.arch, [*words, jobs, "bzImage", "modules"], 12 * 3600.0, listener=listener)
        write_implied(folder, spec, before, config)

    return context.cache.obtain("own-kernels", inputs, spec.name, build)
