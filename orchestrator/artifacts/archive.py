# SPDX-License-Identifier: GPL-2.0-only
"""All the packages that a system is made of, fetched once: an archive of its own that apt can install from.

The index holds the paragraphs of the signed lists, so what is installed from here, without any network and at any
time, is what the release's suites had when the packages were chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.artifacts.apt import AptRoot, Package, package_of
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, digest
from orchestrator.artifacts.debian import DEBIAN_ARCHITECTURE
from orchestrator.artifacts.pins import PackageSet, pinned_artifact
from orchestrator.catalog.images import ImageRecipe

_KIND = "archives"
INDEX = "Packages"
_MINIMUM = "?or(?essential, ?priority(required))"


def system_packages(recipe: ImageRecipe) -> PackageSet:
    """The set that is chosen for a recipe. Another wish is another set, whatever its name."""
    wish = digest([recipe.arch, recipe.packages])[:8]
    return PackageSet(f"{recipe.name}-system-{wish}", recipe.arch, (DEBIAN_ARCHITECTURE[recipe.arch],))


def system_archive(context: BuildContext, recipe: ImageRecipe) -> Artifact:
    """The .deb files of a recipe's packages and of all that they depend on, with their index.

    Its inputs list every package with version and checksum. Raises HostError when they cannot be had.
    """

    def choose(apt: AptRoot) -> list[Package]:
        return _choose(apt, recipe)

    def fetch(apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
        files = apt.download(packages, folder)
        stanzas = {package_of(stanza).sha256: stanza for stanza in apt.stanzas([p.pinned for p in packages])}
        listed = zip(packages, files, strict=True)
        (folder / INDEX).write_text(index((stanzas[package.sha256], file.name) for package, file in listed))

    return pinned_artifact(context, _KIND, system_packages(recipe), choose, fetch)


def _choose(apt: AptRoot, recipe: ImageRecipe) -> list[Package]:
    exact = apt.simulate([_MINIMUM, *recipe.packages])
    # Two suites may have the same version; apt takes it from the first.
    found = {f"{package.name}={package.version}": package for package in map(package_of, reversed(apt.stanzas(exact)))}
    return [found[name] for name in exact]


def index(listed: Iterable[tuple[str, str]]) -> str:
    """The index of a flat archive: the paragraphs of a list, each with the name of the file that it is about."""
    moved = (re.sub(r"^Filename: .*$", f"Filename: ./{name}", stanza.strip(), flags=re.M) for stanza, name in listed)
    return "\n\n".join(moved) + "\n"
