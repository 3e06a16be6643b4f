# SPDX-License-Identifier: GPL-2.0-only
"""Is a host without pseudo-terminals told so, before a guest is started?"""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from typing import NoReturn

import pytest

from orchestrator.errors import HostError
from orchestrator.guest.guest import Guest, Watch
from orchestrator.guest.terminal import attend


def test_a_host_without_pseudo_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> NoReturn:
        raise OSError(errno.ENOENT, "No such file or directory")

    def start(terminal: str, watch: Watch) -> Guest:
        pytest.fail("a guest was started")

    monkeypatch.setattr(os, "openpty", none_left)
    with pytest.raises(HostError, match="needs a pseudo-terminal, and this host gives none") as raised:
        attend(start, lambda guest: nullcontext())
    assert raised.value.hint == "as root: mount -t devpts devpts /dev/pts"
