# SPDX-License-Identifier: GPL-2.0-only
"""A compiler for what tests build and no guest runs: the host's, which passes for that of the guests' release."""

from __future__ import annotations

from orchestrator.artifacts.compiler import Toolchain

HOST_TOOLCHAIN = Toolchain(folder=None, release="12.2.0", version="gcc of this host")
