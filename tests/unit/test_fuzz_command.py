# SPDX-License-Identifier: GPL-2.0-only
"""Does the command that fuzzes say in a sentence why it does not?"""

from __future__ import annotations

import sys

import pytest
from fuzz.__main__ import main


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["no-such"], "there is no target no-such; there are frames, "),
        (["--runs", "0"], "found '0'; a whole number above 0"),
        (["--runs", "1e6"], "found '1e6'; a whole number above 0"),
        (["--seconds", "-1"], "found '-1'; a whole number above 0"),
        (["kallsyms"], "there is no atheris: pip install -c constraints.txt -e '.[fuzz]', with Python 3.11 to 3.13"),
    ],
)
def test_why_nothing_is_fuzzed(
    argv: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert f"error: {sentence}" in capsys.readouterr().err.replace("argument --runs: ", "").replace(
        "argument --seconds: ", ""
    )
