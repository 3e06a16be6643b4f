# SPDX-License-Identifier: GPL-2.0-only
"""Is a chosen set of packages kept to, and is what is missing named? (With a real apt: test_apt.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.artifacts.cache import Artifact, BuildContext, Cache
from orchestrator.artifacts.debian import AptRoot, Package, unpacked_packages
from orchestrator.errors import HostError, LabError

CHOSEN = {
    "name": "lab-tool",
    "architecture": "i386",
    "version": "1.0-1",
    "sha256": "a" * 64,
    "depends": "",
    "suite": "bookworm",
}


def nothing(apt: AptRoot) -> list[Package]:
    raise AssertionError(f"{apt} is asked although the packages are there")


def put_in(cache: Cache, *packages: dict[str, str]) -> Artifact:
    """An artifact as an earlier run left it, and the record that it was chosen."""
    inputs = {"packages": {f"{p['name']}:{p['architecture']}": [p["version"], p["sha256"]] for p in packages}}
    (cache.root / "pins").mkdir(parents=True, exist_ok=True)
    (cache.root / "pins" / "tools.json").write_text(json.dumps(packages))
    return cache.obtain("debian", inputs, "tools", lambda folder: (folder / "content").touch())


def test_a_chosen_set_needs_no_network(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    made = put_in(cache, CHOSEN)
    assert unpacked_packages(BuildContext(cache, offline=True), "tools", "i386", nothing) == made


def test_another_version_in_the_cache_is_not_taken(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    newer = put_in(cache, {**CHOSEN, "version": "2.0-1"})
    made = put_in(cache, CHOSEN)
    assert newer != made
    assert unpacked_packages(BuildContext(cache, offline=True), "tools", "i386", nothing) == made


@pytest.mark.parametrize("pinned", [False, True])
def test_offline_reports_what_is_missing(tmp_path: Path, pinned: bool) -> None:
    cache = Cache(tmp_path)
    if pinned:
        (put_in(cache, CHOSEN).path / "manifest.json").unlink()
    with pytest.raises(HostError, match="tools is not in the cache") as caught:
        unpacked_packages(BuildContext(cache, offline=True), "tools", "i386", nothing)
    assert str(tmp_path) in str(caught.value)
    assert "--offline" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"{", b"3", b"[1]", b"null", b'[{"name": "x"}]', b'[{"no": "x"}]', b"\xff"])
def test_a_damaged_record_hints_what_to_remove(tmp_path: Path, content: bytes) -> None:
    pin = tmp_path / "pins" / "tools.json"
    pin.parent.mkdir()
    pin.write_bytes(content)
    with pytest.raises(LabError, match="no record of chosen packages") as caught:
        unpacked_packages(BuildContext(Cache(tmp_path), offline=True), "tools", "i386", nothing)
    assert f"rm '{pin}'" in caught.value.hint
