# SPDX-License-Identifier: GPL-2.0-only
"""How hypothesis works here: without time limits, which a busy host would miss, and with nothing left behind.

Also the folders of a lab, the host's compiler in place of the guests', and the code of a small kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from built_code import build_tree
from host_toolchain import HOST_TOOLCHAIN
from hypothesis import HealthCheck, settings

from orchestrator.artifacts import compiler, guest_programs, user_programs
from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree

_EXAMPLES = 12
_NIGHTLY_EXAMPLES = 200


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples every day, other ones each time, and many every night."""
    settings.register_profile(
        "lab",
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=_NIGHTLY_EXAMPLES if config.getoption("nightly") else _EXAMPLES,
    )
    settings.load_profile("lab")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the results of commands, which is not there yet; their cache is beside it."""
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "lab"


@pytest.fixture(scope="module")
def host_compiles() -> Iterator[None]:
    """The host's compiler passes for the guests'."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (compiler, guest_programs, user_programs):
            patch.setattr(module, "guest_toolchain", lambda context: HOST_TOOLCHAIN)
        yield


@pytest.fixture(scope="module", params=[4, 8])
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KernelCode:
    """The image of a kernel made of the module's ``SOURCE``, for pointers of four and of eight bytes."""
    found = code_of_tree(build_tree(tmp_path_factory.mktemp("tree"), request.module.SOURCE, request.param))
    assert found is not None
    return found
