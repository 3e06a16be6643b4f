# SPDX-License-Identifier: GPL-2.0-only
"""A profile's stacks as a flame graph: its colours tell the program, modules and the kernel apart."""

from __future__ import annotations

from operator import attrgetter

from orchestrator.report.flames import Box, Flames, picture
from orchestrator.report.palette import KERNEL, MODULE, USER
from orchestrator.report.profile_figures import per_call
from orchestrator.results.call_tree import CallCost, call_tree
from orchestrator.results.profile import CellProfile

_REMARK = "blue: the program; orange: modules; yellow: the kernel"


def flame_graph(profile: CellProfile) -> str:
    """The picture as SVG. Raises UsageError for a profile without stacks."""
    tree = call_tree(profile)
    programs = {symbol.name for symbol in profile.symbols if symbol.place == "user"}

    def box(call: CallCost) -> Box:
        title = f"{call.name}: {per_call(call.total)} instructions per call, {per_call(call.own)} of its own"
        colour = MODULE if call.name.endswith("]") else USER if call.name in programs else KERNEL
        return Box(call.name, call.total, title, colour)

    heading = f"{profile.cell}: {per_call(tree.total)} instructions per call"
    return picture([Flames(heading, tree, attrgetter("called"), box)], _REMARK)
