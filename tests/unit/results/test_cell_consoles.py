# SPDX-License-Identifier: GPL-2.0-only
"""Which guest a cell was measured in, and what it printed last, by the run's own files."""

from __future__ import annotations

from pathlib import Path

from orchestrator.results.run_files import LAST_LINES, consoles, last_lines

LOG = """\
# seconds since 2026-11-22T14:29:20+00:00
   1.000  boot1: boot debian-686 on pentium4 ...
   1.152  boot1:   restore guest1-pentium4-debian-686 on pentium4 ...
   5.324  boot1:   restore guest1-pentium4-debian-686 on pentium4 (4.172 s)
   7.000  boot1:   measure p4/none/noop (0.395 s)
   7.500  boot2:   boot guest1-athlon-debian-686 on athlon ...
   9.000  boot1:   measure p4/kprobe/noop FAILED (0.847 s): the guest's kernel panicked
   9.100  boot1:   boot guest2-pentium4-debian-686 on pentium4 (1.000 s)
   9.500  boot2:   measure athlon/none/noop (1.624 s)
   9.700  boot1:   measure p4/jprobe/noop (1.624 s)
   9.800  boot3:   measure no/guest/yet (1.624 s)
"""


def test_a_cell_has_the_console_of_its_guest(tmp_path: Path) -> None:
    (tmp_path / "lab.log").write_text(LOG)
    assert consoles(tmp_path) == {
        "p4/none/noop": "boot1/guest1-pentium4-debian-686.console",
        "p4/kprobe/noop": "boot1/guest1-pentium4-debian-686.console",
        "p4/jprobe/noop": "boot1/guest2-pentium4-debian-686.console",
        "athlon/none/noop": "boot2/guest1-athlon-debian-686.console",
    }


def test_the_last_lines_are_plain(tmp_path: Path) -> None:
    (tmp_path / "lab.log").write_text(LOG)
    (tmp_path / "boot1").mkdir()
    lines = "".join(f"line {number}\r\n" for number in range(5000))
    console = tmp_path / "boot1" / "guest1-pentium4-debian-686.console"
    console.write_bytes(lines.encode() + b"\x1b[31mKernel\x1b[0m panic\xff \x07\n\n")
    found = last_lines(tmp_path, ["p4/kprobe/noop", "athlon/none/noop", "unknown"])
    assert list(found) == ["p4/kprobe/noop"]
    shown = found["p4/kprobe/noop"].split("\n")
    assert len(shown) == LAST_LINES
    assert shown[-2:] == ["line 4999", "Kernel panic\N{REPLACEMENT CHARACTER} \\x07"]
    assert all(line.isprintable() for line in shown)


def test_a_link_out_of_the_run_is_not_followed(tmp_path: Path) -> None:
    """A run's directory from elsewhere must not put the reader's own files into what is sent to a CI system."""
    secret = tmp_path / "secret"
    secret.write_text("a private key\n")
    run = tmp_path / "run"
    (run / "boot1").mkdir(parents=True)
    (run / "lab.log").write_text(LOG)
    (run / "boot1" / "guest1-pentium4-debian-686.console").symlink_to(secret)
    assert last_lines(run, ["p4/kprobe/noop"]) == {}


def test_without_a_log_nothing_is_known(tmp_path: Path) -> None:
    assert consoles(tmp_path) == {}
    assert last_lines(tmp_path, ["a"]) == {}
