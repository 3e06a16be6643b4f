# SPDX-License-Identifier: GPL-2.0-only
"""UTF-8 in every locale: files, their names, and what other programs write and read. A terminal keeps its encoding."""

from __future__ import annotations

import codecs
import io
import locale
import os
import sys


def use_utf8() -> None:
    """Start this program again in Python's UTF-8 mode if the locale has another encoding; pipes and files are UTF-8.

    In another encoding the same source would have another key in the cache. ``lab`` starts Python in this mode.
    """
    encoding = locale.getencoding()
    if not sys.flags.utf8_mode and codecs.lookup(encoding).name != "utf-8":
        os.environ |= {"PYTHONUTF8": "1", "PYTHONIOENCODING": f"{encoding}:backslashreplace"}
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same program
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8")
