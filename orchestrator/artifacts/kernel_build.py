# SPDX-License-Identifier: GPL-2.0-only
"""Kernels built from source, once each; from a copy of a similar kernel's build tree where there is one."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.diagnostics import error_lines
from orchestrator.artifacts.kernel_config import check_granted, merged, not_granted
from orchestrator.artifacts.kernel_source import (
    UNPACKED_GB,
    kernel_source,
    sound_source,
    sources_of_same_package,
)
from orchestrator.artifacts.relocation import relocate
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.artifacts.type_information import check_type_maker, drop_debug_information, has_types
from orchestrator.catalog.kconfig import read_config
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.errors import BuildError, HostError
from orchestrator.paths import AWKWARD, kbuild_takes
from orchestrator.process import Finished, run
from orchestrator.requirements import check_installed

BUILD_GB = 0.4
CPU_MINUTES = 10
"""Disk and time of a build from nothing; from a similar kernel's, where few files see the difference, half a minute."""

_CONFIGURE_LIMIT = 300.0
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
        check_type_maker(f"building {spec.name}")
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
    finished = run([*make, "allnoconfig"], time_limit=_CONFIGURE_LIMIT, environment=environment)
    if finished.status != 0:
        raise BuildError(f"{spec.name} cannot be configured", detail=finished.complaint())
    config = read_config(build / ".config")
    if not spec.is_searched:
        check_granted(wanted, config, spec.name)
    elif different := not_granted(wanted, config):
        # The fragments are of the versions that the catalogue has: another may have renamed an option, or dropped it.
        context.warn("\n".join([f"{spec.name} is configured otherwise than its fragments say:", *different]))
    progress = _Progress(context, spec.name)
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    finished = run(
        [*make, jobs, "bzImage", "modules"],
        time_limit=_BUILD_LIMIT,
        environment={**compiling_in(build), **IDENTITY},
        listener=progress.line,
    )
    if finished.status != 0:
        raise _broken(spec, finished)
    if has_types(wanted):
        drop_debug_information(build, toolchain)


def _similar(context: BuildContext, spec: KernelSpec, source: Artifact, toolchain: Toolchain) -> Artifact | None:
    """The sound kernel of the same architecture, package and compiler that shares the most lines of configuration.

    One with type information shares nothing: each of its objects has debug information, and none of them is kept.
    """
    wanted = merged(spec)
    if has_types(wanted):
        return None
    sources = sources_of_same_package(context, source)
    candidates = [
        artifact
        for artifact in context.cache.artifacts()
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
        self._context = context
        self._name = name
        self._steps = 0
        self._reported = time.monotonic()

    def line(self, text: str) -> None:
        if _STEP.match(text):
            self._steps += 1
        if text.strip() and time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            self._context.say(f"building {self._name}: {self._steps} files so far, now {text.split()[-1][:60]}")


def _broken(spec: KernelSpec, finished: Finished) -> BuildError:
    return BuildError(f"{spec.name} does not build", detail=error_lines(finished.stdout + finished.stderr))
