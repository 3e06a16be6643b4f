# SPDX-License-Identifier: GPL-2.0-only
"""What a call executes in the kernel, by function, as the counting plugin sees it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.function_entry import entry_places
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.files import ScratchFolder
from orchestrator.guest.guest import Guest
from orchestrator.probes.placement import RefusedPlaces
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.counted.counter import Counter as InstructionCounter
from orchestrator.profile.stored.cell_profile import CellProfile, FunctionName, SymbolProfile
from orchestrator.results.contract import Phrase, Record, valid_result
from orchestrator.run.benchmark_kind import ArtifactSource, BootArtifacts
from orchestrator.run.guest_start import unwatched
from orchestrator.run.ready_guest import ReadyGuest, ready_guest

_FILE = "executed.json"


class ExecutedFunction(Record):
    """A function of the kernel, or of one of its modules, and what calls execute in it.

    ``address`` is its start, relative to the text of its ``module`` if it has one. All calls together reach the place
    of a probe at its entry ``entered`` times, and execute ``instructions`` in it; ``counts`` has the executions of each
    instruction by its offset. ``refusal`` is why it cannot be probed, None where it can.
    """

    name: FunctionName
    address: Annotated[int, Field(ge=0, lt=2**64)]
    entered: Annotated[int, Field(ge=0, lt=2**63)]
    instructions: int
    counts: dict[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
    refusal: Phrase | None
    module: Phrase | None = None


class Executed(Record):
    """What ``calls`` calls execute in the kernel, by function, the one with the most instructions first."""

    calls: Annotated[int, Field(ge=1)]
    functions: tuple[ExecutedFunction, ...]

    def at(self, address: int) -> ExecutedFunction | None:
        """The kernel's own function at an address; None where the calls do not execute it."""
        return next(
            (function for function in self.functions if function.module is None and function.address == address), None
        )


def executed_here(ready: ReadyGuest, workload: Calls, time_limit: float) -> Executed:
    """What calls execute in a guest that counts instructions. Raises EvidenceError where a proof fails."""
    ticks = int(ready.artifacts.kernel.config["CONFIG_HZ"])
    measured = workload.measure_exact(ready.guest, repeats=2, ticks_per_second=ticks, time_limit=time_limit)
    counter = InstructionCounter(ready.guest, ready.symbols)
    mark = counter.mark()
    marked = workload.measure_marked(ready.guest, measured, time_limit=time_limit)
    profile = counter.profile(mark, marked.timed, cell="executed", calls=marked.calls, program=workload.program)
    refused = RefusedPlaces.of(ready.guest, ready.symbols)
    loaded = ready.artifacts.kernel_modules
    with valid_result():
        return Executed(calls=profile.calls, functions=tuple(_functions(profile, ready.symbols, refused, loaded)))


def executed_by(
    context: BuildContext,
    obtain: ArtifactSource,
    artifacts: BootArtifacts,
    workload: Calls,
    time_limit: float,
    watch: Callable[[Guest], None] = unwatched,
) -> Executed | None:
    """The same in a guest of its own, whose machine counts; the result is cached by kernel, machine and calls.

    None where ``obtain`` does not make it. ``watch`` gets the guest before it runs. Raises GuestError, EvidenceError.
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
            workload.prepare(ready.guest)
            executed = executed_here(ready, workload, time_limit)
        (folder / _FILE).write_text(executed.model_dump_json())

    artifact = obtain("executed-functions", inputs, f"functions that calls execute on {machine.cpu.name}", count)
    return None if artifact is None else Executed.stored_in(artifact.path / _FILE)


def _functions(
    profile: CellProfile, symbols: Symbols, refused: RefusedPlaces, loaded: Container[str]
) -> Iterator[ExecutedFunction]:
    for symbol in profile.symbols:
        if symbol.place in ("kernel", "module"):
            executed = {at.offset: at.executed for at in symbol.instructions if at.executed > 0}
            entered = entries(symbol)
            uneven = None if entered else "these calls do not enter it at its beginning"
            if entered % profile.calls:
                uneven = f"{profile.calls} calls enter it {entered} times: not equally often"
            yield ExecutedFunction(
                name=symbol.name,
                address=symbol.address,
                entered=entered,
                instructions=symbol.executed,
                counts=executed,
                refusal=_place_refusal(symbol, symbols, refused, loaded) or uneven,
                module=symbol.module,
            )


def entries(function: SymbolProfile) -> int:
    """How often a function was entered: executions of its first own instruction."""
    code = b""
    for at in function.instructions:
        if at.offset == len(code):
            code += bytes.fromhex(at.code)
    first = max(entry_places(code))
    return sum(at.executed for at in function.instructions if at.offset == first and at.executed > 0)


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
