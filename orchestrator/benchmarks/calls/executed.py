# SPDX-License-Identifier: GPL-2.0-only
"""The functions that a cell's calls execute without a probe, counted in a guest, and what keeps probes out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.function_entry import entry_places
from orchestrator.benchmarks.calls.workload import ExactWorkload, Measurement
from orchestrator.errors import LabError
from orchestrator.guest.guest import Guest
from orchestrator.probes.refused_places import RefusedPlaces
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.profiled import Counter as InstructionCounter
from orchestrator.results.contract import Phrase
from orchestrator.results.profile import CellProfile, FunctionName, SymbolProfile
from orchestrator.results.validity import valid_result
from orchestrator.run.artifacts import BootArtifacts
from orchestrator.run.kind import Obtain
from orchestrator.run.ready_guest import ReadyGuest, ready_guest
from orchestrator.run.started_guest import unwatched
from orchestrator.scratch import ScratchFolder

_KIND = "executed-functions"
_FILE = "executed.json"
_REPEATS = 2


class ExecutedFunction(BaseModel):
    """A function of the kernel, or of one of its modules, and what calls execute of it.

    ``address`` is where it begins, from its ``module``'s text on if it is of one.
    ``entered`` is how often all calls together come to the place where a probe at its entry is, ``instructions`` how
    many they execute in it, ``counts`` how often each, by its offset. ``refusal`` is why it cannot be probed, None
    where it may be.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: FunctionName
    address: Annotated[int, Field(ge=0, lt=2**64)]
    entered: Annotated[int, Field(ge=0, lt=2**63)]
    instructions: int
    counts: dict[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
    refusal: Phrase | None
    module: Phrase | None = None

    @property
    def offsets(self) -> frozenset[int]:
        """Which instructions are executed."""
        return frozenset(self.counts)


class Executed(BaseModel):
    """What ``calls`` calls execute of the kernel, the function with the most instructions first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: Annotated[int, Field(ge=1)]
    functions: tuple[ExecutedFunction, ...]

    def at(self, address: int) -> ExecutedFunction | None:
        """The kernel's own function that begins at an address, if anything of it is executed."""
        return next((one for one in self.functions if one.module is None and one.address == address), None)

    def in_module(self, module: str, name: str) -> ExecutedFunction | None:
        """A module's function, if anything of it is executed."""
        return next((one for one in self.functions if (one.module, one.name) == (module, name)), None)


def executed_here(ready: ReadyGuest, workload: ExactWorkload, measured: Measurement, time_limit: float) -> Executed:
    """What calls execute now, in a guest that counts, with no module loaded since it was ready.

    ``measured`` is of the same calls. Raises EvidenceError where the count cannot be proved.
    """
    counter = InstructionCounter(ready.guest, ready.symbols)
    mark = counter.mark()
    marked = workload.measure_marked(ready.guest, measured, time_limit=time_limit)
    profile = counter.profile(mark, marked.timed, cell="executed", calls=marked.calls, program=marked.program)
    refused = RefusedPlaces.of(ready.guest, ready.symbols)
    loaded = ready.artifacts.kernel_modules
    with valid_result():
        return Executed(calls=profile.calls, functions=tuple(_functions(profile, ready.symbols, refused, loaded)))


def executed_by(
    context: BuildContext,
    obtain: Obtain,
    artifacts: BootArtifacts,
    workload: ExactWorkload,
    time_limit: float,
    watch: Callable[[Guest], None] = unwatched,
) -> Executed | None:
    """The same of a guest of its own, whose machine counts: once for each kernel, machine and calls, and kept.

    None where ``obtain`` has none. ``watch`` gets the guest before it runs. Raises GuestError, EvidenceError.
    """
    machine = artifacts.machine
    hardware = {"cpu": repr(machine.cpu), "memory": machine.memory_mib}
    inputs = {**artifacts.keys, **hardware, "calls": repr(workload), "contents": "counts, modules"}

    def count(folder: Path) -> None:
        context.say(f"counting what the calls execute on {artifacts.kernel.spec.name}")
        with (
            ScratchFolder("orchestrator-executed-") as directory,
            ready_guest(context, artifacts, directory, "guest", watch=watch) as ready,
        ):
            ticks = int(artifacts.kernel.config["CONFIG_HZ"])
            workload.prepare(ready.guest)
            measured = workload.measure_exact(
                ready.guest, repeats=_REPEATS, ticks_per_second=ticks, time_limit=time_limit
            )
            found = executed_here(ready, workload, measured, time_limit)
        (folder / _FILE).write_text(found.model_dump_json())

    artifact = obtain(_KIND, inputs, f"functions that calls execute on {machine.cpu.name}", count)
    if artifact is None:
        return None
    file = artifact.path / _FILE
    try:
        return _EXECUTED.validate_json(file.read_bytes())
    except (OSError, ValidationError):
        raise LabError("damaged, or written by another version of this program", where=str(file)) from None


_EXECUTED = TypeAdapter(Executed)


def _functions(
    profile: CellProfile, symbols: Symbols, refused: RefusedPlaces, loaded: Container[str]
) -> Iterator[ExecutedFunction]:
    for one in profile.symbols:
        if one.place in ("kernel", "module"):
            executed = Counter({at.offset: at.executed for at in one.instructions if at.executed > 0})
            entered = executed[_entry(one)]
            yield ExecutedFunction(
                name=one.name,
                address=one.address,
                entered=entered,
                instructions=one.executed,
                counts=dict(executed),
                refusal=_place_refusal(one, symbols, refused, loaded) or _count_refusal(entered, profile.calls),
                module=one.module,
            )


def _entry(symbol: SymbolProfile) -> int:
    """Where a function's own code begins, by its first instructions."""
    code = b""
    for one in symbol.instructions:
        if one.offset == len(code):
            code += bytes.fromhex(one.code)
    return max(entry_places(code))


def _place_refusal(
    symbol: SymbolProfile, symbols: Symbols, refused: RefusedPlaces, loaded: Container[str]
) -> str | None:
    if symbol.module is not None and symbol.module not in loaded:
        return f"it is a function of module {symbol.module}, which is not among the experiment's kernel_modules"
    reason = refused.reason(symbol.address)
    if reason is not None:
        return reason
    named = symbols.functions(symbol.name)
    if named > 1:
        return f"the kernel has {named} functions of this name"
    if symbol.module is not None and named == 1 and symbols.module(symbols.address(symbol.name)) is None:
        return f"it is a function of module {symbol.module}, and its name stands for one of the kernel itself"
    return None


def _count_refusal(entered: int, calls: int) -> str | None:
    if entered == 0:
        return "these calls do not come in at its beginning"
    if entered % calls:
        return f"it is entered {entered} times by {calls} calls: not by each as often"
    return None
