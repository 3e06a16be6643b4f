# SPDX-License-Identifier: GPL-2.0-only
"""Does a guest find its work where the work looks, and no setting become anything but a value?"""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

from orchestrator.artifacts.boot_files import unattended_scripts, write_work
from orchestrator.files import Entry, archive

FIRST = archive([Entry.folder("bin")])


def test_the_work_comes_behind_the_initramfs(tmp_path: Path) -> None:
    initramfs = tmp_path / "initramfs"
    initramfs.write_bytes(FIRST)
    (tmp_path / "sites").write_bytes(b"\1\2\3")
    entries = [
        Entry.folder("sealed"),
        Entry.file("sealed/work.sh", (unattended_scripts() / "kpcache_driver.sh").read_bytes()),
        Entry.file("sealed/steps.sh", (unattended_scripts() / "steps.sh").read_bytes()),
        Entry.file("sealed/settings", b"probes=5\nseed=7\n"),
        Entry.file("sealed/sites", b"\1\2\3"),
    ]
    expected = FIRST + archive(entries)
    settings = {"probes": 5, "seed": 7}
    for sites in (b"\1\2\3", tmp_path / "sites"):
        whole = io.BytesIO()
        write_work(whole, initramfs, "kpcache_driver", settings, {"sites": sites})
        assert whole.getvalue() == expected


def test_a_setting_is_a_value_whatever_is_in_it(tmp_path: Path) -> None:
    initramfs = tmp_path / "initramfs"
    initramfs.write_bytes(FIRST)
    values: dict[str, int | str] = {"report": "/sys/a b", "stop": "$(touch broken); 'x'\n", "module": "", "warm": 3}
    whole = io.BytesIO()
    write_work(whole, initramfs, "command", values, {})
    text = whole.getvalue().partition(b"sealed/settings\0")[2].lstrip(b"\0").partition(b"070701")[0].rstrip(b"\0")
    (tmp_path / "settings").write_bytes(text)
    printed = 'printf "%s\\0" "$report" "$stop" "$module" "$warm"'
    argv = ["sh", "-c", f". ./settings; {printed}"]
    found = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True).stdout
    assert found.decode().split("\0")[:-1] == [str(value) for value in values.values()]
    assert not (tmp_path / "broken").exists()
