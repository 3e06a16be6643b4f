# SPDX-License-Identifier: GPL-2.0-only
"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion

Kernel = Annotated[
    str, typer.Option(help="Kernel name; see: orchestrator list kernels.", autocompletion=completion.kernels)
]
Offline = Annotated[bool, typer.Option("--offline", help="Use only what is in the cache.")]
OutputFolder = Annotated[Path | None, typer.Option("--out", help="Folder for the files.")]
Symbol = Annotated[str | None, typer.Option(help="Function to probe; default: the benchmark's, gettimeofday.")]
Offset = Annotated[int | None, typer.Option(help="Bytes behind the symbol; default: behind the ftrace nop.", min=0)]
