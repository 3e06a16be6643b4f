# SPDX-License-Identifier: GPL-2.0-only
"""Does doctor judge hosts rightly, and print what it found so that a person and a pipe can read it?"""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator import doctor
from orchestrator.artifacts import debian_mirror
from orchestrator.catalog.debian_release import debian
from orchestrator.doctor import Finding, Status, exit_status, render
from orchestrator.errors import HostError
from orchestrator.guest.accelerator import KvmSpeed
from orchestrator.host_packages import INSTALL_COMMAND, Requirement, load_requirements, parse_requirements


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c) ...", Status.OK),
        ("QEMU emulator version 7.1.0", Status.WARNING),
        ("QEMU emulator version 7.0.0", Status.WARNING),
        ("QEMU emulator version 6.2.0", Status.MISSING),
        ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", Status.OK),
        ("QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)", Status.OK),
        ("QEMU emulator version 9.2.0", Status.WARNING),
        ("QEMU emulator version 10.2.1", Status.WARNING),
        ("", Status.MISSING),
    ],
)
def test_qemu_versions(answer: str, status: Status) -> None:
    assert doctor.qemu_version(answer).status is status


def test_a_mirror_and_keys_are_what_guests_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keyring = tmp_path / "keyring.gpg"
    release = debian().model_copy(update={"keyrings": [str(keyring)]})
    monkeypatch.setattr(debian_mirror, "debian", lambda: release)
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", "http://me:secret@mirror.invalid/debian")
    finding = doctor.guest_packages()
    assert (finding.status, "debian-archive-keyring" in finding.remedy) == (Status.MISSING, True)
    keyring.touch()
    finding = doctor.guest_packages()
    assert (finding.status, finding.text.split(" (")[0]) == (Status.OK, "Debian 12 from http://mirror.invalid/debian")
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", "nonsense")
    assert doctor.guest_packages().status is Status.MISSING


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
def test_a_host_without_a_mirror_of_debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "apt.conf").write_text('Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "/dev/null";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.delenv("ORCHESTRATOR_DEBIAN_MIRROR", raising=False)
    monkeypatch.setattr(debian_mirror, "default_mirror", lambda: None)
    finding = doctor.guest_packages()
    assert finding.status is Status.MISSING
    assert "ORCHESTRATOR_DEBIAN_MIRROR=" in finding.remedy
    monkeypatch.setattr(debian_mirror, "default_mirror", lambda: "http://mirror.invalid/debian")
    monkeypatch.setattr(doctor, "archive_keyring", lambda: tmp_path)
    text = "Debian 12 from http://mirror.invalid/debian (mmdebstrap's default, not checked online)"
    assert doctor.guest_packages() == Finding("guests' packages", Status.OK, text)


def test_a_slow_kvm_is_a_warning_that_keeps_its_reason() -> None:
    finding = doctor.kvm(KvmSpeed(usable=False, reason="only 2 million"))
    assert (finding.status, finding.text) == (Status.WARNING, "only 2 million")
    assert doctor.kvm(KvmSpeed(usable=True, reason="")).status is Status.OK


@given(st.integers(min_value=0, max_value=1 << 40))
def test_memory_is_judged_by_what_is_available(kilobytes: int) -> None:
    finding = doctor.memory(f"MemTotal: 99999999 kB\nMemAvailable: {kilobytes:>9} kB\nMemFree: 1 kB\n")
    assert (finding.status is Status.MISSING) == (kilobytes < 512 * 1024)
    assert (finding.status is Status.OK) == (kilobytes >= 1024 * 1024)


def test_other_processors_are_refused() -> None:
    assert doctor.processor("aarch64", 8).status is Status.MISSING
    assert doctor.processor("x86_64", 1) == Finding("processor", Status.OK, "x86_64, 1 usable core")


def test_a_folder_that_can_be_made_is_not_made(tmp_path: Path) -> None:
    finding = doctor.folder("cache folder", tmp_path / "a" / "b", "ORCHESTRATOR_CACHE")
    assert finding.status in (Status.OK, Status.WARNING)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finding = doctor.folder("cache folder", tmp_path / "file" / "b", "ORCHESTRATOR_CACHE")
    assert finding.status is Status.MISSING
    assert "ORCHESTRATOR_CACHE=" in finding.remedy


def test_missing_programs_name_their_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = {finding.name: finding for finding in doctor.programs()}
    assert findings["python"].status is Status.OK
    assert findings["qemu-system-x86_64"].status is Status.MISSING
    assert findings["qemu-system-x86_64"].remedy.endswith(" qemu-system-x86")


def test_a_qemu_without_the_machine_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "qemu-system-x86_64"
    fake.write_text('#!/bin/sh\ncase $1 in -machine) echo "pc-i440fx-9.9  Standard PC" ;; -L) echo /nowhere ;; esac\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = {finding.name: finding for finding in doctor.qemu()}
    assert "pc-i440fx-7.0" in findings["machine type"].text
    assert "/nowhere" in findings["firmware"].text
    assert {finding.status for finding in findings.values()} == {Status.MISSING}


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
def test_apt_sources_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb nonsense\n")
    (tmp_path / "apt.conf").write_text(f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    finding = doctor.guest_packages()
    assert finding.status is Status.MISSING
    assert "sources.list" in finding.text


def test_examining_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    names = [finding.name for finding in doctor.examine()]
    assert len(names) == len(set(names))
    assert {"processor", "python", "guests' packages", "KVM", "memory", "cache folder"} <= set(names)


FINDINGS = (
    Finding("gcc", Status.OK, "gcc 12 [Debian]"),
    Finding("qemu-system-x86_64", Status.MISSING, "not found; " + "runs guests " * 12, "as root: apt-get install it"),
)


def test_rendered_in_a_pipe_it_is_plain_and_unwrapped() -> None:
    console = Console(file=io.StringIO(), width=40)
    render(FINDINGS, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "ok       gcc                 gcc 12 [Debian]"
    assert lines[2].strip() == "→ as root: apt-get install it"
    assert "\x1b" not in "".join(lines)


def test_what_installs_all_packages_comes_last() -> None:
    console = Console(file=io.StringIO(), width=40)
    findings = [Finding("one", Status.MISSING, "not found", packages=(name,)) for name in ("gcc", "make", "gcc")]
    render(findings, console)
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().splitlines()[-1]
    assert last == f"All missing programs and files, as root: apt-get update && {INSTALL_COMMAND} gcc make"


def test_rendered_on_a_terminal_it_has_colours() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    render(FINDINGS, console)
    assert isinstance(console.file, io.StringIO)
    assert "\x1b[1;31mmissing" in console.file.getvalue()


def test_exit_status() -> None:
    assert exit_status(FINDINGS) == HostError.exit_status == 3
    assert exit_status([FINDINGS[0], Finding("KVM", Status.WARNING, "slow")]) == 0
    assert exit_status([]) == 0


def test_the_list_that_travels_with_the_package() -> None:
    requirements = {requirement.need: requirement for requirement in load_requirements()}
    assert requirements["qemu-system-x86_64"].package == "qemu-system-x86"
    assert sum(requirement.is_python for requirement in requirements.values()) == 1


def test_locations(tmp_path: Path) -> None:
    library = tmp_path / "libelf.so.1"
    requirement = Requirement(str(library), "libelf1", "")
    assert requirement.location() is None
    library.touch()
    assert requirement.location() == library
    assert Requirement("sh", "dash", "").location() == Path(shutil.which("sh") or "")


def test_a_broken_line_is_named() -> None:
    with pytest.raises(HostError, match=r"^list:2: ") as caught:
        parse_requirements("# need package why\ngcc gcc\n", "list")
    assert caught.value.detail == ("gcc gcc",)


@given(st.lists(st.tuples(*[st.text(st.characters(categories=["L", "N"]), min_size=1)] * 3)))
def test_every_written_line_is_read(rows: list[tuple[str, str, str]]) -> None:
    text = os.linesep.join(["# comment", "", *("  ".join(row) for row in rows)])
    assert parse_requirements(text, "list") == tuple(Requirement(*row) for row in rows)
