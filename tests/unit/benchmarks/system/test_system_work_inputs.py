# SPDX-License-Identifier: GPL-2.0-only
"""Is the catalogue of whole programs consistent, and is what cannot be run refused before anything is built?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from host_toolchain import a_kernel

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.system.work import SystemTask, system_inputs
from orchestrator.benchmarks.system.workloads import system_workloads
from orchestrator.catalog.image_recipes import images
from orchestrator.errors import ConfigError, HostError
from orchestrator.paths import data_dir

CONFIG = {f"CONFIG_{name}": "y" for name in ("BLK_DEV_LOOP", "SQUASHFS", "SQUASHFS_LZ4", "TMPFS")}
PING = SystemTask("ping-flood", packets=10)


@pytest.fixture
def built(tmp_path: Path) -> Kernel:
    return a_kernel("lab-i386-smp", CONFIG, tmp_path, key="0" * 24, modules=tmp_path / "no-drivers")


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return BuildContext(Cache(tmp_path / "cache"), offline=True)


def test_the_catalogue_names_what_is_there() -> None:
    catalogue = system_workloads()
    assert list(catalogue.benchmarks) == ["kernel-build", "ping-flood", "command"]
    for benchmark in catalogue.benchmarks.values():
        assert (data_dir("images") / "unattended" / f"{benchmark.script}.sh").is_file()
        assert {images()[name].arch for name in benchmark.images.values()} == {"i386", "x86_64"}
        assert all(images()[name].arch == arch for arch, name in benchmark.images.items())
    assert list(catalogue.scopes) == ["sample", "locking", "time", "kernel", "vmlinux"]
    assert catalogue.scope in catalogue.scopes
    seconds = [scope.seconds for scope in catalogue.scopes.values()]
    assert seconds == sorted(seconds)


def test_targets_are_what_the_script_takes_for_one() -> None:
    for scope in system_workloads().scopes.values():
        for target in scope.targets:
            assert target == "vmlinux" or target.endswith(("/", ".o"))
            assert not set(target) - set("abcdefghijklmnopqrstuvwxyz_/.")


def test_an_unknown_image_is_answered_with_the_nearest(context: BuildContext, built: Kernel) -> None:
    with pytest.raises(ConfigError, match="did you mean 'debian-i386'"):
        system_inputs(context, built, replace(PING, image="debian-i368"))


def test_offline_a_missing_image_is_reported(context: BuildContext, built: Kernel) -> None:
    with pytest.raises(HostError, match="image debian-i386 is not in the cache"):
        system_inputs(context, built, PING)
