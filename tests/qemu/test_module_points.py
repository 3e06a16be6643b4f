# SPDX-License-Identifier: GPL-2.0-only
"""Does one build of a probe module serve all points, and refuse what is none?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from module_maker import ModuleMaker

from orchestrator.catalog.probes import probes
from orchestrator.probes.arming import module_attached
from orchestrator.probes.loading import RefusedError, load
from orchestrator.probes.point import find_entry
from orchestrator.run.ready_guest import ReadyGuest

pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="instructions")

POINTS = ("__ia32_sys_gettimeofday", "ktime_get_real_ts64")
TEMPLATES = ("djprobe", "jprobe", "kprobe", "kretprobe")


@pytest.mark.parametrize("template", TEMPLATES)
def test_one_build_serves_all_points(ready: ReadyGuest, modules: ModuleMaker, template: str) -> None:
    switch = {"kprobe": {"single_step": 1}, "jprobe": {"wrapper": 0}}.get(template, {})
    built = modules.rendered(template, switch)
    kind = probes()["kretprobe-boosted" if template == "kretprobe" else template]
    for symbol in POINTS:
        point = find_entry(ready.guest, ready.symbols, symbol, 0)
        module = replace(built, parameters={"symbol": symbol, "offset": 0})
        with module_attached(ready.guest, kind, module, point, ready.symbols) as attachment:
            attachment.wait_until_armed()
            assert attachment.parameter("symbol") == symbol
            assert int(attachment.parameter("address"), 16) == point.address


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({}, "no such symbol"),
        ({"symbol": "sys_gettimeofday_2005"}, "no such symbol"),
        ({"symbol": "__ia32_sys_gettimeofday", "offset": 1000000}, "+0xf4240: "),
        ({"symbol": "__ia32_sys_gettimeofday", "offset": -5}, "invalid for parameter `offset'"),
    ],
)
def test_a_place_that_is_none_is_refused(
    ready: ReadyGuest, modules: ModuleMaker, template: str, parameters: dict[str, str | int], reason: str
) -> None:
    module = modules.rendered(template, {})
    with pytest.raises(RefusedError) as refused:
        load(ready.guest, module.name, module.file, parameters=parameters)
    assert reason in refused.value.reason
    assert module.name not in ready.guest.get("/proc/modules").decode()
