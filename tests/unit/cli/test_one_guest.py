# SPDX-License-Identifier: GPL-2.0-only
"""Does the guest of one command leave its vmcore and its error, whatever has become of its kernel's tree meanwhile?"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import create_autospec

import pytest
from user_trees import build_tree

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.cli.one_guest import GuestChoice
from orchestrator.errors import GuestPanic
from orchestrator.guest.guest import Guest


def test_a_tree_that_changed_while_the_guest_ran_hides_neither_panic_nor_vmcore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, core = build_tree(tmp_path / "linux"), tmp_path / "panic.vmcore"
    choice, context = GuestChoice({"kernel": str(tree)}, core=core), BuildContext(Cache(tmp_path / "cache"), say=print)
    core.write_bytes(b"")
    guest = create_autospec(Guest, instance=True)
    guest.core_file = core

    def panicking() -> None:
        with choice.leaving_core(context, guest):
            (tree / "arch/x86/boot/bzImage").unlink()
            raise GuestPanic("it died")

    with pytest.raises(GuestPanic, match="it died"):
        panicking()
    guest.keep_core.assert_called_once_with()
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith(f"vmcore: {core}")
    assert "to open it: " in said[1]
    assert str(core) in said[1]
