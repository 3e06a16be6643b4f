# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of benchmark there are. A new kind is a folder beside this file, and a line here."""

from __future__ import annotations

from orchestrator.benchmarks.calls.kind import CallsKind
from orchestrator.benchmarks.markers.kind import MarkersKind
from orchestrator.benchmarks.scaling.kind import ScalingKind
from orchestrator.benchmarks.system.kind import SystemKind
from orchestrator.experiment.kind import KindRegistry
from orchestrator.run.kind import BenchmarkKind

KINDS: KindRegistry[BenchmarkKind] = KindRegistry((CallsKind(), MarkersKind(), ScalingKind(), SystemKind()))
