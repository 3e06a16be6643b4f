# SPDX-License-Identifier: GPL-2.0-only
"""The compiler of the host, for what tests build and no guest runs."""

from __future__ import annotations

from orchestrator.artifacts.toolchain import Toolchain

HOST_TOOLCHAIN = Toolchain(folder=None, release="12.2.0", version="gcc of this host")
