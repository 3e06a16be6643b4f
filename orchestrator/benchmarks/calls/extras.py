# SPDX-License-Identifier: GPL-2.0-only
"""What a hit of a kprobe costs besides its own handler: the size of the kernel's aggregator and of a post-handler.

``register_kprobe()`` puts an aggregator before every kprobe that could become a jump (``try_to_optimize_kprobe()`` in
kernel/kprobes.c of 6.1, with ``debug.kprobes-optimization`` off as well). The kernel boosts a kprobe without a
post-handler. Neither is what the documents of 2005 measured: a kernel of then had no aggregator for a single kprobe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.catalog.probes import Extra
from orchestrator.errors import EvidenceError
from orchestrator.probes.attachment import Attachment

_WHAT: Mapping[Extra, str] = {
    "aggregator": "the aggregator that the kernel puts before a kprobe that could become a jump (OPTPROBES)",
    "post_handler": "the post-handler that keeps it single-stepped, and what calls it",
}


def remove_extras(attachment: Attachment) -> Sequence[Extra]:
    """Take off whatever a hit passes besides the handler, and return it. Raises EvidenceError where it stays."""
    removed = attachment.extras()
    for extra in removed:
        attachment.take_off(extra)
    return removed


def extra_sizes(
    attachment: Attachment, value: float, timed: Callable[[], Sequence[float]], hits: int
) -> Mapping[Extra, float]:
    """The size of each extra, in instructions a hit: what a call costs less once it is taken off.

    ``value`` is a call's cost with all of them, ``timed`` measures samples of it anew, ``hits`` is how often a call
    hits. The post-handler goes first: the aggregator's part in calling it counts as the post-handler's. What takes no
    instruction is left out: the post-handler of a jprobe is never called. Raises EvidenceError where samples differ, or
    a call costs more without an extra.
    """
    sizes: dict[Extra, float] = {}
    for extra in attachment.extras():
        attachment.take_off(extra)
        samples = timed()
        rest = samples[0]
        if set(samples) != {rest} or rest > value:
            raise EvidenceError(
                f"a call costs {value:g} instructions, and without its {extra} {' or '.join(f'{s:g}' for s in samples)}"
            )
        if rest < value:
            sizes[extra] = (value - rest) / hits
        value = rest
    return sizes


def removal_notes(removed: Sequence[Extra]) -> Iterator[str]:
    """A note for the report on each extra that the cell's hits were rid of."""
    for extra in removed:
        yield f"without {_WHAT[extra]}: the module takes it off the registered kprobe"


def extra_notes(extras: Sequence[Extra], sizes: Mapping[Extra, float] | None) -> Iterator[str]:
    """A note for the report on each extra of a cell's hits; without ``sizes``, their size was not measured."""
    for extra in extras:
        if sizes is None:
            where = "where calls do not scatter, clock 'instructions' measures what that costs"
            yield f"a hit passes {_WHAT[extra]}; {where}"
        elif extra in sizes:
            yield f"{sizes[extra]:g} instructions of a hit are {_WHAT[extra]}"
