# SPDX-License-Identifier: GPL-2.0-only
"""The log of steps: what the lab did, how long it took, and what failed, in one nested line per step.

    # seconds since 2026-11-22T03:48:48+00:00
       0.001  boot guest on pentium4 ...
       0.084    start QEMU (0.083 s)
       7.001    wait for the agent (6.912 s)
       7.001  boot guest on pentium4 (7.000 s)
       7.120  run insmod /tmp/lab_kprobe.ko (0.118 s, status 1)

A step is written when it ends, or FAILED with the first line of its error; one with nested steps also when the first of
them begins. The first column is the time of writing. A line that begins with ``$`` is a program of the host. Without an
open log a step costs a microsecond.

A step of any thread is written to all open logs of the process. Each thread nests its own steps. A line carries the
name that ``step_source`` gives its thread, else the name of a thread other than the main one. Another process, forked
or not, opens its own logs, or sends the lines of ``own_steps`` to ``pass_on`` here.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.plain_text import cut, plain_line

LOG_NAME = "lab.log"
"""The log's file name in the directory of a run or a test, beside the console logs."""

_LINE_MAX = 300  # characters of a step's text: a command may have 64 KiB

_current: ContextVar[Step | None] = ContextVar("step", default=None)
_source: ContextVar[str | None] = ContextVar("source", default=None)
_innermost: dict[int, Step] = {}  # the innermost logged step of each thread
_lock = threading.Lock()
_sinks: tuple[_Sink, ...] = ()


@contextlib.contextmanager
def step_log(file: Path) -> Iterator[None]:
    """Append the steps of all threads to ``file``; a line that cannot be written is lost. Raises OSError."""
    with file.open("a", buffering=1, encoding="utf-8") as log:
        log.write(f"# seconds since {datetime.now(UTC).isoformat(timespec='seconds')}\n")
        with step_echo(lambda line: print(line, file=log)):
            yield


def step_echo(write: Callable[[str], None]) -> AbstractContextManager[None]:
    """Pass each line of the log to ``write``, without a newline, one at a time, from any thread."""
    return _open_sink(_Sink(write))


def own_steps(source: str, take: Callable[[str], None]) -> AbstractContextManager[None]:
    """Pass each line of one source, without its time and name, to ``take``: for a log in another process."""
    return _open_sink(_Sink(take, source))


def pass_on(source: str, line: str) -> None:
    """Write a line that another process has just logged, as of ``source``."""
    with _lock:
        for sink in _sinks:
            if sink.source is None:
                sink.write(f"{_short(source)}: {_short(line)}")


@contextlib.contextmanager
def _open_sink(sink: _Sink) -> Iterator[None]:
    global _sinks
    with _lock:
        _sinks = (*_sinks, sink)
    try:
        yield
    finally:
        with _lock:
            _sinks = tuple(other_sink for other_sink in _sinks if other_sink is not sink)


@contextlib.contextmanager
def step_source(name: str) -> Iterator[None]:
    """Put ``name`` before this thread's lines, and nest its steps anew: for one of several parallel boots."""
    source, current = _source.set(name), _current.set(None)
    try:
        yield
    finally:
        _source.reset(source)
        _current.reset(current)


def running_steps() -> list[str]:
    """The innermost step of each thread, while a log is open: ``boot1: start QEMU``."""
    return [running.title for running in list(_innermost.values())]


class Step:
    """One step, from entry to exit. Its text is ``what`` and the ``words``, quoted as in a shell."""

    def __init__(self, what: str, words: tuple[str, ...]) -> None:
        self._what, self._words = what, words
        self._note = ""
        self._source = ""
        self._sinks: tuple[_Sink, ...] = ()
        self._begun = 0.0
        self._parent: Step | None = None
        self._announced = False

    def note(self, text: str) -> None:
        self._note = f", {text}"

    def __enter__(self) -> Self:
        self._sinks = _sinks
        if self._sinks:
            self._parent = _current.get()
            if self._parent is not None and not self._parent._announced:
                self._parent._announced = True
                self._parent._write(" ...")
            _current.set(self)
            self._source = _source_name()
            _innermost[threading.get_ident()] = self
            self._begun = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sinks:
            _current.set(self._parent)
            if self._parent is None:
                _innermost.pop(threading.get_ident(), None)
            else:
                _innermost[threading.get_ident()] = self._parent
            seconds = f"{time.monotonic() - self._begun:.3f} s"
            if error is None:
                self._write(f" ({seconds}{self._note})")
            else:
                reason = next(iter(str(error).splitlines()), "") or type(error).__name__
                self._write(f" FAILED ({seconds}): {reason}")

    @property
    def title(self) -> str:
        return f"{self._source}{self._text}"

    @property
    def _text(self) -> str:
        return _short(" ".join([self._what, shlex.join(self._words)] if self._words else [self._what]))

    def _write(self, end: str) -> None:
        line, source = f"{'  ' * self._depth()}{self._text}{_short(end)}", _source.get()
        with _lock:
            for sink in self._sinks:
                if sink not in _sinks:
                    continue
                if sink.source is None:
                    sink.write(f"{_source_name()}{line}")
                elif sink.source == source:
                    sink.take(line)

    def _depth(self) -> int:
        return 0 if self._parent is None else self._parent._depth() + 1


def step(what: str, *words: str) -> Step:
    """A step to enter with ``with``: ``step("run", *argv)``. Control characters are escaped, long lines cut."""
    return Step(what, words)


class _Sink:
    def __init__(self, take: Callable[[str], None], source: str | None = None) -> None:
        self.take, self.source = take, source
        self._begun = time.monotonic()

    def write(self, line: str) -> None:
        # A full disk or a closed file must not fail the step.
        with contextlib.suppress(OSError, ValueError):
            self.take(f"{time.monotonic() - self._begun:8.3f}  {line}")


def _close_in_child() -> None:
    """Close the logs in a forked child, where the lock may be held by a thread that the child lacks."""
    global _sinks, _lock
    _sinks, _lock = (), threading.Lock()
    _innermost.clear()
    _current.set(None)


os.register_at_fork(after_in_child=_close_in_child)


def _source_name() -> str:
    name = _source.get()
    if name is None and threading.current_thread() is not threading.main_thread():
        name = threading.current_thread().name
    return "" if name is None else f"{_short(name)}: "


def _short(text: str) -> str:
    return plain_line(cut(text, _LINE_MAX, "…"))
