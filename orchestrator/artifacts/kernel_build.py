# SPDX-License-Identifier: GPL-2.0-only
"""Kernels built from source: the configuration, build trees and their copies."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orchestrator.artifacts.cache import Artifact, BuildContext
from orchestrator.artifacts.compiler import Toolchain, build_environment, compiling_in, guest_toolchain
from orchestrator.artifacts.diagnostics import error_lines
from orchestrator.artifacts.kernel_source import SOURCE_KIND, UNPACKED_GB, kernel_source, sound_source
from orchestrator.catalog.kernels import KernelSpec, read_config
from orchestrator.errors import BuildError, HostError, UsageError
from orchestrator.paths import AWKWARD, data_dir, kbuild_takes
from orchestrator.process import run
from orchestrator.program import check_installed

# A kernel's configuration: merged from fragments, checked, and read for the features that probes need.

_SET = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)
_UNSET = re.compile(r"^# (CONFIG_\w+) is not set$", re.MULTILINE)

MAINLINE_HASH_BITS = "6"
"""Where a kernel has no option for it: KPROBE_HASH_BITS of kernel/kprobes.c, since 2.6.9."""

_PREEMPTION = {
    "CONFIG_PREEMPT_VOLUNTARY": "voluntary",
    "CONFIG_PREEMPT": "full",
    "CONFIG_PREEMPT_LAZY": "lazy",  # since Linux 6.13 (commit 7c70cb94d29c)
    "CONFIG_PREEMPT_RT": "real time",
    "CONFIG_PREEMPT_DYNAMIC": "dynamic",  # chosen when it boots; the code is that of a preemptible kernel
}


def merged(spec: KernelSpec) -> str:
    """A kernel's fragments of ``images/kernels`` one after the other; a later one has the last word."""
    folder = data_dir("images") / "kernels"
    text = "".join((folder / f"{name}.config").read_text() for name in spec.fragments)
    lines = [(line, _SET.match(line) or _UNSET.match(line)) for line in text.splitlines(keepends=True)]
    return "".join(line for line, option in lines if option is None or option[1] not in spec.without)


def not_granted(wanted: str, config: Mapping[str, str]) -> list[str]:
    """The options that the kernel's build system did not take as the fragments have them, each with what it has."""
    last = {(one[1] or one[3]): one[2] for one in re.finditer(f"{_SET.pattern}|{_UNSET.pattern}", wanted, re.M)}
    return [
        f"{option}: wanted {value or 'off'}, got {config.get(option, 'off')}"
        for option, value in last.items()
        if config.get(option) != value
    ]


def check_granted(wanted: str, config: Mapping[str, str], name: str) -> None:
    """Raise BuildError where an option is not as the fragments have it."""
    refused = not_granted(wanted, config)
    if refused:
        raise BuildError(
            f"the configuration of {name} is not what its fragments say",
            detail=refused[:20],
            hint="an option may depend on another one that is off, or have another name in this version",
        )


def features(config: Mapping[str, str]) -> dict[str, str]:
    """What matters to probes, by the kernel's own configuration."""

    def has(option: str) -> str:
        return "yes" if config.get(option) == "y" else "no"

    return {
        "booster": "no" if has("CONFIG_PREEMPTION") == "yes" else has("CONFIG_KPROBES"),
        "optprobes": has("CONFIG_OPTPROBES"),
        "ftrace": has("CONFIG_FUNCTION_TRACER"),
        "preemption": ["none", *(name for option, name in _PREEMPTION.items() if has(option) == "yes")][-1],
        "hook": has("CONFIG_LAB_SYSCALL_HOOK"),
        "markers": has("CONFIG_LAB_MARKERS"),
        "kprobe lists": f"2^{config.get('CONFIG_KPROBE_HASH_BITS', MAINLINE_HASH_BITS)}",
        "kprobe cache": has("CONFIG_KPROBE_CACHE"),
        "HZ": config.get("CONFIG_HZ", "?"),
        "SMP": has("CONFIG_SMP"),
    }


# A copy of a kernel's build tree made to belong to another source, so that only what differs is built again.
#
# Kbuild compares the command that made an object, and the names of what it was made from, with those of today. Both
# hold the source's absolute path, and those of objtool, after which every object is made again, the build tree's own.
# It detects a changed file by its time alone, which means nothing in another tree: an object may be younger than a
# file that it was not made from. So objects made from a file that differs are removed.

_LARGEST = 64 << 20
# .NAME.cmd says how NAME beside it was made. (auto.conf.cmd is another thing: without an auto.conf all is made anew.)
_MADE = re.compile(r"\.(?P<name>.+)\.cmd")
_WORD = re.compile(rb"[^\s:;\"'\\()]+")


def relocate(build: Path, made_in: Path, before: Path, now: Path) -> None:
    """Let ``build``, a copy of what was made in ``made_in`` from the source ``before``, go on with the source ``now``.

    The two sources share the files that are the same in both, by hard links.
    """
    others = set(_files(before)) ^ set(_files(now)) if before != now else set()
    differing = {os.fsencode(now / path) for path, _ in others}
    for file in [*build.rglob("*.cmd"), *build.rglob("*.d"), build / "Makefile"]:
        if not file.is_file() or file.is_symlink() or file.stat().st_size > _LARGEST:
            continue
        content = file.read_bytes()
        changed = _moved(_moved(content, made_in, build), before, now)
        if changed != content:
            file.write_bytes(changed)
        made = _MADE.fullmatch(file.name)
        if made is not None and not differing.isdisjoint(_WORD.findall(changed)):
            file.with_name(made["name"]).unlink(missing_ok=True)
    link = build / "source"
    if link.is_symlink():
        link.unlink()
        link.symlink_to(now)


def _moved(content: bytes, before: Path, now: Path) -> bytes:
    for end in (b"/", b"\n"):
        content = content.replace(os.fsencode(before) + end, os.fsencode(now) + end)
    return content


def _files(source: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    folders = [source]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                else:
                    facts = entry.stat(follow_symlinks=False)
                    yield os.path.relpath(entry.path, source), (facts.st_dev, facts.st_ino)


# A kernel's type information (BTF): what making it needs, and what of the debug information before it is kept.

_OPTION = "CONFIG_DEBUG_INFO_BTF=y"
_PROGRAMS = ("scripts", "tools")
"""Folders of a build tree whose objects belong to the build's own programs."""


def has_types(config: str) -> bool:
    """Whether a configuration is that of a kernel with type information."""
    return _OPTION in config.splitlines()


def drop_debug_information(build: Path, toolchain: Toolchain) -> None:
    """Remove the debug information from a built tree, and all objects, which have most of it. Raises BuildError.

    vmlinux keeps its symbols and types, and modules build as before: they need headers, programs and symbol versions.
    """
    for file in {*build.rglob("*.o"), *build.rglob("*.a"), *build.glob(".tmp_vmlinux*")}:
        if file.relative_to(build).parts[0] not in _PROGRAMS:
            file.unlink()
    image = build / "vmlinux"
    strip_debug(toolchain, image, str(image))


def strip_debug(toolchain: Toolchain, file: Path, name: str) -> None:
    """Remove a file's debug information; errors call it ``name``. Raises BuildError."""
    stripped = run([toolchain.program("strip"), "--strip-debug", str(file)], time_limit=300)
    stripped.or_raise(BuildError, f"strip fails on {name}")


# Kernels built from source, once each; from a copy of a similar kernel's build tree where there is one.

BUILD_GB = 0.4
CPU_MINUTES = 10
"""Disk and time of a build from nothing; from a similar kernel's, where few files see the difference, half a minute."""

_BUILD_LIMIT = 4 * 3600.0
_STEP = re.compile(r"^  (?:CC|AS|LD|AR|HOSTCC)\b")
_REPORT_SECONDS = 15.0

IDENTITY = {
    "KBUILD_BUILD_TIMESTAMP": "Wed Jul 13 00:00:00 UTC 2005",
    "KBUILD_BUILD_USER": "lab",
    "KBUILD_BUILD_HOST": "lab",
    "KBUILD_BUILD_VERSION": "1",
}
"""Variables of a build. A kernel contains these facts about it: the same inputs must give the same bytes."""


def built_kernel(context: BuildContext, spec: KernelSpec) -> Artifact:
    """The build tree of a lab kernel, in ``build/``; made when it is not there. Raises BuildError, HostError."""
    assert spec.source is not None
    wanted = merged(spec)
    source, toolchain = kernel_source(context, spec.source, spec.patches, spec.files), guest_toolchain(context)
    inputs = {"source": source.key, "arch": spec.arch, "config": wanted, "compiler": toolchain.version}
    found = context.cache.get("kernels", inputs)
    if found is not None:
        return found
    context.need_network(spec.name)  # to build takes as long as to fetch: offline means neither
    _check_host(context.cache.root)
    if has_types(wanted):
        # Without pahole Linux 6.1 fails after ten minutes, and 6.12 only switches the option off.
        check_installed("type-packages.txt", f"building {spec.name}, which has type information (BTF),")
    sound_source(context, spec.source, spec.patches, spec.files)
    return context.cache.obtain(
        "kernels", inputs, spec.name, lambda folder: _build(context, spec, source, wanted, folder, toolchain)
    )


def _check_host(cache: Path) -> None:
    if not kbuild_takes(cache):
        raise HostError(
            f"a kernel cannot be built below {cache}: its path has {AWKWARD}",
            hint="set ORCHESTRATOR_CACHE to another folder",
        )
    check_installed("kernel-packages.txt", "building a kernel")
    free = shutil.disk_usage(cache if cache.exists() else cache.parent).free / 1e9
    if free < UNPACKED_GB + BUILD_GB:
        raise HostError(f"building a kernel needs {UNPACKED_GB + BUILD_GB:.1f} GB in {cache}, and {free:.1f} are free")


def _build(
    context: BuildContext, spec: KernelSpec, origin: Artifact, wanted: str, folder: Path, toolchain: Toolchain
) -> None:
    build, source = folder / "build", origin.path / "linux"
    similar = _similar(context, spec, origin, toolchain)
    if similar is not None:
        time_needed = f"up to {CPU_MINUTES} minutes of one CPU"
        context.say(f"building {spec.name} from what {similar.label} left: {BUILD_GB} GB, {time_needed}")
        shutil.copytree(similar.path / "build", build, symlinks=True)
        made_in = similar.path.with_suffix(folder.suffix) / "build"  # under the name of an unfinished artifact
        relocate(build, made_in, origin.path.parent / str(similar.inputs["source"]) / "linux", source)
    else:
        context.say(f"building {spec.name}: {BUILD_GB} GB, some {CPU_MINUTES} minutes of one CPU")
        build.mkdir()
    (build / "all.config").write_text(wanted)
    make = ["make", "-C", str(source), f"O={build}", f"ARCH={spec.arch}", *toolchain.for_make(), "HOSTCC=gcc"]
    environment = {**compiling_in(build), **IDENTITY, "KCONFIG_ALLCONFIG": str(build / "all.config")}
    configured = run([*make, "allnoconfig"], time_limit=300, environment=environment)
    configured.or_raise(BuildError, f"{spec.name} cannot be configured")
    config = read_config(build / ".config")
    if not spec.is_searched:
        check_granted(wanted, config, spec.name)
    elif different := not_granted(wanted, config):
        # The fragments are of the versions that the catalogue has: another may have renamed an option, or dropped it.
        context.warn("\n".join([f"{spec.name} is configured otherwise than its fragments say:", *different]))
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    finished = run(
        [*make, jobs, "bzImage", "modules"],
        time_limit=_BUILD_LIMIT,
        environment={**compiling_in(build), **IDENTITY},
        listener=_Progress(context, spec.name).line,
    )
    if finished.status != 0:
        raise BuildError(f"{spec.name} does not build", detail=error_lines(finished.stdout + finished.stderr))
    if has_types(wanted):
        drop_debug_information(build, toolchain)


def _similar(context: BuildContext, spec: KernelSpec, source: Artifact, toolchain: Toolchain) -> Artifact | None:
    """The sound kernel of the same architecture, package and compiler that shares the most lines of configuration.

    One with type information shares nothing: each of its objects has debug information, and none of them is kept.
    """
    wanted = merged(spec)
    if has_types(wanted):
        return None
    artifacts = list(context.cache.artifacts())
    of_package = [one for one in artifacts if one.inputs.get("package") == source.inputs["package"]]
    sources = {one.key for one in of_package if one.kind == SOURCE_KIND}
    candidates = [
        artifact
        for artifact in artifacts
        if artifact.kind == "kernels"
        and artifact.inputs.get("arch") == spec.arch
        and artifact.inputs.get("source") in sources
        and artifact.inputs.get("compiler") == toolchain.version
        and not has_types(str(artifact.inputs["config"]))
    ]
    lines = set(wanted.splitlines())

    def shared(artifact: Artifact) -> int:
        return len(lines & set(str(artifact.inputs["config"]).splitlines()))

    # What is copied is recorded as sound: it must be.
    return next(filter(context.cache.is_sound, sorted(candidates, key=shared, reverse=True)), None)


class _Progress:
    """Reports every 15 seconds how many files were compiled."""

    def __init__(self, context: BuildContext, name: str) -> None:
        self._context, self._name, self._steps = context, name, 0
        self._reported = time.monotonic()

    def line(self, text: str) -> None:
        if _STEP.match(text):
            self._steps += 1
        if text.strip() and time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            self._context.say(f"building {self._name}: {self._steps} files so far, now {text.split()[-1][:60]}")


# A kernel built in its source tree, at whatever revision that is: what did not change is not built again.

_TREE_CONFIGURE_LIMIT = 900.0
_TREE_BUILD_LIMIT = 12 * 3600.0
_ARCH = {"CONFIG_X86_32": "i386", "CONFIG_X86_64": "x86_64"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[ -~]*")


def is_kernel_source(tree: Path) -> bool:
    """Whether a tree is a kernel's."""
    return (tree / "Kconfig").is_file() and (tree / "arch" / "x86" / "Makefile").is_file()


@dataclass(frozen=True)
class TreeBuild:
    """How a kernel is built in its tree: with this configuration, and these variables for make (``CC=gcc-12``)."""

    config: Path
    variables: Sequence[str] = ()

    @classmethod
    def of(cls, tree: Path, config: Path | None, variables: Sequence[str]) -> Self:
        """With this configuration, or the one in ``tree``. Raises UsageError where that is no kernel's, and either."""
        if (config is not None or variables) and not is_kernel_source(tree):
            what = f"--kconfig and --make are for a kernel's tree, and {tree} is none"
            raise UsageError(what, hint="leave them out")
        return cls((config or tree / ".config").absolute(), tuple(variables))

    def check(self) -> None:
        """Raise UsageError where the configuration is not there, or something is no variable."""
        for variable in self.variables:
            if not _VARIABLE.fullmatch(variable):
                raise UsageError(f"--make: found {variable!r}; expected NAME=VALUE", hint="such as --make CC=gcc-12")
        if not self.config.is_file():
            hint = "name one with --kconfig, or make one there: make defconfig"
            raise UsageError("there is no configuration of the kernel", where=str(self.config), hint=hint)
        if not self._arch:
            raise UsageError("this is no configuration of a kernel for x86", where=str(self.config))

    @property
    def _arch(self) -> str:
        # One for i386 does not say that it is not for 64 bits: make has to.
        config = read_config(self.config)
        return next((arch for option, arch in _ARCH.items() if config.get(option) == "y"), "")

    def build(self, tree: Path, say: Callable[[str], None]) -> None:
        """Build bzImage and modules. Raises BuildError with the compiler's words."""
        (tree / ".config").write_bytes(self.config.read_bytes())
        self._make(tree, ["olddefconfig"], _TREE_CONFIGURE_LIMIT)
        say(f"building the kernel in {tree}")
        self._make(tree, [f"-j{len(os.sched_getaffinity(0))}", "bzImage", "modules"], _TREE_BUILD_LIMIT)

    def _make(self, tree: Path, what: Sequence[str], time_limit: float) -> None:
        command = ["make", "-C", str(tree), f"ARCH={self._arch}", *self.variables, *what]
        finished = run(command, time_limit=time_limit, environment={**build_environment(), **IDENTITY})
        if finished.status != 0:
            words = error_lines(finished.stdout + finished.stderr)
            raise BuildError("the kernel does not build", where=str(tree), detail=words)
