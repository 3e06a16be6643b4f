# SPDX-License-Identifier: GPL-2.0-only
"""Is a kernel's boot stub that has refused the CPU told from a guest that boots?"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from orchestrator.errors import GuestError, UnsupportedError
from orchestrator.guest.console import Console
from orchestrator.guest.diagnosis import BootStub, is_stopped_stub
from orchestrator.guest.monitor import Monitor

STOPPED = """
EIP=000002d2 EFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1
ES =1000 00010000 0000ffff 00009300
CS =1000 00010000 0000ffff 00009b00
CR0=00000010 CR2=00000000 CR3=00000000 CR4=00000000
"""
"""What QEMU 7.2 says of a CPU 486 in the boot stub of Debian's kernel for an i586."""

REFUSED = "Unable to boot - please use a kernel appropriate for your CPU.\n"


class Asked:
    """A monitor that answers with these registers; ``count`` is how often it was asked."""

    def __init__(self, registers: str) -> None:
        self.registers, self.count = registers, 0

    def human(self, line: str) -> str:
        assert line == "info registers"
        self.count += 1
        if not self.registers:
            raise GuestError("QEMU's monitor: human-monitor-command failed")
        return self.registers


def stub(monkeypatch: pytest.MonkeyPatch, folder: Path, printed: str, registers: str, silence: float) -> BootStub:
    monkeypatch.setattr("orchestrator.guest.diagnosis._STUB_SILENCE", silence)
    log = folder / "guest.console"
    log.write_text(printed)
    return BootStub(cast("Monitor", Asked(registers)), Console(log), "486")


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (
            "This kernel requires an i686 CPU, but only detected an i486 CPU.\n",
            "the kernel does not boot on CPU '486': This kernel requires an i686 CPU, but only detected an i486 CPU",
        ),
        (
            "This kernel requires the following features not present on the CPU:\nsse2 \n",
            "This kernel requires the following features not present on the CPU: sse2",
        ),
    ],
)
def test_its_words_are_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str, words: str) -> None:
    refused = stub(monkeypatch, tmp_path, printed + REFUSED, STOPPED, 3600.0)
    with pytest.raises(UnsupportedError) as error:
        refused.check()
    assert error.value.what.endswith(words)
    assert error.value.detail == tuple(line.strip() for line in (printed + REFUSED).splitlines())
    assert error.value.where == str(tmp_path / "guest.console")
    assert "--cpu" in error.value.hint


def test_one_that_prints_nothing_is_known_by_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="on CPU '486': its boot stub has stopped without a word"):
        stub(monkeypatch, tmp_path, "", STOPPED, 0.0).check()


@pytest.mark.parametrize(
    ("printed", "registers", "silence"),
    [
        (REFUSED, STOPPED.replace("HLT=1", "HLT=0"), 3600.0),
        (REFUSED, STOPPED.replace("CR0=00000010", "CR0=80050033"), 3600.0),
        (REFUSED, "", 3600.0),
        ("", STOPPED.replace("CS =1000 00010000", "CS =f000 000f0000"), 0.0),
        ("[    0.010738] L1TF: Kernel not compiled for PAE.\n", STOPPED, 0.0),
        ("", STOPPED, 3600.0),
    ],
    ids=["works", "in a kernel", "no answer", "in the BIOS", "a kernel has begun", "not silent for long"],
)
def test_a_guest_that_boots_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str, registers: str, silence: float
) -> None:
    stub(monkeypatch, tmp_path, printed, registers, silence).check()


def test_registers_that_make_no_sense_show_nothing() -> None:
    assert is_stopped_stub(STOPPED)
    assert not is_stopped_stub("unknown command: 'info registers'")
