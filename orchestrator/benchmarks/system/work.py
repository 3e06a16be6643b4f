# SPDX-License-Identifier: GPL-2.0-only
"""What a guest is given to run whole programs by itself, and how what it printed is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.build_source import build_source
from orchestrator.artifacts.drivers import with_dependencies
from orchestrator.artifacts.images import Image, ready_image
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.unattended import STEPS, unattended_scripts
from orchestrator.benchmarks.system.command import read_command
from orchestrator.benchmarks.system.figures import MacroFigures
from orchestrator.benchmarks.system.kernel_build import read_build
from orchestrator.benchmarks.system.ping_flood import read_flood
from orchestrator.benchmarks.system.prepared_build import DATE, prepared_build, shared_scripts
from orchestrator.benchmarks.system.workloads import MacroName, macro_benchmarks
from orchestrator.catalog.images import image as image_recipe
from orchestrator.catalog.spelling import unknown
from orchestrator.catalog.user_disk import is_user_disk
from orchestrator.errors import UnsupportedError, UsageError
from orchestrator.guest.guest import Guest

REPORT, REPORT_AFTER = "/unattended/report", "/unattended/report_after"
"""In the guest: what the module had to report after the runs, and once more after it was stopped."""


def warm_reports(warm: int) -> list[tuple[str, str]]:
    """In the guest: what the module had to report right before and right after each of so many warm runs."""
    return [(f"{REPORT}_before_{number}", f"{REPORT}_behind_{number}") for number in range(1, warm + 1)]


_NEEDED = ("CONFIG_BLK_DEV_LOOP", "CONFIG_SQUASHFS", "CONFIG_SQUASHFS_LZ4", "CONFIG_TMPFS")
_DRIVERS = ("loop", "squashfs")
_MOST_RUNS = 100
_MOST_PACKETS = 10_000_000
_LONGEST_PHASE = 1_000_000
_LONGEST_COMMAND = 64 << 10
_MOST_WORDS = 1000
_ROOM_MIB = 128
"""Memory for the kernel and a program, besides the files, which are there twice while they are unpacked."""


@dataclass(frozen=True)
class MacroRequest:
    """Whole programs to run: what the benchmark is to do (what it does not take is not looked at), and around it.

    ``scope`` is of kernel-build, ``packets`` of ping-flood, ``command`` (a program and its arguments) of command. An
    ``image`` is named as elsewhere; None is the benchmark's own. ``warm`` is the number of runs after the cold one.
    Boots that differ in ``seed`` and ``phase_us`` (below a second) have other random numbers, and begin at another
    moment between two timer ticks.

    A ``module`` is loaded before the runs and unloaded after them. ``report`` is a file of the guest's that is read
    before and after each warm run, at their end, and again after a 1 was written to the file ``stop``. ``optimisation``
    is the value of debug.kprobes-optimization from before it is loaded.
    """

    benchmark: MacroName
    scope: str = ""
    packets: int = 0
    command: tuple[str, ...] = ()
    image: str | None = None
    warm: int = 3
    seed: int = 1
    phase_us: int = 0
    module: Path | None = None
    module_name: str = ""
    report: str | None = None
    stop: str | None = None
    optimisation: bool | None = None


@dataclass(frozen=True)
class MacroWork:
    """What ``write_work`` takes, the reader of the output, and the least memory of a guest that does it, in MiB.

    ``inputs`` name the exact content of what is built and where: image, source and scripts.
    """

    script: str
    settings: Mapping[str, int | str]
    files: Mapping[str, bytes | Path]
    read: Callable[[str], MacroFigures]
    memory_mib: int
    inputs: Mapping[str, str]


def macro_work(
    context: BuildContext, kernel: Kernel, request: MacroRequest, watch: Callable[[Guest], None]
) -> MacroWork:
    """The work of a request; all that it needs is fetched and built where it is not there yet.

    ``watch`` hears of a guest that is started for that, before it runs. Raises UsageError for a request that cannot be,
    UnsupportedError for a kernel that cannot do it, and HostError, BuildError, GuestError.
    """
    _check(request)
    _check_kernel(kernel)
    image = _image(context, kernel, request)
    benchmark = macro_benchmarks().benchmarks[request.benchmark]
    drivers = _drivers(kernel)
    files: dict[str, bytes | Path] = {
        "root.squashfs": image.squashfs,
        "seed": hashlib.sha512(f"{request.seed}".encode()).digest(),
        **shared_scripts("system.sh", "runs.sh"),
        **drivers,
    }
    settings: dict[str, int | str] = {
        "warm": request.warm,
        "phase": request.phase_us,
        "date": DATE,
        "module": request.module_name,
        "report": request.report or "",
        "stop": request.stop or "",
        "optimisation": "" if request.optimisation is None else int(request.optimisation),
    }
    inputs = {"image": image.key}
    if request.module is not None:
        files["module.ko"] = request.module
    if request.benchmark == "kernel-build":
        source = build_source(context)
        tree = prepared_build(context, kernel, image, source, drivers, watch)
        files |= {"source.squashfs": source.file, "build.tar": tree.file, **shared_scripts("kernel_make.sh")}
        settings |= {
            "arch": kernel.spec.arch,
            "targets": " ".join(macro_benchmarks().scopes[request.scope].targets),
        }
        inputs |= {"source": source.key, "prepared": tree.key}
    elif request.benchmark == "ping-flood":
        settings["packets"] = request.packets
    else:
        files["argv"] = b"".join(word.encode() + b"\0" for word in request.command)
    inputs["scripts"] = _digest(benchmark.script, files)
    return MacroWork(
        script=benchmark.script,
        settings=settings,
        files=files,
        read=_reader(request),
        memory_mib=max(benchmark.memory_mib, _memory_mib(files)),
        inputs=inputs,
    )


def fetch_work(context: BuildContext, kernel: Kernel, request: MacroRequest) -> None:
    """Fetch and build what a request needs, as far as that takes no guest; raises what ``macro_work`` does."""
    _check(request)
    _check_kernel(kernel)
    _image(context, kernel, request)
    if request.benchmark == "kernel-build":
        build_source(context)


def _digest(script: str, files: Mapping[str, bytes | Path]) -> str:
    """The SHA-256 of all scripts of the work."""
    whole = hashlib.sha256((unattended_scripts() / f"{script}.sh").read_bytes())
    whole.update((unattended_scripts() / STEPS).read_bytes())
    for name, content in sorted(files.items()):
        if name.endswith(".sh"):
            whole.update(content.read_bytes() if isinstance(content, Path) else content)
    return whole.hexdigest()


def _reader(request: MacroRequest) -> Callable[[str], MacroFigures]:
    if request.benchmark == "kernel-build":
        return lambda text: read_build(text, request.warm)
    if request.benchmark == "ping-flood":
        return lambda text: read_flood(text, request.warm, request.packets)
    return lambda text: read_command(text, request.warm)


def _check(request: MacroRequest) -> None:
    if not 1 <= request.warm <= _MOST_RUNS:
        raise UsageError(f"{request.warm} warm runs; allowed are 1 to {_MOST_RUNS}")
    if not 0 <= request.phase_us < _LONGEST_PHASE:
        raise UsageError(f"a phase of {request.phase_us} us; allowed are 0 to {_LONGEST_PHASE - 1}")
    if request.stop is not None and request.report is None:
        raise UsageError("a module that is stopped has to report")
    if (request.module is None) != (request.module_name == ""):
        raise UsageError("a module has a file and a name")
    if request.benchmark == "kernel-build" and request.scope not in macro_benchmarks().scopes:
        raise UsageError(unknown("scope", request.scope, macro_benchmarks().scopes))
    if request.benchmark == "ping-flood" and not 1 <= request.packets <= _MOST_PACKETS:
        raise UsageError(f"{request.packets} packets; allowed are 1 to {_MOST_PACKETS}")
    if request.benchmark == "command":
        _check_command(request.command)


def _check_command(command: tuple[str, ...]) -> None:
    if not command or not command[0]:
        raise UsageError("no command was given")
    if any("\0" in word for word in command):
        raise UsageError("a zero byte cannot be in a command")
    if len(command) > _MOST_WORDS or sum(len(word.encode()) + 1 for word in command) > _LONGEST_COMMAND:
        raise UsageError(f"the command is too long; allowed are {_MOST_WORDS} words and {_LONGEST_COMMAND >> 10} KiB")


def _check_kernel(kernel: Kernel) -> None:
    there = ("y", "m") if kernel.modules.is_dir() else ("y",)
    lacking = [option for option in _NEEDED if kernel.config.get(option) not in there]
    if lacking:
        raise UnsupportedError(
            f"kernel '{kernel.spec.name}' cannot have a whole system in memory: it lacks {', '.join(lacking)}"
        )


def _image(context: BuildContext, kernel: Kernel, request: MacroRequest) -> Image:
    arch = kernel.spec.arch
    name = request.image or macro_benchmarks().benchmarks[request.benchmark].images[arch]
    if is_user_disk(name):
        raise UsageError(
            f"image '{name}' is a disk, and {request.benchmark} runs in a system that is all in the guest's memory",
            hint="name the recipe (.yaml) of an image: the lab builds what fits into memory from that",
        )
    recipe = image_recipe(name)
    if recipe.arch != arch:
        raise UsageError(f"image '{name}' is for {recipe.arch}, and kernel '{kernel.spec.name}' is for {arch}")
    return ready_image(context, recipe)


def _drivers(kernel: Kernel) -> dict[str, bytes | Path]:
    """What mounts a file's file system, where it is not built in, and the list by which the guest loads it."""
    files = with_dependencies(kernel.modules, _DRIVERS)
    return {"drivers": "".join(f"{file.name}\n" for file in files).encode(), **{file.name: file for file in files}}


def _memory_mib(files: Mapping[str, bytes | Path]) -> int:
    total = sum(data.stat().st_size if isinstance(data, Path) else len(data) for data in files.values())
    return 2 * -(-total >> 20) + _ROOM_MIB
