# SPDX-License-Identifier: GPL-2.0-only
"""Is an overlay kept only where it names the image that it was made over, and no other file of the host?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import GuestError
from orchestrator.guest.machine import RootImage
from orchestrator.guest.overlay import check_overlay, keep_overlay, make_overlay

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")


@pytest.fixture
def root(tmp_path: Path) -> RootImage:
    base = tmp_path / "a base, of ä.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "64M"], check=True)
    return RootImage("debian-i386", "key", base, "qcow2")


@pytest.fixture
def overlay(root: RootImage, tmp_path: Path) -> Path:
    file = tmp_path / "overlay"
    make_overlay(root, file)
    return file


def test_an_overlay_of_ours_is_over_its_base(root: RootImage, overlay: Path) -> None:
    check_overlay(overlay, root.base)


@pytest.mark.parametrize(
    "options",
    [
        ("-F", "raw", "-b", "/etc/passwd"),
        ("-F", "raw", "-b", "json:{'driver': 'raw', 'file': {'driver': 'file', 'filename': '/etc/passwd'}}"),
        ("-b", ""),
    ],
)
def test_overlay_of_another_file_is_refused(root: RootImage, overlay: Path, options: tuple[str, ...]) -> None:
    subprocess.run(["qemu-img", "rebase", "-u", "-q", "-f", "qcow2", *options, overlay], check=True)
    with pytest.raises(GuestError, match="names another file than its image"):
        check_overlay(overlay, root.base)


def test_overlay_with_its_data_elsewhere_is_refused(root: RootImage, tmp_path: Path) -> None:
    file, data = tmp_path / "overlay", tmp_path / "data"
    options = ("-o", f"data_file={data}", "-F", "qcow2", "-b", str(root.base))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, file], check=True)
    with pytest.raises(GuestError, match="names another file than its image"):
        check_overlay(file, root.base)


@pytest.mark.parametrize("content", [b"", b"QFI\xfb", b"QFI\xfb" + b"\xff" * 200, bytes(4096)])
def test_file_that_is_no_overlay_is_refused(root: RootImage, overlay: Path, content: bytes) -> None:
    overlay.write_bytes(content)
    with pytest.raises(GuestError, match="names another file than its image"):
        check_overlay(overlay, root.base)


def test_a_file_of_the_host_does_not_get_into_a_kept_guest(root: RootImage, overlay: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret" * 100_000)
    subprocess.run(["qemu-img", "rebase", "-u", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, overlay], check=True)
    with pytest.raises(GuestError):
        keep_overlay(root, overlay, root.base, tmp_path / "kept")
    assert b"secretsecret" not in (tmp_path / "kept").read_bytes()
