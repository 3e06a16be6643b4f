# SPDX-License-Identifier: GPL-2.0-only
"""The allowed values of a ``benchmark`` with many probes."""

from __future__ import annotations

from orchestrator.experiment.file.problems import mismatch

MOST_PROBES = 50_000
_MOST_SIZES = 20


def sizes(value: object) -> object:
    """A list of up to 20 different hundreds, from 100 to 50 000: probes are registered and enabled in equal steps."""
    known = value if isinstance(value, list | tuple) else ()
    good = all(isinstance(one, int) and not isinstance(one, bool) for one in known) and 1 <= len(known) <= _MOST_SIZES
    if not good or any(not 100 <= one <= MOST_PROBES or one % 100 for one in known) or len(set(known)) != len(known):
        raise mismatch(
            value,
            f"expected a list of up to {_MOST_SIZES} different hundreds from 100 to {MOST_PROBES}, as [1000, 5000]",
        )
    return tuple(known)
