# SPDX-License-Identifier: GPL-2.0-only
"""How many bytes does a marker add with known compilers, and are the sizes of another one reported?"""

from __future__ import annotations

import pytest
from elsewhere import ELSEWHERE
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.benchmarks.markers.code_size import marker_sizes, read_object
from orchestrator.benchmarks.markers.rows import marker_benchmarks
from orchestrator.catalog.kernels import kernels

pytestmark = pytest.mark.qemu

KNOWN = {
    "GCC: (Debian 12.2.0-14+deb12u1) 12.2.0": {
        "lab-i386-up": {"optimized": (6, 44), "generic": (11, 44)},
        "lab-i386-smp-preempt": {"optimized": (6, 67), "generic": (11, 67)},
        "debian-686": {"optimized": (6, 60), "generic": (11, 60)},
        "debian-amd64": {"optimized": (6, 49), "generic": (11, 49)},
    }
}
"""Likely and unlikely path, in bytes."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.kernels(name), *([] if name == "lab-i386-up" else [ELSEWHERE])])
        for name in next(iter(KNOWN.values()))
    ],
)
def test_a_marker_adds_what_it_did_in_2006_to_the_likely_path(workshop: BuildContext, name: str) -> None:
    maker = ModuleMaker(workshop, ready_kernel(workshop, kernels()[name]))
    file = read_object(maker.rendered("marker_sizes", {}).file)
    sizes = {flavour: (size.likely, size.unlikely) for flavour, size in marker_sizes(file).items()}
    if file.compiler not in KNOWN:
        pytest.skip(f"{file.compiler} makes {sizes} of it; what is right is not known")
    assert sizes == KNOWN[file.compiler][name]
    published = {flavour: size.likely for flavour, size in marker_benchmarks().sizes.items()}
    assert {flavour: likely for flavour, (likely, _) in sizes.items()} == published
