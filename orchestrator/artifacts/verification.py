# SPDX-License-Identifier: GPL-2.0-only
"""Is everything in the cache as it was made? All files of all artifacts are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts import digests
from orchestrator.artifacts.cache import Artifact, Cache, digest
from orchestrator.artifacts.cache_entries import artifact_kinds
from orchestrator.artifacts.digests import Damage, Known


@dataclass(frozen=True)
class Verified:
    """An artifact and what is wrong with it. ``is_new``: it had no record yet, and was recorded as it is."""

    artifact: Artifact
    damage: Damage | None = None
    is_new: bool = False


class Verification:
    """Reads the artifacts of a cache; files that several of them share are read once."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._known: Known = {}

    def all(self) -> Iterator[Verified]:
        """Every artifact that is complete, by kind. One that another process removes is left out."""
        for kind in artifact_kinds():
            for place, artifact in self._cache.contents(kind):
                if artifact is not None:
                    verified = self._verified(artifact)
                elif self._cache.is_finished(place):
                    nameless = Artifact(kind, place.name, place, "unknown", {})
                    verified = Verified(nameless, Damage(nameless.stamp.name, "cannot be read"))
                else:
                    continue
                if verified.artifact.stamp.exists():
                    yield verified

    def set_aside(self, verified: Verified) -> None:
        """Set a damaged artifact aside. Raises LabError where that is not possible now."""
        assert verified.damage is not None
        self._cache.set_aside(verified.artifact, verified.damage, lambda place: self._damage(verified, place))

    def _damage(self, verified: Verified, place: Path) -> Damage | None:
        """What is wrong still: another process may have made it anew."""
        again = dict(self._cache.contents(place.parent.name)).get(place)
        return verified.damage if again is None else self._verified(again).damage

    def _verified(self, artifact: Artifact) -> Verified:
        if digest(artifact.inputs) != artifact.key:
            return Verified(artifact, Damage(artifact.stamp.name, "has another content"))
        if digests.has_record(artifact.path):
            return Verified(artifact, digests.differing(artifact.path, self._known))
        try:
            digests.record(artifact.path, artifact.stamp.name)
        except OSError as error:
            return Verified(artifact, Damage(digests.RECORD, f"cannot be made ({error.strerror})"))
        return Verified(artifact, is_new=True)
