# SPDX-License-Identifier: GPL-2.0-only
"""Kernels built from source: configurations and build trees."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.artifacts.cache import Artifact, BuildContext
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.diagnostics import kernel_error
from orchestrator.artifacts.kernel_source import SOURCE_KIND, UNPACKED_GB, kernel_source, sound_source
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.catalog.kernels import SET_OPTION, KernelSpec, read_config
from orchestrator.errors import BuildError, HostError
from orchestrator.files import ScratchFolder
from orchestrator.paths import AWKWARD, data_dir, kbuild_takes
from orchestrator.process import run
from orchestrator.program import check_all_installed

_UNSET = re.compile(r"^# (CONFIG_\w+) is not set$", re.MULTILINE)

MAINLINE_HASH_BITS = "6"
"""The value of kernels without the option: KPROBE_HASH_BITS of kernel/kprobes.c, since 2.6.9."""

_PREEMPTION = {
    "CONFIG_PREEMPT_VOLUNTARY": "voluntary",
    "CONFIG_PREEMPT": "full",
    "CONFIG_PREEMPT_LAZY": "lazy",  # since Linux 6.13 (commit 7c70cb94d29c)
    "CONFIG_PREEMPT_RT": "real time",
    "CONFIG_PREEMPT_DYNAMIC": "dynamic",  # selected at boot; the code is that of a preemptible kernel
}


def merged(spec: KernelSpec) -> str:
    """A kernel's fragments of ``images/kernels`` and its own options; later lines override earlier ones."""
    folder = data_dir("images") / "kernels"
    text = "".join((folder / f"{name}.config").read_text() for name in spec.fragments)
    lines = [(line, SET_OPTION.match(line) or _UNSET.match(line)) for line in text.splitlines(keepends=True)]
    return "".join(line for line, option in lines if option is None or option[1] not in spec.without) + spec.options


def not_granted(merged_config: str, config: Mapping[str, str]) -> list[str]:
    """The options that the build system did not set as the fragments ask, each with its value."""
    last = {
        (match[1] or match[3]): match[2]
        for match in re.finditer(f"{SET_OPTION.pattern}|{_UNSET.pattern}", merged_config, re.M)
    }
    return [
        f"{option}: wanted {value or 'off'}, got {config.get(option, 'off')}"
        for option, value in last.items()
        if config.get(option) != value
    ]


def features(config: Mapping[str, str]) -> dict[str, str]:
    """The kernel features that matter to probes, from its configuration."""

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


# Relocating a copy of a build tree to another source, so that make rebuilds only what differs.
#
# Kbuild compares an object's command line and the names of its inputs with today's. Both hold the source's absolute
# path; those of objtool, on which every object depends, also hold the build tree's. Kbuild detects a changed file by
# its time alone, which means nothing in another tree: an object may be newer than a file that it was not made from. So
# objects made from a file that differs are removed.


def relocate(build: Path, made_in: Path, before: Path, now: Path) -> None:
    """Adapt ``build``, a copy of ``made_in``, to the source ``now``, which shares files with ``before``."""
    differing_files = set(_files(before)) ^ set(_files(now)) if before != now else set()
    differing = {os.fsencode(now / path) for path, _ in differing_files}
    for file in [*build.rglob("*.cmd"), *build.rglob("*.d"), build / "Makefile"]:
        if not file.is_file() or file.is_symlink() or file.stat().st_size > 64 << 20:
            continue
        changed = content = file.read_bytes()
        for old, new in ((made_in, build), (before, now)):
            for end in (b"/", b"\n"):
                changed = changed.replace(os.fsencode(old) + end, os.fsencode(new) + end)
        if changed != content:
            file.write_bytes(changed)
        # .NAME.cmd says how NAME was made. (auto.conf.cmd differs: removing auto.conf would rebuild everything.)
        made = re.fullmatch(r"\.(.+)\.cmd", file.name)
        if made is not None and not differing.isdisjoint(re.findall(rb"[^\s:;\"'\\()]+", changed)):
            file.with_name(made[1]).unlink(missing_ok=True)
    link = build / "source"
    if link.is_symlink():
        link.unlink()
        link.symlink_to(now)


def _files(source: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for folder, _, names in os.walk(source):
        for name in names:
            facts = (path := Path(folder, name)).lstat()
            yield str(path.relative_to(source)), (facts.st_dev, facts.st_ino)


def has_types(config: str) -> bool:
    """Whether a configuration includes type information (BTF)."""
    return "CONFIG_DEBUG_INFO_BTF=y" in config.splitlines()


def strip_debug(toolchain: Toolchain, file: Path) -> None:
    """Remove a file's debug information. Raises BuildError."""
    stripped = run([toolchain.program("strip"), "--strip-debug", str(file)], time_limit=300)
    stripped.or_raise(BuildError, f"strip fails on {file.name}")


BUILD_GB = 0.4
CPU_MINUTES = 10
"""Disk space and time of a full build. From a similar kernel's tree with few affected files it takes half a minute."""


IDENTITY = {
    "KBUILD_BUILD_TIMESTAMP": "Wed Jul 13 00:00:00 UTC 2005",
    "KBUILD_BUILD_USER": "lab",
    "KBUILD_BUILD_HOST": "lab",
    "KBUILD_BUILD_VERSION": "1",
}
"""Variables of a build. They end up in the kernel: equal inputs must give equal bytes."""


def build_lists(name: str, config: str) -> Mapping[str, str]:
    """The package lists that building a kernel of a configuration needs, with what needs them."""
    lists = {"kernel-packages.txt": f"building {name}"}
    if has_types(config):
        # Without pahole Linux 6.1 fails after ten minutes, and 6.12 silently disables the option.
        lists["type-packages.txt"] = f"building {name}, which has type information (BTF),"
    return lists


def kernel_lists(context: BuildContext, spec: KernelSpec) -> Mapping[str, str]:
    """The package lists that building a kernel needs; none for one that is built, or a package."""
    if spec.source is None or is_built(context, spec):
        return {}
    return build_lists(spec.name, merged(spec))


def is_built(context: BuildContext, spec: KernelSpec) -> bool:
    """Whether a lab kernel is in the cache."""
    try:
        built_kernel(BuildContext(context.cache, offline=True), spec)
    except HostError:
        return False
    return True


def built_kernel(context: BuildContext, spec: KernelSpec) -> Artifact:
    """The build tree of a lab kernel, in ``build/``, cached or built now. Raises BuildError, HostError."""
    assert spec.source is not None
    merged_config = merged(spec)
    if not context.offline and not is_built(context, spec):
        check_all_installed(build_lists(spec.name, merged_config))  # before the source is fetched
    source, toolchain = kernel_source(context, spec.source, spec.patch_files, spec.files), guest_toolchain(context)
    inputs = {"source": source.key, "arch": spec.arch, "config": merged_config, "compiler": toolchain.version}
    artifact = context.cache.get("kernels", inputs)
    if artifact is not None:
        return artifact
    context.need_network(spec.name)  # a build takes as long as a download: offline excludes both
    cache = context.cache.root
    if not kbuild_takes(cache):
        what = f"a kernel cannot be built below {cache}: its path has {AWKWARD}"
        raise HostError(what, hint="set ORCHESTRATOR_CACHE to another folder")
    free = shutil.disk_usage(cache if cache.exists() else cache.parent).free / 1e9
    if free < UNPACKED_GB + BUILD_GB:
        raise HostError(f"building a kernel needs {UNPACKED_GB + BUILD_GB:.1f} GB in {cache}, and {free:.1f} are free")
    sound_source(context, spec.source, spec.patch_files, spec.files)
    return context.cache.obtain(
        "kernels", inputs, spec.name, lambda folder: _build(context, spec, source, merged_config, folder, toolchain)
    )


def _build(
    context: BuildContext, spec: KernelSpec, origin: Artifact, merged_config: str, folder: Path, toolchain: Toolchain
) -> None:
    build, source = folder / "build", origin.path / "linux"
    similar = _similar(context, spec, origin, toolchain)
    if similar is not None:
        time_needed = f"up to {CPU_MINUTES} minutes of one CPU"
        context.say(f"building {spec.name} from what {similar.label} left: {BUILD_GB} GB, {time_needed}")
        shutil.copytree(similar.path / "build", build, symlinks=True)
        made_in = similar.path.with_suffix(folder.suffix) / "build"  # its name while unfinished
        relocate(build, made_in, origin.path.parent / str(similar.inputs["source"]) / "linux", source)
    else:
        context.say(f"building {spec.name}: {BUILD_GB} GB, some {CPU_MINUTES} minutes of one CPU")
        build.mkdir()
    config = compile_kernel(context, spec, source, merged_config, build, toolchain)
    if spec.options:
        plain = spec.model_copy(update={"options": ""})
        with ScratchFolder("orchestrator-config-") as plain_build:
            before = _configured(context, plain, source, merged(plain), plain_build, toolchain)
        write_implied(folder, spec, before, config)
    if has_types(merged_config):  # their debug information; module builds need the objects of scripts and tools
        for file in {*build.rglob("*.o"), *build.rglob("*.a"), *build.glob(".tmp_vmlinux*")}:
            if file.relative_to(build).parts[0] not in ("scripts", "tools"):
                file.unlink()
        strip_debug(toolchain, build / "vmlinux")


def compile_kernel(  # noqa: PLR0913 - a build has these inputs
    context: BuildContext,
    spec: KernelSpec,
    source: Path,
    merged_config: str,
    build: Path,
    toolchain: Toolchain,
    targets: Sequence[str] = ("bzImage", "modules"),
) -> Mapping[str, str]:
    """Configure and make a kernel in ``build`` as ``wanted``, a merged configuration, and return what it has become.

    Raises BuildError.
    """
    config = _configured(context, spec, source, merged_config, build, toolchain)
    make = _make(spec, source, build, toolchain)
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    argv = [*make, jobs, *targets]
    finished = run(
        argv,
        time_limit=4 * 3600.0,
        environment={**compiling_in(build), **IDENTITY},
        listener=CompileProgress(context.say, spec.name).line,
    )
    if finished.status != 0:
        raise kernel_error(f"{spec.name} does not build", source, finished.stdout + finished.stderr)
    return config


def _make(spec: KernelSpec, source: Path, build: Path, toolchain: Toolchain) -> Sequence[str]:
    return ["make", "-C", str(source), f"O={build}", f"ARCH={spec.arch}", *toolchain.for_make(), "HOSTCC=gcc"]


def _configured(
    context: BuildContext, spec: KernelSpec, source: Path, merged_config: str, build: Path, toolchain: Toolchain
) -> Mapping[str, str]:
    """Configure a kernel in ``build``. Raises BuildError if it is not as ``wanted``."""
    (build / "all.config").write_text(merged_config)
    environment = {**compiling_in(build), **IDENTITY, "KCONFIG_ALLCONFIG": str(build / "all.config")}
    argv = [*_make(spec, source, build, toolchain), "allnoconfig"]
    run(argv, time_limit=300, environment=environment).or_raise(BuildError, f"{spec.name} cannot be configured")
    config = read_config(build / ".config")
    refused = not_granted(merged_config, config)
    refused_own = not_granted(spec.options, config)
    if refused_own or (refused and not spec.is_searched):
        hint = "an option may depend on another one that is off, or have another name in this version"
        what = f"the configuration of {spec.name} is not what its {'options' if refused_own else 'fragments'} say"
        raise BuildError(what, detail=(refused_own or refused)[:20], hint=hint)
    if refused:
        # The fragments suit the catalogue's versions: another version may have renamed or dropped an option.
        context.warn("\n".join([f"{spec.name} is configured differently from its fragments:", *refused]))
    return config


_IMPLIED = "implied-options.json"


def write_implied(folder: Path, spec: KernelSpec, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Write down the options that differ from the plain kernel's, but for those that the variant names."""
    named = {match[1] for line in spec.options.splitlines() if (match := SET_OPTION.match(line) or _UNSET.match(line))}
    differing = sorted(option for option in {**before, **after} if before.get(option) != after.get(option))
    changes = {option: after.get(option, "n") for option in differing if option not in named}
    (folder / _IMPLIED).write_text(json.dumps(changes))


def implied_options(built: Path) -> Mapping[str, str]:
    """What a variant's own options changed besides themselves, with the new values; empty for other kernels."""
    file = built / _IMPLIED
    changes: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return changes


def _similar(context: BuildContext, spec: KernelSpec, source: Artifact, toolchain: Toolchain) -> Artifact | None:
    """The most similar sound kernel with this architecture, package and compiler; None for a kernel with BTF."""
    merged_config = merged(spec)
    if has_types(merged_config):
        return None
    artifacts = list(context.cache.artifacts())
    of_package = [artifact for artifact in artifacts if artifact.inputs.get("package") == source.inputs["package"]]
    sources = {artifact.key for artifact in of_package if artifact.kind == SOURCE_KIND}
    candidates = [
        artifact
        for artifact in artifacts
        if artifact.kind == "kernels"
        and artifact.inputs.get("arch") == spec.arch
        and artifact.inputs.get("source") in sources
        and artifact.inputs.get("compiler") == toolchain.version
        and not has_types(str(artifact.inputs["config"]))
    ]
    lines = set(merged_config.splitlines())

    def differing(artifact: Artifact) -> int:
        return len(lines ^ set(str(artifact.inputs["config"]).splitlines()))

    # Copied files get recorded as sound, so the tree must be sound.
    return next(filter(context.cache.is_sound, sorted(candidates, key=differing)), None)


class CompileProgress:
    """Reports the number of compiled files every 15 seconds."""

    def __init__(self, say: Callable[[str], None], name: str) -> None:
        self._say, self._name, self._steps = say, name, 0
        self._reported = time.monotonic()

    def line(self, text: str) -> None:
        if re.match(r"  (?:CC|AS|LD|AR|HOSTCC)\b", text):
            self._steps += 1
        if text.strip() and time.monotonic() - self._reported > 15:
            self._reported = time.monotonic()
            self._say(f"building {self._name}: {self._steps} files so far, now {text.split()[-1][:60]}")
