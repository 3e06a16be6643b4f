# SPDX-License-Identifier: GPL-2.0-only
"""Runs a program whose output is shown as it comes, for as long as it goes on printing."""

from __future__ import annotations

import codecs
import os
import selectors
import shlex
import subprocess
import sys
from collections.abc import Sequence

from orchestrator.errors import LabError
from orchestrator.process import Finished, kill_group

SILENCE = 3 * 3600.0
"""Seconds without any output after which a program counts as hung.

The tests print nothing while they build a kernel: five minutes on two idle cores, twenty beside 13 busy processes.
"""

_QUOTED = 30
_KILLED_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
_AT_ONCE = 65_536


def follow(argv: Sequence[str], *, silence: float = SILENCE) -> Finished:
    """Run a program to its end. It is killed, and LabError raised, after ``silence`` seconds without output.

    What it starts must end with it: ``contained`` sees to that.
    """
    child = subprocess.Popen(
        [*_KILLED_WITH_PARENT, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = _read(child, argv, silence)
        child.wait(silence)
    except subprocess.TimeoutExpired:
        raise _hung(argv, silence, "") from None
    finally:
        kill_group(child)
    return Finished(tuple(argv), child.returncode, stdout, stderr)


def _read(child: subprocess.Popen[bytes], argv: Sequence[str], silence: float) -> tuple[str, str]:
    assert child.stdout is not None
    assert child.stderr is not None
    decoder = codecs.getincrementaldecoder("utf-8")
    texts = {stream: (decoder("replace"), list[str]()) for stream in (child.stdout, child.stderr)}
    printed: list[str] = []
    with selectors.DefaultSelector() as selector:
        for stream in texts:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(silence)
            if not ready:
                raise _hung(argv, silence, "".join(printed))
            for stream, (decode, text) in texts.items():
                if stream not in [key.fileobj for key, _ in ready]:
                    continue
                piece = os.read(stream.fileno(), _AT_ONCE)
                if not piece:
                    selector.unregister(stream)
                words = decode.decode(piece, final=not piece)
                text.append(words)
                printed.append(words)
                sys.stdout.write(words)
                sys.stdout.flush()
    stdout, stderr = ("".join(text) for _, text in texts.values())
    return stdout, stderr


def _hung(argv: Sequence[str], silence: float, printed: str) -> LabError:
    detail = [f"$ {shlex.join(argv)}", *printed.splitlines()[-_QUOTED:]]
    return LabError(f"no output for {silence:g} s; it was killed", detail=detail)
