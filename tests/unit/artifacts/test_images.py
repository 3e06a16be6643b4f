# SPDX-License-Identifier: GPL-2.0-only
"""Are recipes read as they are meant, and is an image another one as soon as anything that counts is another?

Images themselves are built in tests/qemu.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator import host_packages
from orchestrator.artifacts import disk_images
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache, digest
from orchestrator.artifacts.cache_entries import ALL, Kind, cache_entries
from orchestrator.artifacts.debian_package import Package
from orchestrator.artifacts.disk_images import cached_image, ready_image
from orchestrator.artifacts.package_archive import index, system_packages
from orchestrator.artifacts.pinned_packages import inputs_of, pin_of
from orchestrator.artifacts.usage import release
from orchestrator.artifacts.user_namespace import _namespace
from orchestrator.catalog.image_recipes import ImageRecipe, image, images
from orchestrator.cli.main import app
from orchestrator.errors import ConfigError, HostError

SOUND = {"title": "mine", "arch": "i386", "size": "1G"}
CHOSEN = (
    Package("bash", "i386", "5.2-1", "a" * 64, ""),
    Package("tzdata", "all", "2026b-0", "b" * 64, ""),
)
NEEDS_QEMU_IMG = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")


# --- recipes --------------------------------------------------------------------------------------


def test_the_lab_s_own_recipes() -> None:
    of_each = {f"debian-{arch}{kind}" for arch in ("i386", "amd64") for kind in ("", "-systemd", "-build")}
    assert set(images()) == of_each | {
        "debian-amd64-bpftrace",
        "debian-amd64-bpftrace-13",
        "debian-amd64-postgresql",
        "debian-amd64-python",
        "debian-amd64-tools",
        "debian-amd64-tools-13",
    }
    for name, recipe in images().items():
        assert recipe == image(name)
        assert recipe.arch == ("i386" if "i386" in name else "x86_64")
        assert recipe.init == ("systemd" if "systemd" in name else "small")
        assert "openssh-server" in recipe.packages
    assert set(images()["debian-i386-build"].packages) > {"gcc", *images()["debian-i386"].packages}
    assert images()["debian-i386-systemd"].size == images()["debian-i386"].size == 2 << 30


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown image 'debian-i368'; .*did you mean 'debian-i386'\?") as caught:
        image("debian-i368")
    assert "./mine.yaml" in caught.value.hint


def write(tmp_path: Path, fields: object, name: str = "mine.yaml") -> str:
    path = tmp_path / name
    path.write_text(fields if isinstance(fields, str) else json.dumps(fields))
    return str(path)


def test_a_recipe_of_one_s_own(tmp_path: Path) -> None:
    alone = image(write(tmp_path, {**SOUND, "packages": ["strace", "gdb"], "init": "systemd", "size": "900M"}))
    assert alone.model_dump() == {
        "name": "mine",
        "title": "mine",
        "arch": "i386",
        "packages": ("gdb", "strace"),
        "init": "systemd",
        "size": 900 << 20,
        "release": None,
    }
    base = image("debian-amd64")
    added = image(write(tmp_path, {"title": "more", "base": "debian-amd64", "packages": ["strace"]}))
    assert (added.arch, added.init, added.size) == (base.arch, base.init, base.size)
    assert added.packages == tuple(sorted((*base.packages, "strace")))


def test_a_recipe_of_another_release(tmp_path: Path) -> None:
    newer, base = images()["debian-amd64-bpftrace-13"], images()["debian-amd64-bpftrace"]
    assert newer.suites is not None
    assert newer.suites.suites[0] == "trixie"
    assert newer.packages == base.packages
    assert system_packages(newer).places == (newer.suites,)
    assert system_packages(base).places == ()
    assert system_packages(newer).name != system_packages(base.model_copy(update={"name": newer.name})).name
    usual = image(write(tmp_path, {"title": "x", "base": "debian-amd64-bpftrace-13", "release": "bookworm"}))
    assert usual.suites is None


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ("", "the recipe is empty"),
        ("- a", "a recipe is a mapping"),
        ("a: [", "not YAML"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("#" * 70_000, "larger than 64 KiB"),
        ({**SOUND, "package": []}, "unknown key 'package'; .*did you mean 'packages'"),
        ({"arch": "i386", "size": "1G"}, "title is missing"),
        ({"title": "x", "size": "1G"}, "arch is missing"),
        ({"title": "x", "arch": "i386"}, "size is missing"),
        ({**SOUND, "arch": "arm64"}, "arch: found 'arm64'"),
        ({**SOUND, "init": "runit"}, "init: found 'runit'"),
        ({**SOUND, "packages": "bash"}, "packages: found 'bash'"),
        ({**SOUND, "packages": ["bash; reboot"]}, r"packages\.0: found 'bash; reboot'"),
        ({**SOUND, "packages": ["--help"]}, r"packages\.0: found '--help'"),
        ({**SOUND, "packages": ["?true"]}, r"packages\.0: found '\?true'"),
        ({**SOUND, "packages": ["bash\n"]}, r"packages\.0: found"),
        ({**SOUND, "release": "trixy"}, "release: unknown release 'trixy'; .*did you mean 'trixie'"),
        ({**SOUND, "release": "13"}, "release: found '13'; expected the name of a release of Debian, such as trixie"),
        ({**SOUND, "size": "1"}, "size: found '1'"),
        ({**SOUND, "size": 1}, "size: found 1"),
        ({**SOUND, "size": "1M"}, "size: found '1M'; expected 512M to 64G"),
        ({**SOUND, "size": "99999G"}, "expected 512M to 64G"),
        ({**SOUND, "base": "debian-armhf"}, "unknown image 'debian-armhf'"),
        ({**SOUND, "base": "./mine.yaml"}, "expected the name of one of the lab's images"),
        ({**SOUND, "base": "debian-amd64"}, "arch: found 'i386'; its base debian-amd64 is x86_64"),
    ],
)
def test_faults_of_a_recipe_are_reported(tmp_path: Path, fields: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        image(write(tmp_path, fields))


@pytest.mark.parametrize("name", ["/nowhere/mine.yaml", "./mine", "~no-such-user/x.yaml", "/tmp/", "./a b.yaml"])
def test_a_path_that_is_no_recipe_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, SOUND, "mine")
    write(tmp_path, SOUND, "a b.yaml")
    with pytest.raises(ConfigError, match="found"):
        image(name)


# --- what is in the cache -------------------------------------------------------------------------


def put_in(cache: Cache, recipe: ImageRecipe) -> Path:
    """An image as an earlier run left it, and the record of what was chosen for it. Returns the record."""
    pin = pin_of(BuildContext(cache), system_packages(recipe).name)
    pin.parent.mkdir(parents=True, exist_ok=True)
    pin.write_text(json.dumps([asdict(package) for package in CHOSEN]))

    def fill(folder: Path) -> None:
        (folder / "base.qcow2").write_bytes(b"QFI")
        (folder / "packages.txt").write_text("".join(f"{p.name} {p.version}\n" for p in CHOSEN))
        (folder / "files.txt").write_text("d 755 0:0 .\n")

    inputs = disk_images._inputs(recipe, digest(inputs_of(CHOSEN)))
    cache.obtain("images", inputs, recipe.name, fill)
    return pin


def test_an_image_is_there_as_long_as_nothing_that_counts_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, recipe = Cache(tmp_path), image("debian-i386")
    offline = BuildContext(cache, offline=True)
    assert cached_image(offline, recipe) is None
    pin = put_in(cache, recipe)
    found = ready_image(offline, recipe)
    assert found == cached_image(offline, recipe)
    assert found.packages == {"bash": "5.2-1", "tzdata": "2026b-0"}
    assert found.base.read_bytes() == b"QFI"
    assert ready_image(offline, recipe.model_copy(update={"title": "another"})).key == found.key
    for change in ({"init": "systemd"}, {"size": 3 << 30}, {"arch": "x86_64"}, {"packages": ("gdb", *recipe.packages)}):
        with pytest.raises(HostError, match="image debian-i386 is not in the cache"):
            ready_image(offline, recipe.model_copy(update=change))
    another = {**disk_images.scripts(), "finish.sh": "# another"}
    with monkeypatch.context() as patched:
        patched.setattr(disk_images, "scripts", lambda: another)
        assert cached_image(offline, recipe) is None
    pin.write_text(json.dumps([asdict(CHOSEN[0])]))
    assert cached_image(offline, recipe) is None
    pin.unlink()
    assert cached_image(offline, recipe) is None


def test_an_image_in_use_is_not_pruned(tmp_path: Path) -> None:
    cache, recipe = Cache(tmp_path / "cache"), image("debian-i386")
    put_in(cache, recipe)
    (entry,) = (entry for entry in cache_entries(cache) if entry.kind is Kind.IMAGES)
    assert entry.label == recipe.name
    assert entry.in_use()
    assert not entry.remove(ALL)
    assert cached_image(BuildContext(cache, offline=True), recipe) is not None


def test_the_packages_of_an_image_that_is_used_are_not_pruned(tmp_path: Path) -> None:
    begun = time.time() - 1  # a file's time may be that of the tick before
    cache, recipe = Cache(tmp_path / "cache"), image("debian-i386")
    pin = put_in(cache, recipe)
    name = system_packages(recipe).name
    archive = cache.obtain("archives", inputs_of(CHOSEN), name, lambda folder: (folder / "Packages").touch())
    for file in (archive.stamp, pin):
        os.utime(file, (0, 0))
    release(archive.stamp)
    assert cached_image(BuildContext(cache, offline=True), recipe) is not None
    used = {entry.kind: entry.used for entry in cache_entries(cache)}
    assert begun < used[Kind.ARCHIVES] <= used[Kind.PINS]


def test_the_list_of_images_shows_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path))
    put_in(Cache(tmp_path), image("debian-i386"))
    listed = {line.split()[0]: line for line in CliRunner().invoke(app, ["image", "list"]).stdout.splitlines()[1:]}
    assert set(listed) == set(images())
    assert "not built" in listed["debian-amd64"]
    assert listed["debian-i386"].split()[1:5] == ["i386", "small", "0.0", "2"]
    packages = CliRunner().invoke(app, ["image", "list", "--packages", "debian-i386"])
    assert [line.split() for line in packages.stdout.splitlines()[1:]] == [["bash", "5.2-1"], ["tzdata", "2026b-0"]]
    missing = CliRunner().invoke(app, ["image", "list", "--packages", "debian-amd64"])
    assert missing.exit_code == HostError.exit_status
    assert "image debian-amd64 is not built" in missing.stderr
    assert "build image debian-amd64" in missing.stderr


# --- what a build needs ---------------------------------------------------------------------------


def test_an_index_names_the_files_that_are_there() -> None:
    stanzas = ["Package: a\nFilename: pool/a_1.deb\nSize: 1\n", "Package: b\nFilename: pool/b.deb\nDescription: b\n c"]
    assert index(zip(stanzas, ["a_1.deb", "b_2%3a1.deb"], strict=True)) == (
        "Package: a\nFilename: ./a_1.deb\nSize: 1\n\nPackage: b\nFilename: ./b_2%3a1.deb\nDescription: b\n c\n"
    )


def test_a_missing_program_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list.txt").write_text("sh dash a shell\nno-such-a a for one\nno-such-b b b\nno-such-c a for two\n")
    monkeypatch.setattr(host_packages, "data_dir", lambda name: tmp_path)
    with pytest.raises(HostError, match=r"building needs a b\n") as caught:
        host_packages.check_installed("list.txt", "building")
    assert caught.value.hint.endswith("install -y --no-install-recommends a b")


def test_what_all_lists_lack_is_installed_at_once_by_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The script that has started the lab installs; where it cannot, all packages are named together."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "one.txt").write_text("sh dash a shell\nno-such-a a for one\n")
    (tmp_path / "two.txt").write_text("no-such-b b b\nno-such-c a c\n")
    (tmp_path / "none.txt").write_text("sh dash a shell\n")
    script = tmp_path / "lab"
    monkeypatch.setattr(host_packages, "data_dir", lambda name: tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    monkeypatch.setattr(host_packages, "_INSTALLER", str(script))
    lists = {"one.txt": "building", "none.txt": "nothing", "two.txt": "packing"}

    script.write_text('#!/bin/sh\necho "$*"\n')
    script.chmod(0o755)
    with pytest.raises(HostError, match=r"building needs a; packing needs b a\n") as caught:
        host_packages.check_all_installed(lists)
    assert caught.value.hint == f"as root: {host_packages.INSTALL_COMMAND} a b"
    assert capfd.readouterr() == ("", "install-packages one.txt two.txt\n")

    made = " ".join(f"{tmp_path}/bin/no-such-{name}" for name in "abc")
    script.write_text(f"#!/bin/sh\ntouch {made}\nchmod +x {made}\n")
    host_packages.check_all_installed(lists)
    script.unlink()
    host_packages.check_all_installed(lists)


def test_remains_of_a_killed_build_are_removed_by_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, link, kept = (tmp_path / f"orchestrator-{name}" for name in ("image-left", "image-link", "else"))
    for folder in (left, kept):
        (folder / "tree").mkdir(parents=True)
    link.symlink_to(kept)
    with disk_images._work_folder((), 1) as work:
        assert sorted(tmp_path.iterdir()) == sorted([work, link, kept])
        assert (kept / "tree").is_dir()
    assert sorted(tmp_path.iterdir()) == sorted([link, kept])
    with (
        pytest.raises(HostError, match=r"needs 1000000\.0 GB in .*, and .* are free"),
        disk_images._work_folder((), 10**15),
    ):
        pass


def test_the_list_of_what_images_need() -> None:
    assert {need.package for need in host_packages.load_requirements("image-packages.txt")} == {
        "mmdebstrap",
        "arch-test",
        "mount",
        "e2fsprogs",
        "qemu-utils",
        "squashfs-tools",
        "uidmap",
    }


def test_a_user_without_the_means_for_a_namespace_gets_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _namespace.cache_clear()
    with pytest.raises(HostError, match="newuidmap is not installed") as caught:
        _namespace()
    assert "uidmap" in caught.value.hint
