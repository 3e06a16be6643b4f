# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator cache`` and ``build``: the cache, and the kernels, images and modules of guests."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, Cache, disk_usage
from orchestrator.artifacts.cache_entries import ALL, Kind, Removal, cache_entries, remove, set_aside, verified
from orchestrator.artifacts.cache_faults import check_folder
from orchestrator.artifacts.disk_images import cached_image, ready_image
from orchestrator.artifacts.kernel_build import kernel_lists
from orchestrator.artifacts.kernel_config import features
from orchestrator.artifacts.module_source import ModuleSource, Value, render_own, templates
from orchestrator.artifacts.module_source import render as render_module
from orchestrator.artifacts.modules import Module, build_modules, folder_modules, with_needed
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.preparation import is_wrapper
from orchestrator.benchmarks.markers.code_size import listing_lines, read_object, size_lines
from orchestrator.catalog.data import unknown
from orchestrator.catalog.image_recipes import image, images
from orchestrator.catalog.kernels import KernelSpec, kernels
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import SUFFIXES, find_module, is_path, split_member
from orchestrator.catalog.system_calls import system_calls
from orchestrator.cli import completion, options, printing
from orchestrator.errors import BuildError, HostError, LabError, UsageError
from orchestrator.host_packages import check_all_installed
from orchestrator.paths import cache_dir, user_path
from orchestrator.probes.point_check import wrong_point_reason
from orchestrator.program import PROGRAM

_KEEP_DAYS = 30


def show_cache() -> None:
    """List the artifacts in the cache with their sizes. Exits with 1 if one cannot be read."""
    check_folder(cache_dir())
    cache = Cache(cache_dir())
    sizes: list[tuple[Artifact, float]] = []
    unreadable: list[LabError] = []
    for place in cache.places():
        try:
            artifact = cache.artifact(place)
            sizes += [] if artifact is None else [(artifact, disk_usage(place) / 1e6)]
        except LabError as error:
            unreadable.append(error)
    if sizes:
        rows = sorted([a.kind, a.label, a.key, f"{megabytes:.1f}"] for a, megabytes in sizes)
        printing.print_columns(["kind", "what", "key", "MB"], rows)
    typer.echo(f"{sum(megabytes for _, megabytes in sizes):.1f} MB in {cache.root}")
    if len(unreadable) == 1:
        raise unreadable[0]
    if unreadable:
        what, hint = f"{len(unreadable)} entries of the cache cannot be read", f"set them aside: {PROGRAM} cache verify"
        raise LabError(what, detail=[error.what for error in unreadable], hint=hint)


def prune(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND...]",
            help="Only these kinds: kernels, modules, kernel-source, environments, ...",
            autocompletion=completion.cache_kinds,
        ),
    ] = None,
    keep_days: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help=f"Keep entries used in the last N days; default: {_KEEP_DAYS}."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every entry that is not in use.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed; remove nothing.")] = False,
) -> None:
    """Remove unused and unfinished cache entries. The lab makes them again when it needs them."""
    wanted_kinds = [_kind(name) for name in kinds] if kinds else list(Kind)
    if everything and keep_days is not None:
        raise UsageError("--all and --keep-days exclude each other", hint="leave one of them out")
    check_folder(cache_dir())
    cache = Cache(cache_dir())
    unused_since = ALL if everything else time.time() - (_KEEP_DAYS if keep_days is None else keep_days) * 86_400
    entries = cache_entries(cache)
    leaving = [entry for entry in entries if entry.kind in wanted_kinds and entry.used <= unused_since]
    if dry_run:
        removals = [Removal(entry, disk_usage(entry.path), not entry.in_use()) for entry in leaving]
    else:
        removals = remove(leaving, unused_since)
    done = "to remove" if dry_run else "removed"
    rows = []
    for removal in removals:
        state, megabytes = done if removal.is_done else "kept: in use", f"{removal.size / 1e6:.1f}"
        date = time.strftime("%Y-%m-%d", time.localtime(removal.entry.used)) if removal.entry.used else "never"
        rows.append([state, removal.entry.kind, removal.entry.label, megabytes, date])
    if rows:
        printing.print_columns(["", "kind", "what", "MB", "last used"], rows)
    verb = "would be freed" if dry_run else "freed"
    sizes = [removal.size for removal in removals if removal.is_done]
    freed = f"{sum(sizes) / 1e6:.1f} MB {verb} in {cache.root}"
    typer.echo(f"{freed}; {len(entries) - len(sizes)} of {len(entries)} entries stay")


def verify(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List damaged artifacts; set nothing aside.")] = False,
) -> None:
    """Read every file of every artifact, and set damaged artifacts aside. The lab makes them again when needed.

    Exits with 1 if an artifact is damaged.
    """
    check_folder(cache_dir())
    cache = Cache(cache_dir())
    reported, number, rows = time.monotonic(), 0, []
    for number, (artifact, damage) in enumerate(verified(cache), start=1):
        if damage is not None:
            outcome = "damaged"
            try:
                if not dry_run:
                    set_aside(cache, artifact, damage)
                    outcome = "set aside"
            except LabError as error:
                printing.say(f"{artifact.kind} {artifact.label}: {error}")
            rows.append([outcome, artifact.kind, artifact.label, artifact.key, str(damage)])
        if time.monotonic() - reported > 10.0:
            reported = time.monotonic()
            printing.say(f"{number} artifacts verified, now at {artifact.kind}")
    if rows:
        printing.print_columns(["", "kind", "what", "key", "damage"], rows)
    typer.echo(f"{len(rows)} of {number} artifacts damaged in {cache.root}")
    raise typer.Exit(1 if rows else 0)


def _kind(name: str) -> Kind:
    names: Iterable[str] = [kind.value for kind in Kind]
    words = name.replace(",", " ").split()
    if len(words) > 1 and set(words) <= set(names):
        raise UsageError(f"found {name!r}; give each kind as a separate argument: {' '.join(words)}")
    if name not in names:
        raise UsageError(unknown("kind", name, list(names)))
    return Kind(name)


def build_kernel(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help=f"Kernels; see: {PROGRAM} build kernels.", autocompletion=completion.kernels
        ),
    ],
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Build kernels from source (or fetch Debian's), and print the paths of their images."""
    specs = [kernel_spec(name) for name in names]
    with options.building(offline=offline, verbose=verbose) as context:
        if not offline:
            check_all_installed({name: what for spec in specs for name, what in kernel_lists(context, spec).items()})
        for spec in specs:
            built = ready_kernel(context, spec)
            if built.implied:
                implied = ", ".join(f"{option}={value}" for option, value in built.implied.items())
                printing.say(f"the options of {spec.name} also set {implied}")
            typer.echo(built.image)


def show_kernels(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            help="Only these, or the paths of your own build trees.",
            autocompletion=completion.kernels,
        ),
    ] = None,
) -> None:
    """List the kernels, and the features of those in the cache by their configuration."""
    context = BuildContext(Cache(cache_dir()), offline=True)
    specs = [kernel_spec(name) for name in names] if names else kernels().values()
    columns = list(features({}))
    rows = []
    for spec in specs:
        try:
            kernel = ready_kernel(context, spec)
            with_feature = features(kernel.config)
            rows.append([spec.name, kernel.release, *(with_feature[column] for column in columns)])
        except HostError:
            if spec.tree is not None:
                raise
            rows.append([spec.name, "not built", *("" for _ in columns)])
    printing.print_columns(["kernel", "release", *columns], rows)


def build_image(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help=f"Images (see: {PROGRAM} build images), or the paths of your own recipes.",
            autocompletion=completion.images,
        ),
    ],
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Build images, and print the paths of their read-only bases; guests write to overlays."""
    recipes = [image(name) for name in names]
    with options.building(offline=offline, verbose=verbose) as context:
        for recipe in recipes:
            typer.echo(ready_image(context, recipe).base)


def show_images(
    packages: Annotated[
        str | None,
        typer.Option(
            "--packages",
            metavar="NAME",
            help="List the packages of this image and their versions.",
            autocompletion=completion.images,
        ),
    ] = None,
) -> None:
    """List the images, with the size and contents of those in the cache."""
    context = BuildContext(Cache(cache_dir()), offline=True)
    if packages is not None:
        recipe = image(packages)
        cached = cached_image(context, recipe)
        if cached is None:
            hint = f"{PROGRAM} build image {packages}"
            raise HostError(f"image {recipe.name} is not built, so its packages are not known", hint=hint)
        printing.print_columns(["package", "version"], sorted(cached.packages.items()))
        return
    rows = []
    for recipe in images().values():
        cached = cached_image(context, recipe)
        facts = [recipe.name, recipe.arch, recipe.init]
        if cached is None:
            rows.append([*facts, "not built", "", "", recipe.title])
        else:
            megabytes = cached.base.stat().st_blocks * 512 / 1e6
            rows.append([*facts, f"{megabytes:.1f}", str(len(cached.packages)), cached.tree[:12], recipe.title])
    printing.print_columns(["image", "arch", "init", "MB", "packages", "files", ""], rows)


_PLACE = re.compile(r"([A-Za-z0-9_.]+)\+(0x[0-9a-fA-F]{1,8}|[1-9][0-9]{0,8}|0)")

Template = Annotated[
    str,
    typer.Argument(
        help="A module of the lab, such as kprobe or djprobe, or the path of your own template.",
        autocompletion=completion.templates,
    ),
]


def render(
    template: Template,
    kernel: options.Kernel = "debian-686",
    symbol: options.Symbol = None,
    offset: options.Offset = None,
    out: options.OutputFolder = None,
) -> None:
    """Render a module's template to C. Prints the main file, or writes all files into a folder."""
    _check(template, symbol, out)
    if _is_folder(template):
        raise UsageError("a folder has its source, which nothing renders", where=template)
    source = _source(template, kernel_spec(kernel), symbol, offset)
    if out is None:
        typer.echo(source.files[f"{source.name}_main.c"], nl=False)
        return
    source.write(out)
    print(f"{len(source.files)} files in {out}", file=sys.stderr)


def build_module(
    template: Template,
    kernel: options.Kernel = "debian-686",
    symbol: options.Symbol = None,
    offset: options.Offset = None,
    out: options.OutputFolder = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Build a module for a kernel, and print the path of the .ko.

    It is named lab_NAME.ko, or own_NAME.ko for your own NAME.c or NAME.c.j2. The modules of a folder with a Kbuild have
    the names that this gives them; FOLDER:NAME builds one of them, and those that it needs.
    """
    path, member = split_member(template)
    _check(path, symbol, out)
    if _is_folder(path) and (symbol, offset) != (None, None):
        raise UsageError("a folder's make takes no --symbol and no --offset", where=template)
    spec = kernel_spec(kernel)
    with options.building(offline=offline, verbose=verbose) as context:
        built = ready_kernel(context, spec)
        modules: Sequence[Module | BuildError]
        if _is_folder(path):
            in_folder = folder_modules(context, built, user_path(path), {})
            modules = list(in_folder.values()) if member is None else with_needed(in_folder, user_path(path), member)
        else:
            symbol = symbol or _usual_symbol(spec)
            _check_place(built, symbol, offset)
            source = _source(template, spec, symbol, built.entry_offset(symbol) if offset is None else offset)
            modules = build_modules(context, built, [source])
    for module in modules:
        if isinstance(module, BuildError):
            raise module
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        typer.echo(module.file if out is None else shutil.copy(module.file, out))


def _is_folder(template: str) -> bool:
    return is_path(template) and user_path(template).is_dir()


def size(
    kernel: options.Kernel = "lab-i386-up",
    listing: Annotated[
        bool, typer.Option("--listing", help="Print the disassembly too; | marks the unlikely path.")
    ] = False,
    offline: options.Offline = False,
) -> None:
    """Print the bytes that a kernel marker adds to a function, with those published in 2006."""
    context = options.open_context(offline=offline)
    built = ready_kernel(context, kernel_spec(kernel))
    (module,) = build_modules(context, built, [render_module("marker_sizes", {})])
    if isinstance(module, BuildError):
        raise module
    console = Console()
    file = read_object(module.file)
    for line in chain(size_lines(file, built.spec.name), listing_lines(file) if listing else ()):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _check(template: str, symbol: str | None, out: Path | None) -> None:
    if is_path(template):
        if find_module(template).suffix == ".ko":
            hint = f"load it into a guest: {PROGRAM} exec --module {shlex.quote(template)} -- COMMAND"
            raise UsageError(f"found {template!r}; it is built already and has no source", hint=hint)
    elif template.endswith(SUFFIXES):
        raise UsageError(f"found {template!r}; name your own file by a path with a slash: ./{template}")
    elif template not in templates():
        raise UsageError(unknown("module", template, templates()))
    if symbol is not None and (place := _PLACE.fullmatch(symbol)):
        hint = f"--symbol {place[1]} --offset {int(place[2], 0)}"
        raise UsageError(f"--symbol: found {symbol!r}; give the offset as a separate option", hint=hint)
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError("--out needs a folder, and this is a file", where=str(out))


def _check_place(kernel: Kernel, symbol: str, offset: int | None) -> None:
    """Raise UsageError for an invalid place in the kernel; an unknown function may be a module's."""
    reason = None if kernel.code is None else wrong_point_reason(kernel.code, symbol, offset)
    if reason is None or kernel.code is None:
        return
    if kernel.code.named(symbol):
        raise UsageError(f"kernel {kernel.spec.name}: {reason}", where="--symbol, --offset")
    print(f"note: kernel {kernel.spec.name}: {reason}; a module loaded earlier may have it", file=sys.stderr)


def _source(template: str, spec: KernelSpec, symbol: str | None, offset: int | None) -> ModuleSource:
    benchmark = benchmarks()["gtodbench"]
    assert benchmark.call is not None
    symbol = symbol or _usual_symbol(spec)
    values: dict[str, Value] = {
        "symbol": symbol,
        "offset": spec.entry_offset if offset is None else offset,
        "number": system_calls()[benchmark.call].number(spec.arch, "auto") or 0,
        "wrapper": int(is_wrapper(symbol)),
    }
    if is_path(template):
        return render_own(find_module(template), values)
    return render_module(template, values)


def _usual_symbol(spec: KernelSpec) -> str:
    return benchmarks()["gtodbench"].symbols[spec.arch]["auto"]
