# SPDX-License-Identifier: GPL-2.0-only
"""Kernels built from source: their build trees."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.build_relocation import relocate
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.diagnostics import kernel_error
from orchestrator.artifacts.kernel_config import has_types, merged, not_granted, write_implied
from orchestrator.artifacts.kernel_source import SOURCE_KIND, UNPACKED_GB, kernel_source
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.catalog.kernels import KernelSpec, read_config
from orchestrator.errors import BuildError, HostError
from orchestrator.files import ScratchFolder
from orchestrator.host_packages import check_all_installed
from orchestrator.paths import AWKWARD, kbuild_takes
from orchestrator.process import run


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
    if spec.source is None or _kept(context, spec) is not None:
        return {}
    return build_lists(spec.name, merged(spec))


@dataclass(frozen=True)
class KernelBuild:
    """What a kernel is built from: its specification, source, merged configuration and compiler."""

    spec: KernelSpec
    source: Artifact
    config: str
    toolchain: Toolchain

    @property
    def inputs(self) -> Mapping[str, object]:
        return {
            "source": self.source.key,
            "arch": self.spec.arch,
            "config": self.config,
            "compiler": self.toolchain.version,
        }

    @property
    def linux(self) -> Path:
        """The folder of the source."""
        return self.source.path / "linux"

    def make(self, tree: Path) -> Sequence[str]:
        """The command that makes something in ``tree``, without its targets."""
        variables = [f"O={tree}", f"ARCH={self.spec.arch}", *self.toolchain.for_make(), "HOSTCC=gcc"]
        return ["make", "-C", str(self.linux), *variables]


def _build_of(context: BuildContext, spec: KernelSpec) -> KernelBuild:
    assert spec.source is not None
    source = kernel_source(context, spec.source, spec.patch_files, spec.files)
    return KernelBuild(spec, source, merged(spec), guest_toolchain(context))


def _kept(context: BuildContext, spec: KernelSpec) -> Artifact | None:
    """A lab kernel in the cache; None if it, or something that it is built from, is not there."""
    try:
        build = _build_of(BuildContext(context.cache, offline=True), spec)
    except HostError:
        return None
    return context.cache.get("kernels", build.inputs)


def built_kernel(context: BuildContext, spec: KernelSpec) -> Artifact:
    """The build tree of a lab kernel, in ``build/``, cached or built now. Raises BuildError, HostError."""
    artifact = _kept(context, spec)
    if artifact is not None:
        return artifact
    if not context.offline:
        check_all_installed(build_lists(spec.name, merged(spec)))  # before the source is fetched
    build = _build_of(context, spec)
    context.need_network(spec.name)  # a build takes as long as a download: offline excludes both
    cache = context.cache.root
    if not kbuild_takes(cache):
        what = f"a kernel cannot be built below {cache}: its path has {AWKWARD}"
        raise HostError(what, hint="set ORCHESTRATOR_CACHE to another folder")
    free = shutil.disk_usage(cache if cache.exists() else cache.parent).free / 1e9
    if free < UNPACKED_GB + BUILD_GB:
        raise HostError(f"building a kernel needs {UNPACKED_GB + BUILD_GB:.1f} GB in {cache}, and {free:.1f} are free")
    kernel_source(context, spec.source or "", spec.patch_files, spec.files, is_verified=True)
    return context.cache.obtain("kernels", build.inputs, spec.name, lambda folder: _make_in(folder, context, build))


def _make_in(folder: Path, context: BuildContext, build: KernelBuild) -> None:
    tree, name = folder / "build", build.spec.name
    similar = _similar(context, build)
    if similar is not None:
        time_needed = f"up to {CPU_MINUTES} minutes of one CPU"
        context.say(f"building {name} from what {similar.label} left: {BUILD_GB} GB, {time_needed}")
        shutil.copytree(similar.path / "build", tree, symlinks=True)
        made_in = similar.path.with_suffix(folder.suffix) / "build"  # its name while unfinished
        before = build.source.path.with_name(str(similar.inputs["source"])) / "linux"
        relocate(tree, made_in, before, build.linux)
    else:
        context.say(f"building {name}: {BUILD_GB} GB, some {CPU_MINUTES} minutes of one CPU")
        tree.mkdir()
    config = compile_kernel(context, build, tree)
    if build.spec.options:
        plain = build.spec.model_copy(update={"options": ""})
        with ScratchFolder("orchestrator-config-") as plain_tree:
            plain_config = _configured(context, replace(build, spec=plain, config=merged(plain)), plain_tree)
        write_implied(folder, build.spec, plain_config, config)
    if has_types(build.config):  # their debug information; module builds need the objects of scripts and tools
        for file in {*tree.rglob("*.o"), *tree.rglob("*.a"), *tree.glob(".tmp_vmlinux*")}:
            if file.relative_to(tree).parts[0] not in ("scripts", "tools"):
                file.unlink()
        strip_debug(build.toolchain, tree / "vmlinux")


def compile_kernel(
    context: BuildContext, build: KernelBuild, tree: Path, targets: Sequence[str] = ("bzImage", "modules")
) -> Mapping[str, str]:
    """Configure and make a kernel in ``tree``, and return the configuration that it has got. Raises BuildError."""
    config, name = _configured(context, build, tree), build.spec.name
    finished = run(
        [*build.make(tree), f"-j{len(os.sched_getaffinity(0))}", *targets],
        time_limit=4 * 3600.0,
        environment={**compiling_in(tree), **IDENTITY},
        listener=CompileProgress(context.say, name).line,
    )
    if finished.status != 0:
        raise kernel_error(f"{name} does not build", build.linux, finished.stdout + finished.stderr)
    return config


def _configured(context: BuildContext, build: KernelBuild, tree: Path) -> Mapping[str, str]:
    """Configure a kernel in ``tree``. Raises BuildError if the result is not what its configuration says."""
    spec, file = build.spec, tree / "all.config"
    file.write_text(build.config)
    environment = {**compiling_in(tree), **IDENTITY, "KCONFIG_ALLCONFIG": str(file)}
    configured = run([*build.make(tree), "allnoconfig"], time_limit=300, environment=environment)
    configured.or_raise(BuildError, f"{spec.name} cannot be configured")
    config = read_config(tree / ".config")
    refused = not_granted(build.config, config)
    refused_own = not_granted(spec.options, config)
    if refused_own or (refused and not spec.is_searched):
        hint = "an option may depend on another one that is off, or have another name in this version"
        what = f"the configuration of {spec.name} is not what its {'options' if refused_own else 'fragments'} say"
        raise BuildError(what, detail=(refused_own or refused)[:20], hint=hint)
    if refused:
        # The fragments suit the catalogue's versions: another version may have renamed or dropped an option.
        context.warn("\n".join([f"{spec.name} is configured differently from its fragments:", *refused]))
    return config


def _similar(context: BuildContext, build: KernelBuild) -> Artifact | None:
    """The most similar sound kernel with this architecture, package and compiler; None for a kernel with BTF."""
    if has_types(build.config):
        return None
    artifacts, package = list(context.cache.artifacts()), build.source.inputs["package"]
    of_package = [artifact for artifact in artifacts if artifact.inputs.get("package") == package]
    sources = {artifact.key for artifact in of_package if artifact.kind == SOURCE_KIND}
    candidates = [
        artifact
        for artifact in artifacts
        if artifact.kind == "kernels"
        and artifact.inputs.get("arch") == build.spec.arch
        and artifact.inputs.get("source") in sources
        and artifact.inputs.get("compiler") == build.toolchain.version
        and not has_types(str(artifact.inputs["config"]))
    ]
    lines = set(build.config.splitlines())

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
