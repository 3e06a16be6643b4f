# SPDX-License-Identifier: GPL-2.0-only
"""Do kernels have the options that reasons name them for, and lack those that they are not named for?"""

from __future__ import annotations

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernels, kernels_by_option

pytestmark = pytest.mark.qemu


@pytest.mark.parametrize(
    "name",
    [
        "debian-686",
        "debian-amd64",
        pytest.param("lab-i386-up", marks=pytest.mark.kernels("lab-i386-up")),
        pytest.param("lab-x86_64-smp-bpf", marks=pytest.mark.kernels("lab-x86_64-smp-bpf")),
    ],
)
def test_the_list_is_right_of_a_kernel(workshop: BuildContext, name: str) -> None:
    config = ready_kernel(workshop, kernels()[name]).config
    listed = {option for option, names in kernels_by_option().items() if name in names}
    assert listed == {option for option in kernels_by_option() if config.get(option) == "y"}
