# SPDX-License-Identifier: GPL-2.0-only
"""Does pruning remove what is not needed any more, and nothing else?"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from other_processes import FOR_EVER, FORK, wait_while_alive
from typer.testing import CliRunner

from orchestrator.artifacts import disk_images
from orchestrator.artifacts.cache import ENVIRONMENT_STAMP, Artifact, Cache, digest, disk_usage
from orchestrator.artifacts.cache_entries import ALL, Kind, cache_entries
from orchestrator.cli.main import app
from orchestrator.paths import data_dir

DAY = 86_400
INPUTS: dict[str, object] = {"version": 1}
HELD = ExitStack()
"""What a process holds until it ends."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """An empty cache, the one that the command line takes."""
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    return Cache(tmp_path / "cache")


def prune(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["cache", "prune", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def call(function: Callable[[], object]) -> None:
    """Call it in a process of its own, which then ends and uses nothing any more."""
    process = FORK.Process(target=function)
    process.start()
    process.join()
    assert process.exitcode == 0


@contextmanager
def another_process(function: Callable[[], object]) -> Iterator[int]:
    """A process that has called it and is still alive."""
    ours, theirs = FORK.Pipe()

    def work() -> None:
        function()
        theirs.send("done")
        time.sleep(FOR_EVER)

    process = FORK.Process(target=work, daemon=True)
    process.start()
    try:
        wait_while_alive(process, ours.poll)
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()


def age(path: Path, days: float) -> None:
    """Let everything in a folder be as old as that."""
    then = time.time() - days * DAY
    for file in (path, *path.rglob("*")):
        os.utime(file, (then, then), follow_symlinks=False)


def last_noted(place: Path, stamp: str = "manifest.json") -> float:
    """When its last use was noted."""
    return (place / stamp).stat().st_mtime


def fill(folder: Path) -> None:
    (folder / "content").write_bytes(bytes(100_000))


def made(cache: Cache, kind: str, days: float, inputs: dict[str, object] = INPUTS) -> Path:
    """An artifact that was last used ``days`` days ago."""
    call(lambda: cache.obtain(kind, inputs, f"a thing of {kind}", fill))
    place = cache.root / kind / digest(inputs)
    age(place, days)
    return place


def folder(path: Path, days: float, *files: str) -> Path:
    path.mkdir(parents=True)
    for name in files or ("file",):
        (path / name).write_text("x")
    age(path, days)
    return path


# --- what is used stays --------------------------------------------------------------------------


def test_unused_artifacts_are_removed(cache: Cache) -> None:
    old, recent = made(cache, "modules", 31), made(cache, "kernels", 29)
    printed = prune()
    assert not old.exists()
    assert recent.exists()
    assert re.search(r"removed +modules +a thing of modules +0\.1 ", printed)
    assert "a thing of kernels" not in printed
    assert prune("--keep-days", "28").count("removed") == 1
    assert list((cache.root / "kernels").iterdir()) == []


def test_a_use_is_noted_once_a_day(cache: Cache) -> None:
    place = made(cache, "modules", 31)
    aged = last_noted(place)
    call(lambda: cache.get("modules", INPUTS))
    assert last_noted(place) - aged > 30 * DAY
    age(place, 0.5)
    before = last_noted(place)
    call(lambda: cache.get("modules", INPUTS))
    assert last_noted(place) == before
    prune()
    assert place.exists()


def test_an_artifact_in_use_stays_until_its_user_ends(cache: Cache) -> None:
    place = made(cache, "modules", 0)

    def use() -> None:
        assert cache.get("modules", INPUTS) is not None

    with another_process(use):
        age(place, 400)
        assert "kept: in use" in prune("--all", "--dry-run")
        assert "kept: in use" in prune("--all")
        assert "kept: in use" in prune()
        assert (place / "content").exists()
    assert "removed" in prune("--all")
    assert not place.exists()


def test_a_new_artifact_is_in_use(cache: Cache) -> None:
    with another_process(lambda: cache.obtain("modules", INPUTS, "a thing", fill)):
        assert "kept: in use" in prune("--all")


def test_a_removed_artifact_is_built_again(cache: Cache) -> None:
    kept = cache.obtain("modules", INPUTS, "a thing", fill)
    # As by hand, under a process that goes on.
    for file in kept.path.iterdir():
        file.unlink()
    kept.path.rmdir()
    assert cache.get("modules", INPUTS) is None
    assert cache.obtain("modules", INPUTS, "a thing", fill) == kept
    assert "kept: in use" in prune("--all")


def test_a_use_since_the_decision_counts(cache: Cache) -> None:
    place = made(cache, "modules", 31)
    (entry,) = (p for p in cache_entries(cache) if p.kind is Kind.MODULES)
    call(lambda: cache.get("modules", INPUTS))
    assert not entry.remove(time.time() - 30 * DAY)
    assert place.exists()
    assert entry.remove(ALL)
    assert not place.exists()
    assert not entry.remove(ALL)


def test_users_and_a_remover_at_once_never_see_half_of_a_thing(cache: Cache, pytestconfig: pytest.Config) -> None:
    lives = 30 if pytestconfig.getoption("nightly") else 8

    def use_in_short_lives() -> None:
        for _ in range(lives):
            call(lambda: use_once(cache))

    processes = [FORK.Process(target=use_in_short_lives) for _ in range(2)]
    for process in processes:
        process.start()
    removed = 0
    while any(process.is_alive() for process in processes):
        removed += sum(entry.remove(ALL) for entry in cache_entries(cache) if entry.kind is Kind.MODULES)
    assert [process.exitcode for process in processes] == [0, 0]
    assert removed > 0


def use_once(cache: Cache) -> None:
    artifact = cache.obtain("modules", INPUTS, "a thing", fill)
    for _ in range(20):
        assert (artifact.path / "content").stat().st_size == 100_000


def test_only_the_kinds_that_were_named(cache: Cache) -> None:
    module, vmlinux = made(cache, "modules", 100), made(cache, "vmlinux", 100)
    prune("modules", "programs", "--all")
    assert (module.exists(), vmlinux.exists()) == (False, True)
    assert "unknown kind 'module'; allowed: debian, " in prune("module", status=2)


# --- dry runs and sizes --------------------------------------------------------------------------


def test_a_dry_run_removes_nothing(cache: Cache) -> None:
    place = made(cache, "modules", 31)
    printed = prune("--dry-run", "--all")
    assert re.search(r"to remove +modules", printed)
    assert "0.1 MB would be freed" in printed
    assert place.exists()
    assert "0.1 MB freed" in prune()


def test_files_that_several_share_are_counted_once(cache: Cache) -> None:
    plain = made(cache, "kernel-source", 100, {"n": 1})
    patched = made(cache, "kernel-source", 100, {"n": 2})
    (patched / "content").unlink()
    os.link(plain / "content", patched / "content")
    assert 50_000 <= disk_usage(plain) < 100_000 <= disk_usage(plain) + disk_usage(patched) < 150_000


# --- leftovers and locks -------------------------------------------------------------------------


def test_remains_of_a_killed_builder_are_removed(cache: Cache) -> None:
    unfinished = cache.root / "modules" / f"{digest(INPUTS)}.building"

    def build(folder: Path) -> None:
        fill(folder)
        os.kill(os.getpid(), signal.SIGKILL)

    process = FORK.Process(target=lambda: cache.obtain("modules", INPUTS, "a thing", build))
    process.start()
    process.join()
    assert unfinished.exists()
    assert "incomplete" in prune()
    assert not unfinished.exists()


def test_an_artifact_under_construction_stays(cache: Cache, tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        fill(folder)
        (tmp_path / "begun").touch()
        time.sleep(FOR_EVER)

    process = FORK.Process(target=lambda: cache.obtain("modules", INPUTS, "a thing", build), daemon=True)
    process.start()
    try:
        wait_while_alive(process, (tmp_path / "begun").exists)
        assert "modules" not in prune()
        assert "modules" not in prune("--all")
        assert (cache.root / "modules" / f"{digest(INPUTS)}.building" / "content").exists()
        assert (cache.root / "locks" / f"modules-{digest(INPUTS)}.lock").exists()
    finally:
        process.kill()
        process.join()


def test_an_entry_that_cannot_be_read_goes(cache: Cache) -> None:
    place = made(cache, "modules", 1)
    (place / "manifest.json").write_text("{")
    assert "incomplete" in prune()
    assert not place.exists()


# --- what lies beside the artifacts --------------------------------------------------------------


def test_files_beside_the_artifacts_are_removed_by_age(cache: Cache) -> None:
    root = cache.root
    name = f"lab_kprobe-{'0' * 24}"
    things = ["apt/bookworm-amd64", "apt/bookworm-amd64-i386", "checks/mypy", "checks/pytest"]
    things += [f"failed-builds/{name}", "git-trees/linux-0a1b2c", "git-trees/linux-0a1b2c.unfinished"]
    for thing in things:
        folder(root / thing, 31)
    (root / "checks/mypy/deep").mkdir()
    (root / "checks/mypy/deep/new").touch()
    printed = prune()
    assert [thing for thing in things if (root / thing).exists()] == ["checks/mypy"]
    assert name in printed
    assert not (root / "kvm-speed.json").exists()


def test_choices_of_packages_go_with_all_unless_one_is_being_made(cache: Cache) -> None:
    for name in ("debian-686", "debian-amd64"):
        (cache.root / "pins").mkdir(parents=True, exist_ok=True)
        (cache.root / "pins" / f"{name}.json").write_text("[]")
    prune()
    assert len(list((cache.root / "pins").iterdir())) == 2
    with another_process(lambda: HELD.enter_context(cache.try_lock("pin-debian-686"))):
        assert len(re.findall("kept: in use +pins", prune("--all", "--dry-run"))) == 1
        prune("--all")
    assert [path.name for path in (cache.root / "pins").iterdir()] == ["debian-686.json"]
    assert "in use" not in prune("--all", "--dry-run")


def test_the_choice_of_packages_that_are_in_demand_stays(cache: Cache) -> None:
    pins = folder(cache.root / "pins", 400, "debian-686.json", "debian-amd64.json")
    call(lambda: cache.obtain("debian", {"packages": {}}, "debian-686", fill))
    prune()
    assert [path.name for path in pins.iterdir()] == ["debian-686.json"]
    age(cache.root / "debian", 400)
    prune()
    assert list(pins.iterdir()) == []


def environment(cache: Cache, number: int, days: float) -> Path:
    path = folder(cache.root / f"venv-{number:016x}", days, ENVIRONMENT_STAMP, "python")
    path.with_name(f"{path.name}.lock").touch()
    path.with_name(f"{path.name}.log").touch()
    return path


def test_python_environments_go_when_they_are_not_used(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    old, recent, ours, half = (environment(cache, n, days) for n, days in enumerate((31, 29, 31, 1)))
    (half / ENVIRONMENT_STAMP).unlink()
    aged = last_noted(ours, ENVIRONMENT_STAMP)
    monkeypatch.setattr(sys, "prefix", str(ours))
    prune()
    assert [path.exists() for path in (old, recent, ours, half)] == [False, True, True, False]
    assert old.with_name(f"{old.name}.lock").exists()
    assert not old.with_name(f"{old.name}.log").exists()
    assert last_noted(ours, ENVIRONMENT_STAMP) - aged > 30 * DAY
    assert "kept: in use" in prune("--all")
    assert [path.exists() for path in (recent, ours)] == [False, True]


def test_an_environment_that_is_being_made_stays(cache: Cache) -> None:
    path = environment(cache, 1, 31)
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert "kept: in use" in prune("--all")
    os.close(lock)
    prune("--all")
    assert not path.exists()


# --- nothing else --------------------------------------------------------------------------------


def test_files_of_others_are_not_touched(cache: Cache, tmp_path: Path) -> None:
    key = digest(INPUTS)
    foreign = [
        folder(cache.root / name, 400)
        for name in (
            "photos/2005",
            f"photos/{key}",
            "modules/letters",
            "modules/0123.building",
            "checks/my-own",
            "failed-builds/my-own",
            "venv-of-mine",
            "apt/my own",
            "git-trees/linux",
        )
    ]
    (cache.root / "photos" / key / "manifest.json").write_text(json.dumps({"label": "x", "inputs": {}}))
    elsewhere = folder(tmp_path / "elsewhere" / key, 400)
    (elsewhere / "manifest.json").write_text(json.dumps({"label": "x", "inputs": {}}))
    age(elsewhere, 400)
    (cache.root / "modules" / digest("a link")).symlink_to(elsewhere)
    (cache.root / "programs").symlink_to(elsewhere.parent)
    (cache.root / "pins").symlink_to(elsewhere.parent)
    (cache.root / "checks" / "mypy").symlink_to(elsewhere)
    (cache.root / f"venv-{0:016x}").symlink_to(elsewhere)
    prune("--all")
    assert all((path / "file").exists() for path in foreign)
    assert (elsewhere / "file").exists()
    assert len(list(elsewhere.iterdir())) == 2


def test_links_within_an_artifact_are_not_followed(cache: Cache, tmp_path: Path) -> None:
    elsewhere = folder(tmp_path / "elsewhere", 1)
    place = made(cache, "debian", 1)
    (place / "link").symlink_to(elsewhere)
    prune("--all")
    assert not place.exists()
    assert (elsewhere / "file").exists()


@pytest.mark.parametrize("below", ["", "someone", "someone/here"])
def test_a_cache_where_none_should_be_is_refused(below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "someone" / "here"
    home.mkdir(parents=True)
    thing = folder(tmp_path / below / "checks" / "mypy", 400)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / below))
    assert "a home folder" in (refused := prune("--all", status=2))
    assert ": nothing is removed from it" in refused
    assert thing.exists()


def test_the_root_of_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", "/tmp/..")
    assert "the cache folder / is a folder with a home folder in it" in prune("--dry-run", status=2)


def test_no_cache_is_an_empty_one(cache: Cache) -> None:
    assert prune("--all").startswith("0.0 MB freed in ")
    assert not cache.root.exists()


def test_every_kind_of_artifact_is_known() -> None:
    package = data_dir("kmods").parent / "orchestrator" / "artifacts"
    text = "\n".join(path.read_text() for path in package.glob("*.py"))
    written = set(re.findall(r"cache\.(?:obtain|get)\(\s*\"([a-z-]+)\"", text)) | set(
        re.findall(r'^_(?:[A-Z]+_)*KIND = "([a-z-]+)"', text, re.MULTILINE)
    )
    assert len(written) >= 6
    assert written <= {kind.value for kind in Kind}


def test_an_artifact_knows_when_it_was_used(cache: Cache) -> None:
    place = made(cache, "modules", 12)
    (artifact,) = cache.artifacts()
    assert artifact.used == last_noted(place)
    assert Artifact("modules", "0" * 24, place.with_name("gone"), "", {}).used == 0.0


def test_every_kind_that_the_lab_makes_is_known() -> None:
    package = Path(disk_images.__file__).parents[1]
    made = re.compile(r'(?:^[A-Z_]*KIND = |\.obtain\(\s*)"([a-z-]+)"', re.M)
    found = {kind for file in package.rglob("*.py") for kind in made.findall(file.read_text())}
    assert {"images", "kernel-functions", "prepared-builds"} <= found <= set(Kind)
