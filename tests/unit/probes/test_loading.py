# SPDX-License-Identifier: GPL-2.0-only
"""Is a module whose init function does not return given up in time, and named?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import probes
from orchestrator.errors import CommandTimeout, GuestError, GuestHang
from orchestrator.guest.guest import Guest
from orchestrator.probes import arming, evidence, final_form, loading
from orchestrator.probes.loading import RefusedError, load
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols

POINT = ProbePoint("vfs_read", 0, 0xC1000000, bytes(range(16)))
HINT = "kill -CONT 1"


class Hanging:
    """A guest in which insmod does not end; it answers with its ``stack``, None where insmod could be killed."""

    def __init__(self, error: GuestError, pid: int | None = None, stack: str | None = None) -> None:
        self.error, self.pid, self.stack = error, pid, stack
        self.console = SimpleNamespace(length=lambda: 0)
        self.limits: list[float] = []

    def put(self, content: Path, target: str) -> None:
        assert target == f"/tmp/{content.name}"

    def run(self, argv: Sequence[str], *, time_limit: float = 0.0) -> SimpleNamespace:
        if "insmod" in argv:
            self.limits.append(time_limit)
            raise self.error
        assert argv[:2] == ["sh", "-c"]
        return SimpleNamespace(text="" if self.stack is None else f"\n{self.stack}")


class Refusing:
    """A guest whose kernel refuses a module with these words in its log."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.console = SimpleNamespace(length=lambda: 0)

    def put(self, content: Path, target: str) -> None:
        assert target == f"/tmp/{content.name}"

    def run(self, argv: Sequence[str], *, time_limit: float = 0.0) -> SimpleNamespace:
        del time_limit
        said = b"insmod: can't insert '/tmp/mine.ko': Invalid argument"
        return SimpleNamespace(status=int(argv[0] == "insmod"), text=f"[    1.5] mine: {self.words}\n", stderr=said)

    def check_console(self, mark: int) -> None:
        assert mark == 0


@pytest.mark.parametrize(
    ("given", "quoted", "hint"),
    [
        ("1,2,3", "1", "the kernel quotes the first value alone: list=1,2,3 has too many values, or a wrong one"),
        ("many", "many", ""),
        ("1", "1", ""),
    ],
)
def test_all_of_a_refused_list_is_quoted(given: str, quoted: str, hint: str) -> None:
    guest = Refusing(f"`{quoted}' invalid for parameter `list'")
    with pytest.raises(RefusedError) as refused:
        load(cast("Guest", guest), "mine", Path("mine.ko"), parameters={"list": given})
    assert (refused.value.reason, refused.value.hint) == (guest.words, hint)


@pytest.mark.parametrize("kind", [GuestHang, CommandTimeout])
def test_the_init_function_is_to_blame(kind: type[GuestError]) -> None:
    guest = Hanging(kind("insmod did not end within 3 s; its CPU is in sleepy_init [sleepy]", hint=HINT))
    with pytest.raises(kind) as error:
        load(cast("Guest", guest), "sleepy", Path("sleepy.ko"), time_limit=3.0)
    assert guest.limits == [3.0]
    assert error.value.what == (
        "the init function of module sleepy has not returned: insmod did not end within 3 s; "
        "its CPU is in sleepy_init [sleepy]"
    )
    assert "--timeout of exec" in error.value.hint


def test_an_init_that_cannot_be_killed_is_where_its_stack_says() -> None:
    stack = "[<0>] msleep+0x2e/0x50\n[<0>] hang_init+0x13/0x1000 [hang]\n[<0>] do_one_initcall+0x56/0x220\n"
    guest = Hanging(CommandTimeout("insmod did not end within 3 s and was killed"), stack=stack)
    with pytest.raises(CommandTimeout) as error:
        load(cast("Guest", guest), "hang", Path("hang.ko"), time_limit=3.0, insmod=loading.WATCHED)
    assert error.value.what == (
        "the init function of module hang has not returned: insmod did not end within 3 s; it is in hang_init [hang]"
    )
    assert [line.strip() for line in error.value.detail] == stack.splitlines()


def test_a_stopped_qemu_is_to_blame_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Hanging(GuestHang("QEMU is stopped", hint=HINT), pid=os.getpid())
    monkeypatch.setattr(loading, "is_stopped", lambda process: process == os.getpid())
    with pytest.raises(GuestHang) as error:
        load(cast("Guest", guest), "sleepy", Path("sleepy.ko"))
    assert (error.value.what, error.value.hint) == ("QEMU is stopped", HINT)


def test_a_cell_s_module_has_the_cell_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Hanging(GuestHang("insmod did not end"))
    for module, name in ((evidence, "observe"), (evidence, "check_untouched"), (final_form, "allow_optimisation")):
        monkeypatch.setattr(module, name, lambda *_: None)
    probe = Module("lab_kprobe", Path("lab_kprobe.ko"), "key", None)
    attached = arming.attached(
        cast("Guest", guest), probes()["kprobe"], probe, POINT, cast("Symbols", None), lambda: 7.0
    )
    with suppress(GuestHang), attached:
        pass
    assert guest.limits == [7.0]
