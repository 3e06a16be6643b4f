# SPDX-License-Identifier: GPL-2.0-only
"""Kernels built from source: their build trees."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orchestrator.artifacts.build_relocation import relocate
from orchestrator.artifacts.cache import Artifact, BuildContext
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.diagnostics import kernel_error
from orchestrator.artifacts.kernel_config import has_types, merged, not_granted, write_implied
from orchestrator.artifacts.kernel_source import SOURCE_KIND, UNPACKED_GB, kernel_source, sound_source
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.catalog.kernels import KernelSpec, read_config
from orchestrator.errors import BuildError, HostError
from orchestrator.files import ScratchFolder
from orchestrator.paths import AWKWARD, kbuild_takes
from orchestrator.process import run
from orchestrator.program import check_all_installed


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
