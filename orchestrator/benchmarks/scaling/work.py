# SPDX-License-Identifier: GPL-2.0-only
"""The files that each script of many probes needs besides its module, and the reader of its output."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.benchmarks.scaling.driver_output import read_driver
from orchestrator.benchmarks.scaling.events_output import TARGET, read_events
from orchestrator.benchmarks.scaling.figures import ScalingFigures
from orchestrator.benchmarks.scaling.load_output import read_load
from orchestrator.benchmarks.scaling.model_output import read_model
from orchestrator.benchmarks.scaling.sites import (
    EVENT_SPARE,
    SPARE,
    choose_addresses,
    choose_sites,
    choose_sites_by_name,
)
from orchestrator.catalog.kernels import Arch
from orchestrator.errors import EvidenceError
from orchestrator.paths import data_dir
from orchestrator.probes.symbols import Symbols
from orchestrator.run.kernel_functions import KernelFunctions

_EVENT_SCRIPTS = ("kpcache_events", "kpcache_load")
_WORDS: Mapping[Arch, str] = {"i386": "<I", "x86_64": "<Q"}


@dataclass(frozen=True)
class ScalingWork:
    """Files of the work, by name, and the reader of its output: it takes that and the number of probes."""

    files: Mapping[str, bytes]
    read: Callable[[str, int], ScalingFigures]


def scaling_work(script: str, lists: KernelFunctions, arch: Arch, probes: int, seed: int) -> ScalingWork:
    """The work of a script on ``probes`` probes. Raises UnsupportedError where the kernel has too few functions."""
    if script == "kpcache_model":
        return ScalingWork({"sites": _binary(choose_addresses(lists.symbols, probes, seed), arch)}, read_model)
    events = script in _EVENT_SCRIPTS
    choose = choose_sites_by_name if script == "kpcache_load" else choose_sites
    sites = choose(lists.symbols, lists.blacklist, probes, seed, EVENT_SPARE if events else SPARE)
    if not events:
        return ScalingWork({"sites": _binary(sites, arch)}, read_driver)
    target = Symbols(lists.symbols).address(TARGET[arch])
    sites = [target, *(site for site in sites if site != target)]
    addresses = "".join(f"{site:x}\n" for site in sites)
    files = {"sites": _binary(sites, arch), "addresses": addresses.encode()}
    if script == "kpcache_events":
        return ScalingWork(files, read_events)
    loads = data_dir("images") / "unattended" / "loads"
    return ScalingWork({**files, **{file.name: file.read_bytes() for file in sorted(loads.iterdir())}}, read_load)


def _binary(sites: Sequence[int], arch: Arch) -> bytes:
    word = struct.Struct(_WORDS[arch])
    for site in sites:
        if site >> 8 * word.size:
            raise EvidenceError(f"the guest's kernel lists a function at {site:#x}, where {arch} has no memory")
    return b"".join(map(word.pack, sites))
