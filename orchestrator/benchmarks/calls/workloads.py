# SPDX-License-Identifier: GPL-2.0-only
"""What a cell runs: system calls, a function of the user's own, or a whole program of his."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import workload_program
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.call_programs import system_call, user_function
from orchestrator.benchmarks.calls.probe_setup import call_number
from orchestrator.benchmarks.calls.whole_program import WholeProgram
from orchestrator.benchmarks.calls.workload import Workload
from orchestrator.catalog.benchmarks import benchmarks
from orchestrator.catalog.user_workload import find_workload
from orchestrator.errors import BuildError
from orchestrator.experiment.cell import Cell

_WORD_SIZES = {"i386": 4, "x86_64": 8}


@dataclass
class Workloads:
    """Makes the workloads of cells on one kernel; a C file is compiled once."""

    context: BuildContext
    kernel: Kernel
    _compiled: dict[Path, Path | BuildError] = field(default_factory=dict)

    def of(self, cell: Cell) -> Workload | BuildError | None:
        """The cell's workload (None where its module has one), or why it did not compile.

        Raises ConfigError for a file that has gone since.
        """
        if cell.benchmark == "markers" or cell.size is not None or cell.macro is not None:
            return None
        if cell.file is None:
            number = call_number(self.kernel, cell)
            assert number is not None
            arguments = cell.arguments or benchmarks()[cell.benchmark].arguments
            word_size = _WORD_SIZES[self.kernel.spec.arch]
            return system_call(
                number, arguments, entry=cell.entry, word_size=word_size, calls=cell.calls, hits=cell.hits
            )
        own = find_workload(cell.file)
        if own.kind == "program":
            return WholeProgram(own.file, [str(argument) for argument in cell.arguments], cell.hits)
        program = self._compiled.setdefault(own.file, self._compile(own.file))
        return program if isinstance(program, BuildError) else user_function(program, calls=cell.calls, hits=cell.hits)

    def _compile(self, file: Path) -> Path | BuildError:
        if file in self._compiled:
            return self._compiled[file]
        try:
            return workload_program(self.context, self.kernel.spec.arch, file)
        except BuildError as error:
            return error
