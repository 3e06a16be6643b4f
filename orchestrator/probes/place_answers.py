# SPDX-License-Identifier: GPL-2.0-only
"""What guests' kernels have answered about places that can never have a probe, kept in the cache.

Which instructions take a kprobe, and which of these a jump, changes from release to release, and with what the kernel
patches at boot for a CPU. A guest tries it once; then a plan, a dry run and a disassembly know it without one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.module_code import loaded_code
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import LabError
from orchestrator.probes.placement import FunctionPlaces, Possibility, Technique, impossible, technique_of
from orchestrator.version import __version__

_KIND, _FILE = "place-answers", "reason.txt"
_LONGEST = 4096
_ANSWERED: tuple[Technique, ...] = ("kprobe", "optimised")
"""The techniques that a guest's kernel is asked about; the image answers for the others."""

KnownAnswer = Callable[[ProbeKind, str, int], str | None]
"""Why a kind of probe can never be at an offset of a function; None if no guest has said so."""


def _of(technique: Technique) -> str:
    """The name of all kinds that are made by a technique; a kind may be called like it."""
    return f"all {technique}"


@dataclass(frozen=True)
class PlaceAnswers:
    """The answers of guests with one kernel and CPU, which load these of the kernel's own modules.

    Where it is not known what code has a function, nothing is kept of it, and nothing known.
    """

    cache: Cache
    kernel: Kernel
    cpu: str
    modules: Sequence[str] = ()

    def keep(self, kind: ProbeKind, symbol: str, offset: int, reason: str) -> None:
        """Keep a guest's reason why a kind of probe cannot be at a place."""
        technique = technique_of(kind)
        # All kinds that the kernel has to optimise are refused alike; of others a kind has reasons of its own.
        self._keep(_of(technique) if technique == "optimised" else kind.name, symbol, offset, reason)

    def known(self, kind: ProbeKind, symbol: str, offset: int) -> str | None:
        """The reason that a guest has given why a kind of probe cannot be at a place; None if no guest has."""
        technique = technique_of(kind)
        names = [kind.name, *([] if technique is None else [_of(technique)])]
        return next(filter(None, (self._known(name, symbol, offset) for name in names)), None)

    def keep_all(self, before: FunctionPlaces, answered: FunctionPlaces) -> None:
        """Keep the refusals that a guest has ``answered`` of places of which nothing was known ``before``."""
        for place, answer in zip(before.places, answered.places, strict=True):
            for technique in _ANSWERED:
                verdict = answer.verdicts[technique]
                if place.verdicts[technique].is_possible is None and verdict.is_possible is False:
                    self._keep(_of(technique), answered.symbol, place.offset, verdict.reason or "")

    def known_of(self, function: FunctionPlaces) -> FunctionPlaces:
        """A function's places with the refusals that guests have answered."""
        places = []
        for place in function.places:
            possibilities: dict[Technique, Possibility] = {}
            for technique in _ANSWERED:
                if place.verdicts[technique].is_possible is None:
                    reason = self._known(_of(technique), function.symbol, place.offset)
                    possibilities |= {} if reason is None else {technique: impossible(reason)}
            places.append(replace(place, verdicts={**place.verdicts, **possibilities}))
        return replace(function, places=places)

    def _keep(self, probe: str, symbol: str, offset: int, reason: str) -> None:
        def write(folder: Path) -> None:
            (folder / _FILE).write_text(reason[:_LONGEST], encoding="utf-8")

        inputs = self._inputs(probe, symbol, offset)
        if inputs is None:
            return
        label = f"{probe} at {symbol}+{offset:#x} of {self.kernel.spec.name}"
        self.cache.obtain(_KIND, inputs, label, write)

    def _known(self, probe: str, symbol: str, offset: int) -> str | None:
        inputs = self._inputs(probe, symbol, offset)
        artifact = None if inputs is None else self.cache.get(_KIND, inputs)
        return None if artifact is None else (artifact.path / _FILE).read_text(encoding="utf-8", errors="replace")

    def _inputs(self, probe: str, symbol: str, offset: int) -> dict[str, object] | None:
        code = self._code_with(symbol)
        if code is None:
            return None
        return {
            "lab": __version__,
            "kernel": self.kernel.key,
            "parameters": self.kernel.spec.kernel_parameters,
            "cpu": self.cpu,
            "probe": probe,
            "place": f"{symbol}+{offset:#x}",
            **code,
        }

    def _code_with(self, symbol: str) -> Mapping[str, str] | None:
        """The digest of the code that has a function, besides the kernel's key; None if that is not known.

        The key of a user's tree has its image, and none of its modules.
        """
        image = self.kernel.code
        if image is not None and image.has_function(symbol):
            return {}
        try:
            codes = loaded_code(self.kernel, self.modules, symbol)
        except LabError:
            return None
        if not codes:
            return {} if image is None else None
        if len(codes) > 1:
            return None
        ((name, code),) = codes.items()
        return {"module": name, "code": hashlib.sha256(code.image).hexdigest()}
