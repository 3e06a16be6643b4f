# SPDX-License-Identifier: GPL-2.0-only
"""How many of Debian's tools have a number, as their own loaders attach them? The others have one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from experiment_boot import boot_of_calls, measured_call, prepared_for
from needed_images import needed_image

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.catalog.probes import CALL_PREFIX
from orchestrator.catalog.tools import TOOLS_IMAGE
from orchestrator.cost.call_table import call_table
from orchestrator.cost.subjects import ANY_FUNCTION
from orchestrator.errors import GuestError, LabError
from orchestrator.run.ready_guest import ReadyGuest

KERNEL = "debian-amd64@6.12"
MACHINE = {"cpu": "xeon-e5410", "memory": "512M"}
TOOLS: Mapping[str, str] = yaml.safe_load(Path(__file__).with_name("tool_scores.yaml").read_text())

pytestmark = [
    pytest.mark.nightly("an image with Debian's tools, and half a minute for each of them"),
    pytest.mark.guest(kernel=KERNEL, timing="instructions", image=TOOLS_IMAGE, kernel_modules=True, **MACHINE),
]


@pytest.fixture(scope="module", autouse=True)
def scores(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What each tool has got, printed in the end: a number of instructions that a call takes more, or a sentence."""
    needed_image(request.config, TOOLS_IMAGE)
    of_tools: dict[str, str] = {}
    yield of_tools
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    for tool, score in of_tools.items():
        reporter.write_line(f"{tool:28} {score}")


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_has_a_number_or_a_sentence(
    ready: ReadyGuest, workshop: BuildContext, scores: dict[str, str], tool: str
) -> None:
    call = call_table()[TOOLS[tool]]
    for module in call.modules:
        ready.guest.succeed(["modprobe", module])
    boot = boot_of_calls(
        image=TOOLS_IMAGE,
        kernels=[KERNEL],
        machines=[MACHINE],
        points=[CALL_PREFIX["x86_64"] + call.events[0] if call.events[0] else ANY_FUNCTION],
        probes=["none", f"tool: {tool}"],
        benchmark={"calls": 100, "repeats": 2, **call.benchmark},
    )
    try:
        record = measured_call(prepared_for(ready, workshop, boot), boot.cells[-1])
    except LabError as error:
        scores[tool] = str(error).partition("\n")[0]
        if isinstance(error, GuestError):
            raise
        return
    scores[tool] = record.reason or f"{record.overhead:.10g}"


def test_the_tools_that_always_had_a_number_have_it(scores: dict[str, str]) -> None:
    numbers = {tool for tool, score in scores.items() if score.replace(".", "", 1).isdecimal()}
    assert numbers >= {"bindsnoop", "capable", "opensnoop"}
