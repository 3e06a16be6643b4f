# SPDX-License-Identifier: GPL-2.0-only
"""The kernels of guests, from the catalogue or a user's build tree: origin, options, CPU requirements."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from orchestrator.arch import Arch
from orchestrator.catalog import kernel_variants
from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.data import CatalogEntry, named, read, unknown
from orchestrator.errors import ConfigError
from orchestrator.files import is_file
from orchestrator.paths import AWKWARD, data_dir, kbuild_takes, user_path
from orchestrator.program import PROGRAM, command

SET_OPTION = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)


def read_config(path: Path) -> dict[str, str]:
    """The options that a .config sets, with their values as written. Raises OSError."""
    return dict(SET_OPTION.findall(path.read_text(encoding="utf-8", errors="replace")))


_NO_PROC_SYS = re.compile(r"^# (CONFIG_(?:PROC_)?SYSCTL) is not set$", re.MULTILINE)
"""Says so where it is an option of its own, as PROC_SYSCTL is in Linux 6.1, and not in 7.3."""


IMAGE = Path("arch/x86/boot/bzImage")
RELEASE = Path("include/config/kernel.release")

BOOT_MARK = (0x202, b"HdrS")

_MAKE = "make bzImage modules"

_CPU_FAMILIES = {"5": 5, "6": 6}
"""Values of CONFIG_X86_MINIMUM_CPU_FAMILY; a 64-bit kernel has 64, and needs long mode instead."""

_NEEDED = {
    "CONFIG_MODULES": "probes are modules",
    "CONFIG_MODULE_UNLOAD": "probes are unloaded",
    "CONFIG_KALLSYMS": "probe points are found by symbol",
    "CONFIG_DEBUG_FS": "it has the kernel's list of kprobes",
    "CONFIG_KPROBES": "probes are kprobes, or look up symbols with one",
    "CONFIG_SERIAL_8250_CONSOLE": "the console is a serial port",
    "CONFIG_BLK_DEV_INITRD": "programs come in an initramfs",
}

DRIVERS = ("CONFIG_VIRTIO_PCI", "CONFIG_VIRTIO_CONSOLE")
"""The options of what a user's kernel must have built in."""


def is_path(name: str) -> bool:
    """Whether a kernel's name is a path: it has a slash, unlike the catalogue's names."""
    return "/" in kernel_variants.split(name)[0]


def named_path(name: str) -> tuple[str | None, str]:
    """The name, if any, and the path of a user's kernel ``PATH`` or ``NAME=PATH``."""
    match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._+-]{0,39})=(.*/.*)", name, re.DOTALL)
    return (None, name) if match is None or user_path(name).exists() else (match[1], match[2])


def placed(name: str, place: Callable[[str], str]) -> str:
    """A kernel with each path, of a user's tree and of files of options, replaced by ``place(path)``."""
    plain, words = kernel_variants.split(name)
    if "/" in plain:
        given, path = named_path(plain)
        plain = place(path) if given is None else f"{given}={place(path)}"
    return kernel_variants.joined(plain, kernel_variants.placed(words, place))


def find_tree(name: str) -> tuple[Path, Path]:
    """The build tree and the image of a user's kernel. Raises ConfigError, which says what is missing, and OSError."""
    path = user_path(named_path(name)[1])
    if path.is_dir():
        tree, image = path, path / IMAGE
    elif is_file(path):
        tree = next((folder for folder in path.parents if (folder / ".config").is_file()), path.parent)
        image = path
    else:
        commits = "measure a commit of a tree with bisect, or with compare --config" if "@" in name else ""
        raise ConfigError(f"found {name!r}; this kernel image or build tree does not exist", hint=commits)
    if path.is_file() and not (tree / ".config").is_file():
        hint = _hint_of_installed(path) or "name an image in its build tree, where the lab builds modules"
        raise ConfigError(f"found {name!r}; it is not in a build tree: no folder above it has a .config", hint=hint)
    if not kbuild_takes(tree):
        what = f"modules cannot be built for it: the path {tree} has {AWKWARD}"
        raise ConfigError(f"found {name!r}; {what}", hint="move or rename the tree")
    for file, what in ((tree / ".config", "the configuration"), (tree / RELEASE, "the release"), (image, "the image")):
        if not file.is_file():
            make = f"make menuconfig, then {_MAKE}" if what == "the configuration" else _MAKE
            is_source = any((folder / "Kconfig").is_file() for folder in (tree, tree / "source"))
            hint = f"build it first: {command('build', '--tree', str(tree)) if is_source else make}"
            lacking = f"{what} ({file.relative_to(tree)}) is missing"
            raise ConfigError(f"found {name!r}; its build tree {tree} is incomplete: {lacking}", hint=hint)
    return tree, image


def _hint_of_installed(path: Path) -> str:
    if not path.name.startswith("vmlinuz"):
        return ""
    return (
        "the host's kernel is installed without its build tree; use one that the lab fetches, such as "
        f"debian-amd64 (all: {PROGRAM} list kernels), or build one"
    )


def setting_options(tree: Path, options: Iterable[str]) -> str:
    """The hint for options that the kernel of a build tree lacks."""
    enabled = " ".join(f"-e {option.removeprefix('CONFIG_')}" for option in options)
    script = "source/scripts/config" if (tree / "source").is_dir() else "scripts/config"
    return f"in {tree}: {script} {enabled}, and build it again"


def lacking_options(file: Path) -> dict[str, str]:
    """The options without which a guest cannot run a kernel or the lab cannot use it, with the reasons.

    ``file`` is its .config. Raises OSError.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    config = dict(SET_OPTION.findall(text))
    lacking = {option: why for option, why in _NEEDED.items() if config.get(option) != "y"}
    return lacking | dict.fromkeys(_NO_PROC_SYS.findall(text), "the kernel's taint is in /proc/sys")


def describe(name: str) -> dict[str, object]:
    """The fields of a KernelSpec for the kernel at a path. Raises ConfigError if a guest cannot run it."""
    try:
        tree, image = find_tree(name)
        config, lacking = read_config(tree / ".config"), lacking_options(tree / ".config")
        image = bootable(tree, image, config)
        with image.open("rb") as opened:
            begin = opened.read(BOOT_MARK[0] + len(BOOT_MARK[1]))
    except OSError as error:
        path = user_path(named_path(name)[1])
        file = f"{error.filename} " if error.filename and Path(error.filename) != path else "it "
        hint = _hint_of_installed(path)
        raise ConfigError(f"found {name!r}; {file}cannot be read: {error.strerror}", hint=hint) from None
    if "CONFIG_X86" not in config:
        raise ConfigError(f"found {name!r}; it is not a kernel for x86")
    if lacking:
        what = f"it was built without {', '.join(f'{option} ({why})' for option, why in lacking.items())}"
        raise ConfigError(f"found {name!r}; {what}", hint=setting_options(tree, lacking))
    # As a vmlinux or a bzImage begins (Documentation/arch/x86/boot.rst).
    if not (begin.startswith(b"\x7fELF") or begin[BOOT_MARK[0] :] == BOOT_MARK[1]):
        raise ConfigError(f"found {name!r}; {image} is not a kernel image", hint=f"build it again: {_MAKE}")
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
    """The file to boot: a vmlinux with PVH, else a bzImage that is newer. Raises ConfigError, OSError."""
    if image.name != "vmlinux" or config.get("CONFIG_PVH") == "y":
        return image
    compressed = tree / IMAGE
    if not compressed.is_file() or compressed.stat().st_mtime < image.stat().st_mtime:
        what = f"it was built without CONFIG_PVH, so only its bzImage can boot, and {IMAGE} is older or missing"
        raise ConfigError(f"found {str(image)!r}; {what}", hint=f"build it first: {_MAKE}")
    return compressed


def entry_offset(config: Mapping[str, str]) -> int:
    """Bytes before the first ordinary instruction of most functions: an endbr, and the function tracer's nop."""
    endbr = 4 if config.get("CONFIG_X86_KERNEL_IBT") == "y" else 0
    return endbr + (5 if config.get("CONFIG_DYNAMIC_FTRACE") == "y" else 0)


NEWEST = "newest"
"""The version that stands for the newest available kernel."""

_BEFORE = {"nopreempt": ["lazy", "nopreempt"], "kunit": ["autorun", "kunit"]}
"""Fragments that replace one in versions without an entry; the last line that the kernel supports takes effect."""

_VERSION = re.compile(r"\d{1,3}\.\d{1,3}(?:\.\d{1,3})?", re.ASCII)


class DebianPackages(CatalogEntry):
    """The metapackages of Debian's newest kernel of a flavour and of its headers."""

    image: str
    headers: str

    @property
    def flavour(self) -> str:
        return self.image.rpartition("-image-")[2]


class KernelSpec(CatalogEntry):
    """A kernel: Debian's, built from source, or a user's.

    Debian's has ``packages``. One from source is the ``source`` package with ``patches`` and added ``files``, each the
    path of a data file by its path in the source, configured by ``fragments``. A user's has a build ``tree`` and an
    ``image``.
    ``cpu_family`` is the oldest that a 32-bit kernel runs on, its CONFIG_X86_MINIMUM_CPU_FAMILY.
    ``version`` is Linux's, or ``newest``, or empty for a user's kernel; it lacks the fragments' options ``without``.
    If ``is_searched``, the version has no catalogue entry and is looked for in all available Debian suites.
    ``patched`` are the versions of Linux that its patches apply to, empty without patches.
    ``entry_offset`` is in bytes from the symbol of most functions to the first instruction after any endbr and nop.
    ``kernel_parameters`` are needed besides those of every kernel.

    A variant of a kernel has the ``plain_name`` of that kernel, its own ``words``, and what they mean: ``parameters``,
    and ``options`` as lines of a .config (see ``kernel_variants``).
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
    plain_name: str = ""
    words: list[str] = Field(default_factory=list)
    parameters: list[str] = Field(default_factory=list)
    options: str = ""

    @property
    def of_catalogue(self) -> str:
        """The name without the words of a variant."""
        return self.plain_name or self.name

    @property
    def needs_long_mode(self) -> bool:
        return self.arch == "x86_64"

    @property
    def argument(self) -> str:
        """The kernel as a command-line argument: its name, or the path of a user's build tree, with its words."""
        plain = self.of_catalogue if self.tree is None else str(self.tree)
        return kernel_variants.joined(plain, self.words)

    @property
    def patch_files(self) -> Sequence[str]:
        """The patches as paths in ``images/patches``: each one's part for all versions, then those for this version."""
        top = data_dir("images") / "patches"
        folders = sorted(path.name for path in top.iterdir() if self.version in path.name.split("+"))
        paths = [path for name in self.patches for path in (name, *(f"{folder}/{name}" for folder in folders))]
        return [path for path in paths if path in self.patches or (top / f"{path}.patch").is_file()]

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
    """The catalogue's kernels by name: Debian's, then the lab's bases in every variant, for each version."""
    debian, versions, bases, variants = read("kernels.yaml").values()
    default = next(iter(versions))
    entries = [{"name": name, "version": default, **fields} for name, fields in debian.items()]
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
                    entries.append({key: value for key, value in fields.items() if key != "versions"})
    return named(KernelSpec, {fields["name"]: fields for fields in entries})


def kernel(name: str) -> KernelSpec:
    """The catalogue's kernel ``name``, or a user's by ``PATH`` or ``NAME=PATH``; words (``+WORD``) may follow.

    Raises ConfigError.
    """
    plain, words = kernel_variants.split(name)
    return _varied(_kernel(plain), words) if words else _kernel(plain)


def _varied(plain: KernelSpec, words: Sequence[str]) -> KernelSpec:
    meant = kernel_variants.variant(words)
    if meant.options and plain.packages is not None:
        what = f"found {kernel_variants.joined(plain.name, words)!r}; {plain.name} is Debian's package, already built"
        raise ConfigError(
            what, hint="set options of a kernel that the lab builds, such as lab-i386-up, or of your tree"
        )
    lines = meant.options.splitlines()
    lost = [f"{option} ({why})" for option, why in _NEEDED.items() if f"# {option} is not set" in lines]
    if lost:
        raise ConfigError(f"found {kernel_variants.joined(plain.name, words)!r}; the lab needs {', '.join(lost)}")
    if any(re.match(r"(# )?CONFIG_(64BIT|X86_64|X86_32|X86_PAE)\b", line) for line in lines):
        what = f"found {kernel_variants.joined(plain.name, words)!r}; an option cannot change the architecture"
        raise ConfigError(what, hint=f"choose a kernel of it: {PROGRAM} list kernels")
    return plain.model_copy(
        update={
            "name": kernel_variants.joined(plain.name, [meant.title]),
            "title": f"{plain.title}, {', '.join(words)}",
            "plain_name": plain.name,
            "words": list(words),
            "parameters": list(meant.parameters),
            "kernel_parameters": [*plain.kernel_parameters, *meant.parameters],
            "options": meant.options,
        }
    )


def _kernel(name: str) -> KernelSpec:
    if is_path(name):
        kernel_spec = KernelSpec.model_validate(describe(name))
        if kernel_spec.name in kernels():
            raise ConfigError(
                f"found {name!r}; {kernel_spec.name} is a kernel of the lab", hint="give yours another name"
            )
        return kernel_spec
    spec = kernels().get(name)
    if spec is None:
        plain, _, version = name.partition("@")
        if version and plain in kernels():
            return _of_version(kernels()[plain], version)
        hint = f"all: {PROGRAM} list kernels; name your own kernel by its build tree's path, with a slash"
        raise ConfigError(unknown("kernel", name, kernels()), hint=hint)
    return spec


def _of_version(plain: KernelSpec, version: str) -> KernelSpec:
    """A kernel of a version without an entry, derived from the nearest older one. Raises ConfigError for no version."""
    known = {
        other_kernel.version: other_kernel
        for other_kernel in kernels().values()
        if other_kernel.name.partition("@")[0] == plain.name
    }
    if version in known:
        return known[version]
    is_number = _VERSION.fullmatch(version) or (version == NEWEST and plain.packages is not None)
    if version not in plain.patched if plain.patched else not is_number:
        hint = "" if plain.patched else f"write another version as numbers: {plain.name}@7.3"
        *earlier, last = plain.patched or known
        of = f"{', '.join(earlier)} or {last}" if earlier else last
        raise ConfigError(f"kernel '{plain.name}' exists for Linux {of}, not for {version}", hint=hint)
    numbers = version_numbers(version) if version != NEWEST else max(map(version_numbers, known))
    nearest = known[
        max((older for older in known if version_numbers(older) <= numbers), key=version_numbers, default=plain.version)
    ]
    update: dict[str, object] = {"name": f"{plain.name}@{version}", "version": version, "is_searched": True}
    title = plain.title.replace("not preemptible", "not or lazily preemptible")
    update |= {"title": f"{title}, Linux {version}", "source": plain.source and f"linux-source-{version}"}
    # The options that it no longer has are listed when it is built.
    fragments = [fragment for name in nearest.fragments for fragment in _BEFORE.get(name, [name])]
    update |= {"packages": plain.packages, "without": [], "fragments": fragments}
    return nearest.model_copy(update=update)


def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers in a version or name, which order it."""
    return tuple(map(int, re.findall(r"\d{1,9}", version)))


@lru_cache(maxsize=1)
def kernels_by_option() -> Mapping[str, Sequence[str]]:
    """The kernels known to have an option, in the order in which to name them."""
    listed: dict[str, list[list[str]]] = read("kernel_options.yaml")["options"]
    return {option: [name for group in groups for name in group] for option, groups in listed.items()}


def without_option(option: str, needed: Sequence[str], arch: Arch) -> str:
    """A sentence that a kernel lacks an option, with kernels that have all the ``needed`` ones."""
    sentence = f"this kernel was built without {option}"
    known = kernels_by_option()
    having = [known[name] for name in needed if name in known]
    able = [name for name in known.get(option, ()) if all(name in names for names in having)]
    named = ([name for name in able if kernels()[name].arch == arch] or able)[:2]
    if not named:
        return sentence
    return f"{sentence}; {' and '.join(named)} {'has' if len(named) == 1 else 'have'} it"
