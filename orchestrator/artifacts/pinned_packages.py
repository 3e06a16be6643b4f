# SPDX-License-Identifier: GPL-2.0-only
"""Pinning: the exact packages that an artifact is made from.

The lab chooses the newest versions in the release's suites once and records them in the cache's ``pins`` folder. It
keeps to a record until the user removes it: two runs of an experiment use the same kernel, whatever the archive has
published in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.debian_package import NoSuchPackageError, Package
from orchestrator.catalog.debian_release import Suites, debian
from orchestrator.catalog.kernels import version_numbers
from orchestrator.errors import HostError, LabError
from orchestrator.files import write_whole

Choice = Callable[[AptRoot], Sequence[Package]]
Filling = Callable[[AptRoot, Sequence[Package], Path], None]


@dataclass(frozen=True)
class PackageSet:
    """A set to choose from the first of ``places`` that has it; ``is_newest`` chooses anew each time."""

    name: str
    arch: str
    architectures: tuple[str, ...]
    places: tuple[Suites, ...] = ()
    is_newest: bool = False


_HEADERS = "usr/src/linux-headers-"
"""Four of five files of a kernel's packages. Only the compilation of a module reads them, and has them verified before
(``make_modules``): at each start that would take 0.1 s."""


def pinned_artifact(
    context: BuildContext, kind: str, package_set: PackageSet, choose: Choice, fill: Filling
) -> Artifact:
    """The artifact that ``fill`` makes of the chosen or pinned packages. Raises HostError."""
    name, pin = package_set.name, pin_of(context, package_set.name)

    def ready(pinned: Sequence[Package] | None) -> Artifact | None:
        return None if pinned is None else context.cache.get(kind, inputs_of(pinned), unverified=_HEADERS)

    keeps = context.offline or not package_set.is_newest
    if keeps and (artifact := ready(chosen(pin))) is not None:
        return artifact
    with context.cache.lock(f"pin-{name}"):
        pinned = chosen(pin) if keeps else None
        if (artifact := ready(pinned)) is not None:
            return artifact
        context.need_network(name)
        with context.cache.lock(f"apt-{package_set.arch}"):
            apt, packages = _found(context, package_set, pinned, choose)
            artifact = context.cache.obtain(kind, inputs_of(packages), name, lambda folder: fill(apt, packages, folder))
        pin.parent.mkdir(exist_ok=True)
        write_whole(pin, json.dumps([asdict(p) for p in packages], indent=1))
    return artifact


def _found(
    context: BuildContext, package_set: PackageSet, pinned: Sequence[Package] | None, choose: Choice
) -> tuple[AptRoot, Sequence[Package]]:
    pairs: list[tuple[AptRoot, Sequence[Package]]] = []
    failures: list[HostError] = []
    for suites in package_set.places or (debian(),):
        apt = AptRoot(context, package_set.architectures, suites)
        try:
            apt.refresh()
            # An archive keeps only the newest versions: choose anew if it no longer has the pinned ones.
            packages = pinned if pinned is not None and apt.has(pinned) else choose(apt)
            pairs.append((apt, apt.with_suites(packages)))
        except HostError as error:
            failures.append(error)
            if package_set.places and not isinstance(error, NoSuchPackageError):
                context.say(f"continuing without {suites.title}: {error.what}")
        if pairs and not package_set.is_newest:
            break
    if not pairs:
        raise next((error for error in reversed(failures) if isinstance(error, NoSuchPackageError)), failures[-1])
    return max(pairs, key=lambda pair: version_numbers(pair[1][0].version))


def pin_of(context: BuildContext, name: str) -> Path:
    """The file that records the choice of the set ``name``."""
    return context.cache.root / "pins" / f"{name}.json"


def origins(context: BuildContext, name: str) -> dict[str, str]:
    """Version and suite of every package of the set ``name``, by name and architecture."""
    packages = chosen(pin_of(context, name)) or ()
    return {f"{p.name}:{p.architecture}": f"{p.version} ({p.suite})" for p in packages}


def chosen(pin: Path) -> tuple[Package, ...] | None:
    """The packages in a record; None if there is no record. Raises LabError for a damaged one."""
    try:
        return tuple(Package(**fields) for fields in json.loads(pin.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError):
        raise LabError(f"{pin} is not a record of chosen packages", hint=f"remove it: rm '{pin}'") from None


def inputs_of(packages: Sequence[Package]) -> dict[str, object]:
    """The inputs of an artifact made of packages alone."""
    return {"packages": {f"{p.name}:{p.architecture}": [p.version, p.sha256] for p in packages}}


def versions(artifact: Artifact) -> Mapping[str, str]:
    """The versions of the packages among an artifact's inputs, by name and architecture."""
    packages = artifact.inputs["packages"]
    assert isinstance(packages, dict)
    return {name: version for name, (version, _) in packages.items()}
