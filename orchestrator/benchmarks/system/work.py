# SPDX-License-Identifier: GPL-2.0-only
"""The files that an unattended guest needs to run whole programs, and the reader of its output."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.build_source import build_source
from orchestrator.artifacts.drivers import module_content, unpacked_name, with_dependencies
from orchestrator.artifacts.images import Image, PackedImage, ready_image
from orchestrator.artifacts.initramfs import initramfs
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.unattended import FOLDER, STEPS, unattended_scripts
from orchestrator.benchmarks.system.command import read_command
from orchestrator.benchmarks.system.figures import SystemFigures
from orchestrator.benchmarks.system.kernel_build import read_build
from orchestrator.benchmarks.system.ping_flood import read_flood
from orchestrator.benchmarks.system.prepared_build import DATE, PreparationInputs, prepared_build, shared_scripts
from orchestrator.benchmarks.system.task import SystemTask
from orchestrator.benchmarks.system.workloads import system_workloads
from orchestrator.catalog.images import image as image_recipe
from orchestrator.catalog.user_disk import is_user_disk
from orchestrator.errors import UnsupportedError, UsageError
from orchestrator.guest.guest import Guest

REPORT, REPORT_AFTER = f"{FOLDER}/report", f"{FOLDER}/report_after"
"""Guest files: the module's report after the runs, and its report after it was stopped."""


def warm_reports(warm: int) -> list[tuple[str, str]]:
    """Guest files: the module's reports right before and right after each of ``warm`` warm runs."""
    return [(f"{REPORT}_before_{number}", f"{REPORT}_behind_{number}") for number in range(1, warm + 1)]


_NEEDED = ("CONFIG_BLK_DEV_LOOP", "CONFIG_SQUASHFS", "CONFIG_SQUASHFS_LZ4", "CONFIG_TMPFS")
_DRIVERS = ("loop", "squashfs")
_ROOM_MIB = 128
"""MiB for the kernel and a program, besides the files, which need twice their size while they are unpacked."""


@dataclass(frozen=True)
class Beside:
    """A module beside the workload: loaded before the runs and unloaded after them.

    ``report`` is a guest file that is read before and after each warm run, after all runs, and again after a 1 was
    written to the file ``stop``. ``optimisation`` is the value of debug.kprobes-optimization, set before the module is
    loaded, with ``parameters`` as insmod takes them.
    """

    module: Path
    name: str
    report: str | None = None
    stop: str | None = None
    optimisation: bool | None = None
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class SystemWork:
    """The arguments of ``write_work``, the reader of the output, and the least memory of the guest, in MiB.

    ``inputs`` identify the exact content that the work depends on: image, source and scripts.
    """

    script: str
    settings: Mapping[str, int | str]
    files: Mapping[str, bytes | Path]
    read: Callable[[str], SystemFigures]
    memory_mib: int
    inputs: Mapping[str, str]


@dataclass(frozen=True)
class SystemInputs:
    """What a task works with, at hand before any guest starts: programs, and what the guest mounts them with.

    ``build`` is what a kernel is compiled from, of a kernel build only.
    """

    image: PackedImage
    drivers: Mapping[str, bytes | Path]
    build: PreparationInputs | None = None

    @property
    def keys(self) -> dict[str, str]:
        """What names the exact content of image and source."""
        return {"image": self.image.key, **({} if self.build is None else {"source": self.build.source.key})}


def system_inputs(context: BuildContext, kernel: Kernel, task: SystemTask) -> SystemInputs:
    """Fetch and build what a task needs, without starting a guest.

    Raises UsageError for a wrong image, UnsupportedError for a kernel that does not support the work, and HostError,
    BuildError.
    """
    _check_kernel(kernel)
    image, drivers = _image(context, kernel, task).packed, _drivers(kernel)
    if task.name != "kernel-build":
        return SystemInputs(image, drivers)
    build = PreparationInputs(image, build_source(context), drivers, initramfs(context, kernel))
    return SystemInputs(image, drivers, build)


def system_work(
    context: BuildContext,
    kernel: Kernel,
    task: SystemTask,
    inputs: SystemInputs,
    beside: Beside | None,
    watch: Callable[[Guest], None],
) -> SystemWork:
    """The work of a task with its inputs; a prepared build is made in a guest where the cache has none.

    ``watch`` is called with that guest before it runs. Raises HostError, BuildError, GuestError.
    """
    image, drivers = inputs.image, inputs.drivers
    workload = system_workloads().benchmarks[task.name]
    files: dict[str, bytes | Path] = {
        "root.squashfs": image.squashfs,
        "seed": hashlib.sha512(f"{task.seed}".encode()).digest(),
        **shared_scripts("system.sh", "runs.sh"),
        **drivers,
    }
    settings: dict[str, int | str] = {"warm": task.warm, "phase": task.phase_us, "date": DATE, **_settings(beside)}
    keys = inputs.keys
    if beside is not None:
        files["module.ko"] = beside.module
    if inputs.build is not None:
        tree = prepared_build(context, kernel, inputs.build, watch)
        files |= {
            "source.squashfs": inputs.build.source.file,
            "build.tar": tree.file,
            **shared_scripts("kernel_make.sh"),
        }
        settings |= {
            "arch": kernel.spec.arch,
            "targets": " ".join(system_workloads().scopes[task.scope].targets),
        }
        keys["prepared"] = tree.key
    elif task.name == "ping-flood":
        settings["packets"] = task.packets
    else:
        files["argv"] = b"".join(word.encode() + b"\0" for word in task.command)
    # Of the scripts that all cells of a run have: a run goes on with the same ones only.
    keys["scripts"] = _digest(workload.script, files)
    if beside is not None and beside.parameters:
        files |= _with_parameters()
    return SystemWork(
        script=workload.script,
        settings=settings,
        files=files,
        read=_reader(task),
        memory_mib=max(workload.memory_mib, _memory_mib(files)),
        inputs=keys,
    )


def _settings(beside: Beside | None) -> dict[str, int | str]:
    optimisation = None if beside is None else beside.optimisation
    parameters = {"parameters": shlex.join(beside.parameters)} if beside is not None and beside.parameters else {}
    return {
        "module": "" if beside is None else beside.name,
        "report": (beside.report if beside else None) or "",
        "stop": (beside.stop if beside else None) or "",
        "optimisation": "" if optimisation is None else int(optimisation),
        **parameters,
    }


def _with_parameters() -> dict[str, Path]:
    """The runs of a module that is loaded with parameters."""
    scripts = unattended_scripts()
    return {"runs.sh": scripts / "runs_with_parameters.sh", "plain_runs.sh": scripts / "runs.sh"}


def _digest(script: str, files: Mapping[str, bytes | Path]) -> str:
    """The SHA-256 of all scripts of the work."""
    whole = hashlib.sha256((unattended_scripts() / f"{script}.sh").read_bytes())
    whole.update((unattended_scripts() / STEPS).read_bytes())
    for name, content in sorted(files.items()):
        if name.endswith(".sh"):
            whole.update(content.read_bytes() if isinstance(content, Path) else content)
    return whole.hexdigest()


def _reader(task: SystemTask) -> Callable[[str], SystemFigures]:
    if task.name == "kernel-build":
        return lambda text: read_build(text, task.warm)
    if task.name == "ping-flood":
        return lambda text: read_flood(text, task.warm, task.packets)
    return lambda text: read_command(text, task.warm)


def _check_kernel(kernel: Kernel) -> None:
    there = ("y", "m") if kernel.modules.is_dir() else ("y",)
    lacking = [option for option in _NEEDED if kernel.config.get(option) not in there]
    if lacking:
        raise UnsupportedError(
            f"kernel '{kernel.spec.name}' cannot have a whole system in memory: it lacks {', '.join(lacking)}"
        )


def _image(context: BuildContext, kernel: Kernel, task: SystemTask) -> Image:
    arch = kernel.spec.arch
    name = task.image or system_workloads().benchmarks[task.name].images[arch]
    if is_user_disk(name):
        raise UsageError(
            f"image '{name}' is a disk, and {task.name} runs in a system that is all in the guest's memory",
            hint="name the recipe (.yaml) of an image: the lab builds what fits into memory from that",
        )
    recipe = image_recipe(name)
    if recipe.arch != arch:
        raise UsageError(f"image '{name}' is for {recipe.arch}, and kernel '{kernel.spec.name}' is for {arch}")
    return ready_image(context, recipe)


def _drivers(kernel: Kernel) -> dict[str, bytes | Path]:
    """The modules that mount a file as a file system, where they are not built in, and the guest's list of them."""
    files = with_dependencies(kernel.modules, _DRIVERS)
    contents = {unpacked_name(file): module_content(file) for file in files}
    return {"drivers": "".join(f"{name}\n" for name in contents).encode(), **contents}


def _memory_mib(files: Mapping[str, bytes | Path]) -> int:
    total = sum(data.stat().st_size if isinstance(data, Path) else len(data) for data in files.values())
    return 2 * -(-total >> 20) + _ROOM_MIB
