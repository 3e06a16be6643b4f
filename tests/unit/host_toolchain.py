# SPDX-License-Identifier: GPL-2.0-only
"""A compiler for what tests build and no guest runs: the host's, which passes for that of the guests' release.

Also kernels that it is said to have built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.toolchain import Toolchain
from orchestrator.catalog.kernels import kernel as kernel_spec

HOST_TOOLCHAIN = Toolchain(folder=None, release="12.2.0", version="gcc of this host")
NOWHERE = Path("/nowhere")


def a_kernel(name: str, config: Mapping[str, str] | None = None, folder: Path = NOWHERE, **facts: Any) -> Kernel:
    """A kernel of the catalogue with all its files in one folder, but for the facts that a test states."""
    spec = kernel_spec(name)
    usual = Kernel(spec, "6.1", "key", folder, folder, folder, folder, {}, config or {}, HOST_TOOLCHAIN)
    return replace(usual, **facts)
