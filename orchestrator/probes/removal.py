# SPDX-License-Identifier: GPL-2.0-only
"""Takes a probe out when what was done with it has ended, well or not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from orchestrator.errors import CommandFailed, EvidenceError, GuestError, LabError, NotEntered, UnsupportedError


@contextlib.contextmanager
def removed(remove: Callable[[], None]) -> Iterator[None]:
    """Remove a probe at the end. Raises what ``remove`` raises where the guest is used on."""
    try:
        yield
    except (NotEntered, UnsupportedError):
        # Nothing is in trouble. The guest is used on, so the probe must be proved gone as one that was hit.
        remove()
        raise
    except LabError as error:
        # The first error is the one to report. A guest in trouble gets no commands.
        if not isinstance(error, GuestError):
            with contextlib.suppress(CommandFailed, EvidenceError):
                remove()
        raise
    remove()
