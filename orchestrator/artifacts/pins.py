# SPDX-License-Identifier: GPL-2.0-only
"""Which exact packages was an artifact made from? They are chosen once and recorded.

A set of packages is chosen once (from the release's suites, at the newest version) and kept to until its record in the
cache's ``pins`` folder is removed: two runs of one experiment use the same kernel, whatever the archive did between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.artifacts.apt import AptRoot, NoSuchPackageError, Package, numbers_in
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.catalog.debian import Suites, debian
from orchestrator.errors import HostError, LabError
from orchestrator.whole_file import write_whole

_UNKNOWN = "suite unknown"

Choice = Callable[[AptRoot], Sequence[Package]]
Filling = Callable[[AptRoot, Sequence[Package], Path], None]


@dataclass(frozen=True)
class PackageSet:
    """A set of packages to choose: its name, whose ``arch`` it is, and the architectures that apt needs.

    ``places`` are suites to look in, the first that have them. With ``is_newest`` it is chosen anew each time.
    """

    name: str
    arch: str
    architectures: tuple[str, ...]
    places: tuple[Suites, ...] = ()
    is_newest: bool = False

    def pin(self, context: BuildContext) -> Path:
        """The file that remembers the choice."""
        return pin_of(context, self.name)


def pinned_artifact(context: BuildContext, kind: str, wanted: PackageSet, choose: Choice, fill: Filling) -> Artifact:
    """The artifact made of a set of packages; ``choose`` names them when they were not chosen before.

    ``fill`` makes it of them in an empty folder; its inputs list every package with version and checksum.
    Raises HostError when they cannot be had.
    """
    name, pin = wanted.name, wanted.pin(context)
    keeps = context.offline or not wanted.is_newest
    found = _ready(context, kind, chosen(pin)) if keeps else None
    if found is not None:
        return found
    with context.cache.lock(f"pin-{name}"):
        pinned = chosen(pin) if keeps else None
        found = _ready(context, kind, pinned)
        if found is not None:
            return found
        context.need_network(name)
        with context.cache.lock(f"apt-{wanted.arch}"):
            apt, packages = _found(context, wanted, pinned, choose)
            artifact = context.cache.obtain(kind, inputs_of(packages), name, lambda folder: fill(apt, packages, folder))
        pin.parent.mkdir(exist_ok=True)
        write_whole(pin, json.dumps([asdict(p) for p in packages], indent=1))
    return artifact


def _found(
    context: BuildContext, wanted: PackageSet, pinned: Sequence[Package] | None, choose: Choice
) -> tuple[AptRoot, Sequence[Package]]:
    """The packages, and the suites that have them. Raises HostError where none has, of several those that were read."""
    found: list[tuple[AptRoot, Sequence[Package]]] = []
    failures: list[HostError] = []
    for suites in wanted.places or (debian(),):
        apt = AptRoot(context, wanted.architectures, suites)
        try:
            apt.refresh()
            # An archive keeps only the newest versions, so what was pinned and then lost is chosen anew.
            packages = pinned if pinned is not None and apt.has(pinned) else choose(apt)
            found.append((apt, apt.with_suites(packages)))
        except HostError as error:
            failures.append(error)
            if wanted.places and not isinstance(error, NoSuchPackageError):
                context.say(f"going on without {suites.title}: {error.what}")
        if found and not wanted.is_newest:
            break
    if not found:
        raise next((error for error in reversed(failures) if isinstance(error, NoSuchPackageError)), failures[-1])
    return max(found, key=lambda one: numbers_in(one[1][0].version))


def _ready(context: BuildContext, kind: str, pinned: Sequence[Package] | None) -> Artifact | None:
    """The artifact of chosen packages, if it is in the cache.

    A record without suites is of an earlier version of the lab, which took them from the release of the host: where
    there is a network, they are looked up among those of the guests' release.
    """
    if pinned is None or not (context.offline or all(package.suite for package in pinned)):
        return None
    return context.cache.get(kind, inputs_of(pinned))


def pin_of(context: BuildContext, name: str) -> Path:
    """The file that remembers the choice of the set called ``name``."""
    return context.cache.root / "pins" / f"{name}.json"


def origins(context: BuildContext, name: str) -> dict[str, str]:
    """Version and suite of every package that was chosen for the set called ``name``, by name and architecture."""
    packages = chosen(pin_of(context, name)) or ()
    return {f"{p.name}:{p.architecture}": f"{p.version} ({p.suite or _UNKNOWN})" for p in packages}


def chosen(pin: Path) -> tuple[Package, ...] | None:
    """The packages in a record; None where there is none. Raises LabError for a damaged one."""
    try:
        return tuple(Package(**fields) for fields in json.loads(pin.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError):
        raise LabError(f"{pin} is no record of chosen packages", hint=f"remove it: rm '{pin}'") from None


def inputs_of(packages: Sequence[Package]) -> dict[str, object]:
    """The inputs of an artifact that is made of packages and nothing else."""
    return {"packages": {f"{p.name}:{p.architecture}": [p.version, p.sha256] for p in packages}}


def versions(artifact: Artifact) -> Mapping[str, str]:
    """The version of every package that an artifact lists among its inputs, by name and architecture."""
    packages = artifact.inputs["packages"]
    assert isinstance(packages, dict)
    return {name: version for name, (version, _) in packages.items()}
