# SPDX-License-Identifier: GPL-2.0-only
"""Which kernels of the catalogue have the options that probes need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from orchestrator.catalog.data import Fact, read
from orchestrator.catalog.kernels import Arch, kernels

_NAMED = 2


class _Options(Fact):
    groups: dict[str, list[str]]
    options: dict[str, list[list[str]]]


@lru_cache(maxsize=1)
def kernels_by_option() -> Mapping[str, Sequence[str]]:
    """The kernels that are known to have an option, those to name first in front."""
    listed = _Options.model_validate(read("kernel_options.yaml")).options
    return {option: [name for group in groups for name in group] for option, groups in listed.items()}


def without_option(option: str, needed: Sequence[str], arch: Arch) -> str:
    """The sentence that a kernel lacks an option, with kernels that have all of the ``needed`` ones.

    They are of its architecture where there are any such.
    """
    sentence = f"this kernel was built without {option}"
    known = kernels_by_option()
    having = [known[one] for one in needed if one in known]
    able = [name for name in known.get(option, ()) if all(name in names for names in having)]
    named = ([name for name in able if kernels()[name].arch == arch] or able)[:_NAMED]
    if not named:
        return sentence
    return f"{sentence}; {' and '.join(named)} {'has' if len(named) == 1 else 'have'} it"
