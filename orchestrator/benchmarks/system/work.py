# SPDX-License-Identifier: GPL-2.0-only
"""The inputs of an unattended guest that runs whole programs, and the parsers of its output."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.disk_images import Image, ready_image
from orchestrator.artifacts.kernel_source import PACKED_SOURCE, build_source
from orchestrator.artifacts.module_files import module_content, unpacked_name, with_dependencies
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.squashfs import EPOCH
from orchestrator.artifacts.unattended_initramfs import (
    FOLDER,
    OUTPUT,
    STATUS,
    STEPS,
    progress,
    unattended_scripts,
    write_work,
)
from orchestrator.benchmarks.system.system_parameters import RTT_AVG, RTT_MAX, RTT_MIN
from orchestrator.benchmarks.system.workloads import system_workloads
from orchestrator.catalog.cpus import cpus
from orchestrator.catalog.image_recipes import image as image_recipe
from orchestrator.catalog.probes import RecorderKind, recorder_kinds
from orchestrator.errors import BuildError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.probes import recorder
from orchestrator.probes.loading import insmod_word
from orchestrator.run.machines import machine_for
from orchestrator.run.script_steps import refuse
from orchestrator.run.unattended import UnattendedWork

_FILE = "build.tar"
_SCRIPT = "prepare_build"
_SHARED = ("system.sh", "kernel_make.sh")

TREE_DATE = EPOCH + 24 * 3600
"""The time of all files in the build tree, in seconds since the epoch: a day later than the source."""
DATE = TREE_DATE + 3600
"""The time that a guest's clock is set to, later than the files of the tree."""


def _prepared_build(
    context: BuildContext, kernel: Kernel, inputs: SystemInputs, watch: Callable[[Guest], None]
) -> Artifact:
    """The build tree (``build.tar``) of the smallest kernel for ``kernel``'s architecture, by the image's compiler.

    It is made in a guest of ``kernel``, on which the result does not depend. ``watch`` is called with the guest before
    it runs. Raises GuestError, and BuildError with make's last lines.
    """
    image, source = inputs.image, inputs.source
    assert source is not None

    def show_progress(lines: Sequence[str]) -> None:
        for words in filter(None, map(progress, lines)):
            context.say(f"preparing a kernel's build: {words[:100]}")

    def make(folder: Path) -> None:
        context.say(f"preparing a kernel's build in a guest ({kernel.spec.arch}): three to six minutes, emulated")
        settings = {"arch": kernel.spec.arch, "date": DATE, "tree_date": TREE_DATE}
        squashfs = {"root.squashfs": image.squashfs, PACKED_SOURCE: source.path / PACKED_SOURCE}
        files = {**squashfs, **_scripts(*_SHARED), **inputs.drivers}
        whole = folder / "initramfs"
        model = next(model for model in cpus().values() if kernel.spec.unsupported_reason(model) is None)
        guest_spec = GuestSpec(kernel=kernel.spec.argument, cpu=model.name, memory="1G")
        machine = machine_for(context, kernel, guest_spec)
        with whole.open("wb") as target:
            write_work(target, machine.initramfs, _SCRIPT, settings, files)
        guest = Guest(replace(machine, initramfs=whole), folder, "guest")
        guest.say = context.say
        watch(guest)
        try:
            guest.boot(1800.0, show_progress)
            if guest.get(STATUS) != b"0":
                output = guest.get(OUTPUT).decode("ascii", errors="replace").splitlines()[-15:]
                raise BuildError(f"a kernel's build cannot be prepared with image {image.recipe.name}", detail=output)
            (folder / _FILE).write_bytes(guest.get(f"{FOLDER}/{_FILE}"))
        finally:
            guest.kill()
            whole.unlink()

    scripts = {name: (unattended_scripts() / name).read_text() for name in (f"{_SCRIPT}.sh", *_SHARED)}
    dates = [TREE_DATE, DATE]
    key = {"arch": kernel.spec.arch, "image": image.key, "source": source.key, "scripts": scripts, "dates": dates}
    return context.cache.obtain("prepared-builds", key, f"prepared kernel build, {kernel.spec.arch}", make)


def _scripts(*names: str) -> dict[str, bytes | Path]:
    return {name: unattended_scripts() / name for name in names}


# The output of ``images/unattended/runs.sh``: one cold run and several warm ones. For each it has a line that names the
# run, the line of ``macrobench``, and the lines in which the benchmark's script reports the outcome.

_NAMES = ("real", "user", "system", "minor", "major", "switches", "tsc")
_RUN = re.compile("run " + " ".join(rf"{name}=([0-9]{{1,16}})" for name in _NAMES))
T = TypeVar("T")


@dataclass(frozen=True)
class WorkRun:
    """One run: times in guest nanoseconds, page faults with reading (major) and without, and context switches.

    ``real`` is from before the fork to after the end, ``ticks`` are those of the TSC around both readings of that
    clock. The others are sums over the program and its descendants.
    """

    real: float
    user: float
    system: float
    minor: int
    major: int
    switches: int
    ticks: int


@dataclass(frozen=True)
class SystemFigures:
    """The runs, the amount of work of each, the SHA-256 of its result (empty without one), and further facts."""

    cold: WorkRun
    warm: tuple[WorkRun, ...]
    done: int
    digest: str
    facts: Mapping[str, int | float | str] = field(default_factory=dict)


def read_runs(text: str, warm: int, reported: int, read: Callable[[Sequence[str]], T]) -> tuple[list[WorkRun], list[T]]:
    """The cold run and ``warm`` warm ones, and the value that ``read`` returns for the ``reported`` lines of each.

    ``read`` may raise ValueError. Raises EvidenceError, which quotes the output, for unexpected output.
    """
    lines = text.splitlines()
    size = 2 + reported
    titles = ["cold", *(f"warm {number}" for number in range(1, warm + 1))]
    runs: list[WorkRun] = []
    outcomes: list[T] = []
    for at, title in zip(range(0, len(titles) * size, size), titles, strict=True):
        block = lines[at : at + size]
        if block[:1] != [title]:
            refuse(lines, at, f"there is no run '{title}'")
        if len(block) < size:
            refuse(lines, at, f"the report of run '{title}' is incomplete")
        try:
            match = _RUN.fullmatch(block[1])
            if match is None:
                raise ValueError(f"found {block[1][:200]!r}, which is not what a run took")
            real, user, system, minor, major, switches, ticks = (int(number) for number in match.groups())
            if not real:
                raise ValueError("it took no time")
            runs.append(WorkRun(float(real), float(user), float(system), minor, major, switches, ticks))
            outcomes.append(read(block[2:]))
        except ValueError as error:
            refuse(lines, at, f"run '{title}': {error}")
    if len(lines) > len(titles) * size:
        refuse(lines, len(titles) * size, "there is more than the runs")
    return runs, outcomes


_PRINTED = re.compile(r"printed bytes=(0|[1-9][0-9]{0,11}) digest=([0-9a-f]{64})")
_BUILT = re.compile(r"built objects=([1-9][0-9]{0,5}) digest=([0-9a-f]{64})")


def read_command(text: str, warm: int) -> SystemFigures:
    """Runs of a user's command (``command.sh``), all with the same output. Raises EvidenceError.

    ``digest`` is that of its standard output, whose size is a fact.
    """
    names = ("the size of what was printed", "what was printed")
    figures = _alike(text, warm, _PRINTED, names, "found {!r}, not the size and digest of what was printed")
    return replace(figures, done=1, facts={"output_bytes": figures.done})


def read_build(text: str, warm: int) -> SystemFigures:
    """Builds of a part of a kernel (``kernel_build.sh``), all with the same objects. Raises EvidenceError.

    ``done`` is the number of objects, ``digest`` that of their names and contents.
    """
    names = ("the number of objects", "the objects' content")
    return _alike(text, warm, _BUILT, names, "nothing was built: {!r}")


def _alike(text: str, warm: int, pattern: re.Pattern[str], names: Sequence[str], missing: str) -> SystemFigures:
    """The runs, each of which reports the same amount and digest. Raises EvidenceError where runs differ."""

    def read(lines: Sequence[str]) -> tuple[int, str]:
        match = pattern.fullmatch(lines[0])
        if match is None:
            raise ValueError(missing.format(lines[0][:200]))
        return int(match[1]), match[2]

    runs, reported = read_runs(text, warm, 1, read)
    for what, values in zip(names, zip(*reported, strict=True), strict=True):
        if len(set(values)) != 1:
            refuse(text.splitlines(), 0, f"the runs differ in {what}: {', '.join(map(str, values))}"[:500])
    return SystemFigures(runs[0], tuple(runs[1:]), *reported[0])


_SENT = re.compile(
    r"([0-9]{1,9}) packets transmitted, ([0-9]{1,9}) received, ([0-9.]{1,12})% packet loss, time [0-9]{1,12}ms"
)
_TIMES = re.compile(
    r"rtt min/avg/max/mdev = " + "/".join([r"([0-9]{1,9}\.[0-9]{1,6})"] * 4) + r" ms(?:, pipe [0-9]{1,9})?"
    r"(?:, ipg/ewma [0-9.]{1,16}/[0-9.]{1,16} ms)?"
)


def read_flood(text: str, warm: int, packets: int) -> SystemFigures:
    """Ping floods (``ping_flood.sh``) of ``packets`` packets a run. Raises EvidenceError where a packet was lost.

    The facts are the round-trip times of the warm runs in ns, as ping rounds them.
    """

    def read(lines: Sequence[str]) -> list[int]:
        sent, times = _SENT.fullmatch(lines[0]), _TIMES.fullmatch(lines[1])
        if sent is None or times is None:
            raise ValueError("ping does not report how many packets were answered")
        transmitted, received = int(sent[1]), int(sent[2])
        if (transmitted, received, sent[3]) != (packets, packets, "0"):
            raise ValueError(f"of {packets} packets {transmitted} were sent and {received} answered ({sent[3]} % lost)")
        return [round(float(milliseconds) * 1e6) for milliseconds in times.groups()]

    runs, floods = read_runs(text, warm, 2, read)
    minima, averages, maxima, deviations = zip(*floods[1:], strict=True)
    facts = {
        RTT_MIN: min(minima),
        RTT_AVG: sum(averages) / len(averages),
        RTT_MAX: max(maxima),
        "rtt_mdev_ns": sum(deviations) / len(deviations),
    }
    return SystemFigures(runs[0], tuple(runs[1:]), packets, "", facts)


@dataclass(frozen=True)
class SystemTask:
    """Whole programs to run: the workload with its amount, and the conditions.

    ``scope`` belongs to kernel-build, ``packets`` to ping-flood, ``command`` (a program and its arguments) to command.
    ``image`` is the name or path of a recipe; None is the workload's own. ``warm`` is the number of runs after the cold
    one. ``seed`` decides the random numbers, ``phase_us`` (microseconds, below a second) when the work begins between
    two timer ticks: A/A boots of the baseline differ in both. ``aa_boot`` numbers them; 0 is the baseline itself.

    ``probe`` is a name in the catalogue, which records the ``events``, or the path of a user's module.
    """

    name: str
    probe: str = "none"
    scope: str = ""
    packets: int = 0
    command: tuple[str, ...] = ()
    image: str | None = None
    warm: int = 3
    seed: int = 1
    phase_us: int = 0
    aa_boot: int = 0
    events: tuple[str, ...] = ()

    @property
    def recorder(self) -> RecorderKind | None:
        return recorder_kinds().get(self.probe)


SystemCell = Cell[SystemTask]


REPORT, REPORT_AFTER = f"{FOLDER}/report", f"{FOLDER}/report_after"
"""Guest files: the module's report after the runs, and that after it was stopped."""


def warm_reports(warm: int) -> list[tuple[str, str]]:
    """Guest files: the module's reports right before and right after each of ``warm`` warm runs."""
    return [(f"{REPORT}_before_{number}", f"{REPORT}_behind_{number}") for number in range(1, warm + 1)]


_DRIVERS = ("loop", "squashfs")
_ROOM_MIB = 128
"""MiB for the kernel and a program, besides the files, which take twice their size while they are unpacked."""


@dataclass(frozen=True)
class SystemWork(UnattendedWork[SystemFigures]):
    """A system's work; its guest needs at least so much memory."""

    memory_mib: int = 0


@dataclass(frozen=True)
class SystemInputs:
    """The inputs of a task, ready before any guest starts: programs, drivers of file systems, and a source."""

    image: Image
    drivers: Mapping[str, bytes | Path]
    source: Artifact | None = None

    @property
    def keys(self) -> dict[str, str]:
        return {"image": self.image.key, **({} if self.source is None else {"source": self.source.key})}


def system_inputs(context: BuildContext, kernel: Kernel, task: SystemTask) -> SystemInputs:
    """Fetch and build what a task needs, without starting a guest. Raises HostError, BuildError."""
    recipe = image_recipe(task.image or system_workloads().benchmarks[task.name].images[kernel.spec.arch])
    image = ready_image(context, recipe)
    # The modules that mount a file as a file system, if they are not built in, and the guest's list of them.
    files = with_dependencies(kernel.modules, _DRIVERS)
    contents = {unpacked_name(file): module_content(file) for file in files}
    drivers = {"drivers": "".join(f"{name}\n" for name in contents).encode(), **contents}
    return SystemInputs(image, drivers, build_source(context) if task.name == "kernel-build" else None)


def system_work(
    context: BuildContext,
    kernel: Kernel,
    task: SystemTask,
    inputs: SystemInputs,
    module: Module | None,
    watch: Callable[[Guest], None],
) -> SystemWork:
    """The work of a task with its inputs. A build is prepared in a guest, unless the cache has it.

    The ``module`` is loaded before the runs, and unloaded after them. ``watch`` is called with the guest that prepares
    before it runs. Raises HostError, BuildError, GuestError.
    """
    image, drivers = inputs.image, inputs.drivers
    workload = system_workloads().benchmarks[task.name]
    files: dict[str, bytes | Path] = {
        "root.squashfs": image.squashfs,
        "seed": hashlib.sha512(f"{task.seed}".encode()).digest(),
        **_scripts("system.sh", "runs.sh"),
        **drivers,
    }
    settings: dict[str, int | str] = {
        "warm": task.warm,
        "phase": task.phase_us,
        "date": DATE,
        **_settings(module, task.recorder),
    }
    keys = {"name": f"{task.name} {task.scope} {task.image or ''}".strip(), **inputs.keys}
    read: Callable[[str], SystemFigures]
    if module is not None:
        files["module.ko"] = module.file
    if inputs.source is not None:
        tree = _prepared_build(context, kernel, inputs, watch)
        tree_files = {PACKED_SOURCE: inputs.source.path / PACKED_SOURCE, _FILE: tree.path / _FILE}
        files |= {**tree_files, **_scripts("kernel_make.sh")}
        targets = system_workloads().scopes[task.scope].targets
        settings |= {"arch": kernel.spec.arch, "targets": " ".join(targets)}
        keys["prepared"] = tree.key
        read = partial(read_build, warm=task.warm)
    elif task.name == "ping-flood":
        settings["packets"] = task.packets
        read = partial(read_flood, warm=task.warm, packets=task.packets)
    else:
        read = partial(read_command, warm=task.warm)
        files["argv"] = b"".join(word.encode() + b"\0" for word in task.command)
    # Of the scripts that all cells of a run have in common: a run is resumed only with the same ones.
    paths = [unattended_scripts() / f"{workload.script}.sh", unattended_scripts() / STEPS]
    scripts = [*paths, *(content for name, content in sorted(files.items()) if name.endswith(".sh"))]
    content = b"".join(script.read_bytes() if isinstance(script, Path) else script for script in scripts)
    keys["scripts"] = hashlib.sha256(content).hexdigest()
    if "parameters" in settings:
        folder = unattended_scripts()
        files |= {"runs.sh": folder / "runs_with_parameters.sh", "plain_runs.sh": folder / "runs.sh"}
    size = sum(data.stat().st_size if isinstance(data, Path) else len(data) for data in files.values())
    memory_mib = max(workload.memory_mib, 2 * -(-size >> 20) + _ROOM_MIB)
    return SystemWork(workload.script, settings, files, read, keys, memory_mib)


def _settings(module: Module | None, kind: RecorderKind | None) -> dict[str, int | str]:
    """A recorder's report is read before and after each warm run, after all runs, and again once it was stopped."""
    words = [] if module is None else [insmod_word(name, value) for name, value in module.parameters.items()]
    return {
        "module": "" if module is None else module.name,
        "report": "" if kind is None else recorder.REPORT,
        "stop": "" if kind is None else recorder.STOP,
        "optimisation": "" if kind is None else int(kind.optimisation),  # of debug.kprobes-optimization
        **({"parameters": shlex.join(words)} if words else {}),
    }
