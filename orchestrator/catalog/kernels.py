# SPDX-License-Identifier: GPL-2.0-only
"""The kernels a guest can run, their origin, and their requirements on the CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.data import Fact, read
from orchestrator.catalog.spelling import unknown
from orchestrator.catalog.user_kernel import describe, is_path
from orchestrator.errors import ConfigError
from orchestrator.paths import data_dir
from orchestrator.program import PROGRAM

Arch = Literal["i386", "x86_64"]

NEWEST = "newest"
"""The version of the newest kernel at hand."""

_PLAIN = "plain"
_BEFORE = {"nopreempt": ["lazy", "nopreempt"], "kunit": ["autorun", "kunit"]}
"""What stands for a fragment in versions without an entry: the last line that such a kernel can have decides."""

_VERSION = re.compile(r"\d{1,3}\.\d{1,3}(?:\.\d{1,3})?", re.ASCII)


class DebianPackages(Fact):
    """The packages that always depend on Debian's newest kernel of a flavour, and on its headers."""

    image: str
    headers: str

    @property
    def flavour(self) -> str:
        """What the names of its packages end with."""
        return self.image.rpartition("-image-")[2]


class KernelSpec(Fact):
    """A kernel: Debian's, built from source, or a user's own.

    Debian's has ``packages``. One from source is the ``source`` package changed by ``patches``, with ``files`` of
    ``kmods`` by their path in it, and configured by ``fragments``. A user's own has a build ``tree`` and an ``image``.
    ``cpu_family`` is the oldest that a 32-bit one runs on, its CONFIG_X86_MINIMUM_CPU_FAMILY.
    ``version`` is that of Linux, empty for a user's own, or ``newest``; the fragments' options in ``without`` are no
    choice in it. One that ``is_searched`` has no entry: it is looked for in all of Debian's suites at hand.
    ``patched`` are the versions of Linux that its patches are for, empty for one without any.
    ``entry_offset`` is in bytes from the symbol of most functions to the first instruction behind any endbr and nop.
    ``kernel_parameters`` are those that it needs besides every kernel's.
    """

    name: str
    title: str
    arch: Arch
    version: str = ""
    is_searched: bool = False
    packages: DebianPackages | None = None
    source: str | None = None
    fragments: list[str] = Field(default_factory=list)
    without: list[str] = Field(default_factory=list)
    patches: list[str] = Field(default_factory=list)
    patched: list[str] = Field(default_factory=list)
    files: dict[str, str] = Field(default_factory=dict)
    tree: Path | None = None
    image: Path | None = None
    needs_pae: bool = False
    cpu_family: int = 4
    entry_offset: int
    kernel_parameters: list[str] = Field(default_factory=list)

    @property
    def needs_long_mode(self) -> bool:
        """Whether it is a 64-bit kernel."""
        return self.arch == "x86_64"

    @property
    def argument(self) -> str:
        """What names it on a command line: a user's own has its build tree's path, which a shell takes as it is."""
        return self.name if self.tree is None else str(self.tree)

    @property
    def origin(self) -> str:
        """Where it comes from, as text."""
        if self.packages is not None:
            return f"linux-image-{self.version}*-{self.packages.flavour}" if self.is_searched else self.packages.image
        if self.source is not None:
            return " + ".join([f"built from {self.source}", *(f"{patch}.patch" for patch in self.patches)])
        return str(self.image)

    def unsupported_reason(self, cpu: CpuModel) -> str | None:
        """Return the reason why this kernel cannot boot on ``cpu``, or None when it can."""
        if self.needs_long_mode and not cpu.long_mode:
            return f"kernel '{self.name}' is 64-bit and CPU '{cpu.name}' is 32-bit"
        if cpu.family < self.cpu_family:
            return f"kernel '{self.name}' needs an i{self.cpu_family}86 CPU and CPU '{cpu.name}' is an i{cpu.family}86"
        if self.needs_pae and not cpu.pae:
            return f"kernel '{self.name}' needs PAE and CPU '{cpu.name}' has none"
        return None


class _Version(Fact):
    source: str
    without: list[str] = Field(default_factory=list)


class _Base(Fact):
    title: str
    arch: Arch
    fragments: list[str]
    needs_pae: bool = False
    cpu_family: int = 4


class _Variant(Fact):
    title: str
    arch: Arch | None = None
    versions: list[str] | None = None
    fragments: list[str]
    patches: list[str] = Field(default_factory=list)
    files: dict[str, str] = Field(default_factory=dict)
    entry_offset: int


class _Catalogue(Fact):
    debian: dict[str, dict[str, object]]
    versions: dict[str, _Version]
    bases: dict[str, _Base]
    variants: dict[str, _Variant]


@lru_cache(maxsize=1)
def kernels() -> Mapping[str, KernelSpec]:
    """The catalogue's kernels by name: Debian's, then for each version every base of the lab's own in every variant."""
    catalogue = _Catalogue.model_validate(read("kernels.yaml"))
    default = next(iter(catalogue.versions))
    debian = [{"name": name, "version": default, **fields} for name, fields in catalogue.debian.items()]
    found = [KernelSpec.model_validate(fields) for fields in debian]
    for number, version in catalogue.versions.items():
        suffix = "" if number == default else f"@{number}"
        for base_name, base in catalogue.bases.items():
            for variant_name, variant in catalogue.variants.items():
                if variant.arch in (None, base.arch) and number in (variant.versions or catalogue.versions):
                    name = base_name if variant_name == _PLAIN else f"{base_name}-{variant_name}"
                    found.append(_from_source(f"{name}{suffix}", base, variant, number, version))
    return MappingProxyType({spec.name: spec for spec in found})


def _from_source(name: str, base: _Base, variant: _Variant, number: str, version: _Version) -> KernelSpec:
    return KernelSpec(
        name=name,
        title=f"{base.title}, {variant.title}",
        arch=base.arch,
        version=number,
        source=version.source,
        fragments=[*base.fragments, *variant.fragments],
        without=version.without,
        patches=_patches_for(number, variant.patches),
        patched=variant.versions or [],
        files=variant.files,
        needs_pae=base.needs_pae,
        cpu_family=base.cpu_family,
        entry_offset=variant.entry_offset,
    )


def _patches_for(version: str, names: list[str]) -> list[str]:
    """The patches by their paths in ``images/patches``: a folder of the version has those that were changed for it."""
    names = [name.rpartition("/")[2] for name in names]
    folder = data_dir("images") / "patches"
    return [f"{version}/{name}" if (folder / version / f"{name}.patch").exists() else name for name in names]


def kernel(name: str) -> KernelSpec:
    """Return the catalogue's kernel ``name``, or the user's where it is a path (with a slash in it), or ``NAME=PATH``.

    Raises ConfigError, with the nearest name, or with what is missing at the path.
    """
    if is_path(name):
        own = KernelSpec.model_validate(describe(name))
        if own.name in kernels():
            raise ConfigError(f"found {name!r}; {own.name} is a kernel of the lab's", hint="give yours another name")
        return own
    spec = kernels().get(name)
    if spec is None:
        plain, _, version = name.partition("@")
        if version and plain in kernels():
            return _of_version(kernels()[plain], version)
        hint = (
            f"all: {PROGRAM} list kernels; a kernel of your own is named by its build tree's path, with a slash in it"
        )
        raise ConfigError(unknown("kernel", name, kernels()), hint=hint)
    return spec


def _of_version(plain: KernelSpec, version: str) -> KernelSpec:
    """A kernel of a version that has no entry: as that of the nearest one before. Raises ConfigError for no version."""
    known = {other.version: other for other in kernels().values() if other.name.partition("@")[0] == plain.name}
    if version in known:
        return known[version]
    is_number = _VERSION.fullmatch(version) or (version == NEWEST and plain.packages is not None)
    if version not in plain.patched if plain.patched else not is_number:
        hint = "" if plain.patched else f"another version is named by its numbers, as {plain.name}@7.3"
        *others, last = plain.patched or known
        of = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"kernel '{plain.name}' is of Linux {of}, and not of {version}", hint=hint)
    wanted = _numbers(version) if version != NEWEST else max(map(_numbers, known))
    nearest = known[max((one for one in known if _numbers(one) <= wanted), key=_numbers, default=plain.version)]
    update: dict[str, object] = {"name": f"{plain.name}@{version}", "version": version, "is_searched": True}
    title = plain.title.replace("not preemptible", "not or lazily preemptible")
    update |= {"title": f"{title}, Linux {version}", "source": plain.source and f"linux-source-{version}"}
    # Which options it no longer has is not known here: it is listed when the kernel is built.
    fragments = [one for name in nearest.fragments for one in _BEFORE.get(name, [name])]
    update |= {"packages": plain.packages, "without": [], "fragments": fragments}
    update |= {"patches": _patches_for(version, nearest.patches)}
    return nearest.model_copy(update=update)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
