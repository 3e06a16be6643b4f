# SPDX-License-Identifier: GPL-2.0-only
"""A system's packages, fetched once, as an archive that apt can install from.

The index holds the paragraphs of the signed lists. Installing from it needs no network, and installs what the
release's suites had when the packages were chosen, at any later time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, digest
from orchestrator.artifacts.debian_package import Package, package_of
from orchestrator.artifacts.pinned_packages import PackageSet, pinned_artifact
from orchestrator.catalog.image_recipes import ImageRecipe

INDEX = "Packages"


def system_packages(recipe: ImageRecipe) -> PackageSet:
    """The package set of a recipe. A recipe that asks for other packages gets another set, whatever its name."""
    request = digest([recipe.arch, recipe.packages, *filter(None, [recipe.release])])[:8]
    places = () if recipe.suites is None else (recipe.suites,)
    return PackageSet(f"{recipe.name}-system-{request}", recipe.arch, (ARCHITECTURES[recipe.arch].debian,), places)


def system_archive(context: BuildContext, recipe: ImageRecipe) -> Artifact:
    """The .deb files of a recipe's packages and their dependencies, with an index. Raises HostError."""

    def choose(apt: AptRoot) -> list[Package]:
        exact = apt.simulate(["?or(?essential, ?priority(required))", *recipe.packages])
        # Two suites may have the same version; apt takes it from the first.
        packages = {
            f"{package.name}={package.version}": package for package in map(package_of, reversed(apt.stanzas(exact)))
        }
        return [packages[name] for name in exact]

    def fetch(apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
        files = apt.download(packages, folder)
        stanzas = {package_of(stanza).sha256: stanza for stanza in apt.stanzas([p.pinned for p in packages])}
        listed = zip(packages, files, strict=True)
        (folder / INDEX).write_text(index((stanzas[package.sha256], file.name) for package, file in listed))

    return pinned_artifact(context, "archives", system_packages(recipe), choose, fetch)


def index(listed: Iterable[tuple[str, str]]) -> str:
    """The index of a flat archive, from paragraphs and file names."""
    moved = (re.sub(r"^Filename: .*$", f"Filename: ./{name}", stanza.strip(), flags=re.M) for stanza, name in listed)
    return "\n\n".join(moved) + "\n"
