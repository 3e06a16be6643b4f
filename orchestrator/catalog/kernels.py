# SPDX-License-Identifier: GPL-2.0-only
"""The kernels a guest can run: their origin, their options, their requirements on the CPU; the user's by path."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from orchestrator.arch import Arch
from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.data import Fact, named, read, unknown
from orchestrator.errors import ConfigError
from orchestrator.paths import AWKWARD, data_dir, kbuild_takes, user_path
from orchestrator.program import PROGRAM

SET_OPTION = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)


def read_config(path: Path) -> dict[str, str]:
    """The options that are set, as the file writes their values. Raises OSError."""
    return dict(SET_OPTION.findall(path.read_text(encoding="utf-8", errors="replace")))


IMAGE = Path("arch/x86/boot/bzImage")
RELEASE = Path("include/config/kernel.release")

BOOT_MARK = (0x202, b"HdrS")

_MAKE = "make bzImage modules"

_CPU_FAMILIES = {"5": 5, "6": 6}
"""Values of CONFIG_X86_MINIMUM_CPU_FAMILY; a 64-bit kernel has 64, and needs long mode instead."""

_NEEDED = {
    "CONFIG_MODULES": "probes are modules",
    "CONFIG_MODULE_UNLOAD": "they are taken out again",
    "CONFIG_KALLSYMS": "probe points are found by their symbols",
    "CONFIG_DEBUG_FS": "the kernel's list of kprobes is there",
    "CONFIG_KPROBES": "probes are kprobes, or find their way by one",
    "CONFIG_SERIAL_8250_CONSOLE": "the console is a serial port",
    "CONFIG_BLK_DEV_INITRD": "all programs come in an initramfs",
}


def is_path(name: str) -> bool:
    """Whether a kernel's name is a path: it has a slash in it, which no name of the catalogue has."""
    return "/" in name


def named_path(name: str) -> tuple[str | None, str]:
    """The name that the user has given to a kernel, if any, and its path: of ``mine=./build``, ``mine``."""
    found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._+-]{0,39})=(.*/.*)", name, re.DOTALL)
    return (None, name) if found is None or user_path(name).exists() else (found[1], found[2])


def placed(name: str, place: Callable[[str], str]) -> str:
    """A user's kernel with its path replaced by what ``place`` makes of that."""
    given, path = named_path(name)
    return place(path) if given is None else f"{given}={place(path)}"


def find_tree(name: str) -> tuple[Path, Path]:
    """The build tree and the image at a path. Raises ConfigError with what is missing, and OSError."""
    path = user_path(named_path(name)[1])
    if path.is_dir():
        tree, image = path, path / IMAGE
    elif path.is_file():
        tree = next((folder for folder in path.parents if (folder / ".config").is_file()), path.parent)
        image = path
    else:
        commits = "a commit of a tree is measured by bisect, and by compare --config" if "@" in name else ""
        raise ConfigError(f"found {name!r}; there is no such kernel image or build tree", hint=commits)
    if path.is_file() and not (tree / ".config").is_file():
        hint = _hint_of_installed(path) or "name an image in the tree that it was built in: modules are built there"
        raise ConfigError(f"found {name!r}; it is in no build tree: no folder above it has a .config", hint=hint)
    if not kbuild_takes(tree):
        what = f"modules cannot be built for it: the path of {tree} has {AWKWARD}"
        raise ConfigError(f"found {name!r}; {what}", hint="move or rename the tree")
    for file, what in ((tree / ".config", "the configuration"), (tree / RELEASE, "the release"), (image, "the image")):
        if not file.is_file():
            hint = f"build it first: {_MAKE if what != 'the configuration' else f'make menuconfig, then {_MAKE}'}"
            lacking = f"{what} ({file.relative_to(tree)}) is not there"
            raise ConfigError(f"found {name!r}; its build tree {tree} is not whole: {lacking}", hint=hint)
    return tree, image


def _hint_of_installed(path: Path) -> str:
    if not path.name.startswith("vmlinuz"):
        return ""
    return (
        "a host's own kernel is installed without the tree that it was built in; take one that the lab fetches, "
        f"such as debian-amd64 (all: {PROGRAM} list kernels), or build one"
    )


def setting_options(tree: Path, options: Iterable[str]) -> str:
    """What to do about options that a kernel built in a tree lacks."""
    enabled = " ".join(f"-e {option.removeprefix('CONFIG_')}" for option in options)
    return f"in {tree}: scripts/config {enabled}, and build it again"


def describe(name: str) -> dict[str, object]:
    """A KernelSpec's fields for the kernel at a path. Raises ConfigError where it cannot be a guest's."""
    try:
        tree, image = find_tree(name)
        config = read_config(tree / ".config")
        image = bootable(tree, image, config)
        with image.open("rb") as opened:
            begin = opened.read(BOOT_MARK[0] + len(BOOT_MARK[1]))
    except OSError as error:
        path = user_path(named_path(name)[1])
        file = f"{error.filename} " if error.filename and Path(error.filename) != path else "it "
        hint = _hint_of_installed(path)
        raise ConfigError(f"found {name!r}; {file}cannot be read: {error.strerror}", hint=hint) from None
    lacking = {option: why for option, why in _NEEDED.items() if config.get(option) != "y"}
    if "CONFIG_X86" not in config:
        raise ConfigError(f"found {name!r}; it is not a kernel for x86")
    if lacking:
        what = f"it was built without {', '.join(f'{option} ({why})' for option, why in lacking.items())}"
        raise ConfigError(f"found {name!r}; {what}", hint=setting_options(tree, lacking))
    # As a vmlinux or a bzImage begins (Documentation/arch/x86/boot.rst).
    if not (begin.startswith(b"\x7fELF") or begin[BOOT_MARK[0] :] == BOOT_MARK[1]):
        raise ConfigError(f"found {name!r}; {image} is no kernel's image", hint=f"build it again: {_MAKE}")
    long_mode = config.get("CONFIG_X86_64") == "y"
    stem = re.sub(r"[^A-Za-z0-9._+-]+", "-", tree.name).strip("-.+_") or "kernel"
    return {
        "name": named_path(name)[0] or f"own-{stem[:40]}-{hashlib.sha256(str(tree).encode()).hexdigest()[:6]}",
        "title": f"the kernel built in {tree}",
        "arch": "x86_64" if long_mode else "i386",
        "tree": tree,
        "image": image,
        "cpu_family": _CPU_FAMILIES.get(config.get("CONFIG_X86_MINIMUM_CPU_FAMILY", ""), 4),
        "needs_pae": long_mode or config.get("CONFIG_X86_PAE") == "y",
        "entry_offset": entry_offset(config),
    }


def bootable(tree: Path, image: Path, config: Mapping[str, str]) -> Path:
    """The file to boot: a vmlinux needs PVH, else a bzImage that is newer. Raises ConfigError, OSError."""
    if image.name != "vmlinux" or config.get("CONFIG_PVH") == "y":
        return image
    compressed = tree / IMAGE
    if not compressed.is_file() or compressed.stat().st_mtime < image.stat().st_mtime:
        what = f"it was built without CONFIG_PVH, so only a bzImage of it can boot, and {IMAGE} is older or not there"
        raise ConfigError(f"found {str(image)!r}; {what}", hint=f"build it first: {_MAKE}")
    return compressed


def entry_offset(config: Mapping[str, str]) -> int:
    """Bytes before the first own instruction of most functions: an endbr, and the nop of the function tracer."""
    endbr = 4 if config.get("CONFIG_X86_KERNEL_IBT") == "y" else 0
    return endbr + (5 if config.get("CONFIG_DYNAMIC_FTRACE") == "y" else 0)


NEWEST = "newest"
"""The version of the newest kernel at hand."""

_BEFORE = {"nopreempt": ["lazy", "nopreempt"], "kunit": ["autorun", "kunit"]}
"""What stands for a fragment in versions without an entry: the last line that such a kernel can have decides."""

_VERSION = re.compile(r"\d{1,3}\.\d{1,3}(?:\.\d{1,3})?", re.ASCII)


class DebianPackages(Fact):
    """The packages that always depend on Debian's newest kernel of a flavour, and on its headers."""

    image: str
    headers: str

    @property
    def flavour(self) -> str:
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
        return self.arch == "x86_64"

    @property
    def argument(self) -> str:
        """What names it on a command line: a user's own has its build tree's path, which a shell takes as it is."""
        return self.name if self.tree is None else str(self.tree)

    @property
    def origin(self) -> str:
        if self.packages is not None:
            return f"linux-image-{self.version}*-{self.packages.flavour}" if self.is_searched else self.packages.image
        if self.source is not None:
            return " + ".join([f"built from {self.source}", *(f"{patch}.patch" for patch in self.patches)])
        return str(self.image)

    def unsupported_reason(self, cpu: CpuModel) -> str | None:
        if self.needs_long_mode and not cpu.long_mode:
            return f"kernel '{self.name}' is 64-bit and CPU '{cpu.name}' is 32-bit"
        if cpu.family < self.cpu_family:
            return f"kernel '{self.name}' needs an i{self.cpu_family}86 CPU and CPU '{cpu.name}' is an i{cpu.family}86"
        if self.needs_pae and not cpu.pae:
            return f"kernel '{self.name}' needs PAE and CPU '{cpu.name}' has none"
        return None


@lru_cache(maxsize=1)
def kernels() -> Mapping[str, KernelSpec]:
    """The catalogue's kernels by name: Debian's, then for each version every base of the lab's own in every variant."""
    debian, versions, bases, variants = read("kernels.yaml").values()
    default = next(iter(versions))
    found = [{"name": name, "version": default, **fields} for name, fields in debian.items()]
    for number, version in versions.items():
        for base_name, base in bases.items():
            for variant_name, variant in variants.items():
                patched = variant.get("versions", [])
                if variant.get("arch", base["arch"]) == base["arch"] and number in (patched or versions):
                    name = base_name if variant_name == "plain" else f"{base_name}-{variant_name}"
                    fields = {**base, **variant, **version, "version": number, "patched": patched}
                    fields |= {"name": name if number == default else f"{name}@{number}"}
                    fields |= {"title": f"{base['title']}, {variant['title']}"}
                    fields |= {"fragments": [*base["fragments"], *variant["fragments"]]}
                    fields |= {"patches": _patches_for(number, variant.get("patches", []))}
                    found.append({key: value for key, value in fields.items() if key != "versions"})
    return named(KernelSpec, {fields["name"]: fields for fields in found})


def _patches_for(version: str, names: list[str]) -> list[str]:
    """The patches by their paths in ``images/patches``: a folder of the version has those that were changed for it."""
    names = [name.rpartition("/")[2] for name in names]
    folder = data_dir("images") / "patches"
    return [f"{version}/{name}" if (folder / version / f"{name}.patch").exists() else name for name in names]


def kernel(name: str) -> KernelSpec:
    """The catalogue's kernel ``name``, or a user's by ``PATH`` or ``NAME=PATH``. Raises ConfigError."""
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
    wanted = version_numbers(version) if version != NEWEST else max(map(version_numbers, known))
    nearest = known[
        max((one for one in known if version_numbers(one) <= wanted), key=version_numbers, default=plain.version)
    ]
    update: dict[str, object] = {"name": f"{plain.name}@{version}", "version": version, "is_searched": True}
    title = plain.title.replace("not preemptible", "not or lazily preemptible")
    update |= {"title": f"{title}, Linux {version}", "source": plain.source and f"linux-source-{version}"}
    # Which options it no longer has is not known here: it is listed when the kernel is built.
    fragments = [one for name in nearest.fragments for one in _BEFORE.get(name, [name])]
    update |= {"packages": plain.packages, "without": [], "fragments": fragments}
    update |= {"patches": _patches_for(version, nearest.patches)}
    return nearest.model_copy(update=update)


def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, by which one of two is the newer."""
    return tuple(map(int, version.split(".")))


@lru_cache(maxsize=1)
def kernels_by_option() -> Mapping[str, Sequence[str]]:
    """The kernels that are known to have an option, those to name first in front."""
    listed: dict[str, list[list[str]]] = read("kernel_options.yaml")["options"]
    return {option: [name for group in groups for name in group] for option, groups in listed.items()}


def without_option(option: str, needed: Sequence[str], arch: Arch) -> str:
    """The sentence that a kernel lacks an option, naming kernels that have all ``needed`` ones."""
    sentence = f"this kernel was built without {option}"
    known = kernels_by_option()
    having = [known[one] for one in needed if one in known]
    able = [name for name in known.get(option, ()) if all(name in names for names in having)]
    named = ([name for name in able if kernels()[name].arch == arch] or able)[:2]
    if not named:
        return sentence
    return f"{sentence}; {' and '.join(named)} {'has' if len(named) == 1 else 'have'} it"
