# SPDX-License-Identifier: GPL-2.0-only
"""Signals that wait for their turn among a crew's events.

One that raised wherever the thread happens to be could lose an event, or leave a lock held that a boot needs: then
nothing would ever end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_in_turn(put: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Hand what a signal would do to ``put``, for as long as the context lasts; what is put then raises."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal raises here
        return
    handlers = {number: signal.getsignal(number) for number in _INTERRUPTIONS}
    raising = {number: handler for number, handler in handlers.items() if callable(handler)}

    def defer(number: int, frame: FrameType | None) -> None:
        put(partial(raising[signal.Signals(number)], number, frame))

    for number in raising:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
