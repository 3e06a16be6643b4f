# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator cache``: what was fetched and built, how much room it takes, and making some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion, options
from orchestrator.cli.columns import print_columns
from orchestrator.cli.failures import expected_failures
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.artifacts.cache_entries import Kind
    from orchestrator.artifacts.pruning import Removal
    from orchestrator.artifacts.verification import Verified

app = typer.Typer(help="What was fetched and built.", no_args_is_help=True)

_DAY = 86_400
_KEEP_DAYS = 30
_SAY_INTERVAL = 10.0


@app.command("show")
@expected_failures
def show() -> None:
    """List the artifacts in the cache with their sizes. Exits with 1 where one cannot be read."""
    from orchestrator.artifacts.cache import Artifact, Cache
    from orchestrator.artifacts.cache_faults import check_folder
    from orchestrator.errors import LabError
    from orchestrator.paths import cache_dir

    check_folder(cache_dir())
    cache = Cache(cache_dir())
    found: list[Artifact] = []
    unreadable: list[LabError] = []
    for place in cache.places():
        try:
            artifact = cache.artifact(place)
        except LabError as error:
            unreadable.append(error)
        else:
            found += [] if artifact is None else [artifact]
    sizes = [(one, one.size() / 1e6) for one in sorted(found, key=lambda one: (one.kind, one.label, one.key))]
    if sizes:
        rows = ([a.kind, a.label, a.key, f"{megabytes:.1f}"] for a, megabytes in sizes)
        print_columns(["kind", "what", "key", "MB"], rows)
    typer.echo(f"{sum(megabytes for _, megabytes in sizes):.1f} MB in {cache.root}")
    if len(unreadable) == 1:
        raise unreadable[0]
    if unreadable:
        what, hint = f"{len(unreadable)} entries of the cache cannot be read", f"set them aside: {PROGRAM} cache verify"
        raise LabError(what, detail=[error.what for error in unreadable], hint=hint)


@app.command("prune")
@expected_failures
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
        typer.Option(min=0, metavar="N", help=f"Keep what was used in the last N days; default: {_KEEP_DAYS}."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all that is not in use just now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed; remove nothing.")] = False,
) -> None:
    """Remove what has not been used for a while, and what was left unfinished. It is made anew when it is needed."""
    import time

    from orchestrator.artifacts.cache import Cache
    from orchestrator.artifacts.cache_entries import Kind, cache_entries
    from orchestrator.artifacts.cache_faults import check_folder
    from orchestrator.artifacts.pruning import ALL, Removal, fates, freed, remove
    from orchestrator.errors import UsageError
    from orchestrator.paths import cache_dir

    wanted = [_kind(name) for name in kinds] if kinds else list(Kind)
    if everything and keep_days is not None:
        raise UsageError("--all removes all that is not in use, and --keep-days keeps some of it", hint="leave one out")
    check_folder(cache_dir())
    cache = Cache(cache_dir())
    unused_since = ALL if everything else time.time() - (_KEEP_DAYS if keep_days is None else keep_days) * _DAY
    found = cache_entries(cache)
    decided = fates(found, unused_since, wanted)
    leaving = [fate.entry for fate in decided if not fate.stays]
    if dry_run:
        sizes = freed(leaving)
        removals = [Removal(entry, size, not entry.in_use()) for entry, size in zip(leaving, sizes, strict=True)]
    else:
        removals = remove(leaving, unused_since)
    done = "would go" if dry_run else "removed"
    rows = [
        [done if one.is_done else "kept: in use", one.entry.kind, one.entry.label, *_facts(one)] for one in removals
    ]
    rows += [
        [f"kept: {fate.stays}", fate.entry.kind, fate.entry.label, "", _date(fate.entry.used)]
        for fate in decided
        if fate.stays
    ]
    if rows:
        print_columns(["", "kind", "what", "MB", "last used"], rows)
    verb = "would be freed" if dry_run else "freed"
    gone = [one.size for one in removals if one.is_done]
    freed_now = f"{sum(gone) / 1e6:.1f} MB {verb} in {cache.root}"
    typer.echo(f"{freed_now}; {len(found) - len(gone)} of {len(found)} things stay")


@app.command("verify")
@expected_failures
def verify(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what is damaged; set nothing aside.")] = False,
    offline: options.Offline = False,
) -> None:
    """Read every file of every artifact, set aside what is damaged, and make it anew where that needs no experiment.

    The status is 1 where something was damaged.
    """
    from orchestrator.artifacts.cache_faults import check_folder
    from orchestrator.artifacts.remaking import remake
    from orchestrator.artifacts.verification import Verification
    from orchestrator.errors import LabError
    from orchestrator.paths import cache_dir

    check_folder(cache_dir())
    context = options.open_context(offline=offline)
    verification = Verification(context.cache)
    verified = [*_with_progress(verification.all(), context.say)]
    rows = []
    for each in verified:
        if each.damage is None:
            continue
        outcome = "damaged"
        try:
            if not dry_run:
                verification.set_aside(each)
                outcome = "set aside"  # who needs it makes it anew
                outcome = "made anew" if remake(context, each.artifact) else outcome
        except LabError as error:
            context.say(f"{each.artifact.kind} {each.artifact.label}: {error}")
        rows.append([outcome, each.artifact.kind, each.artifact.label, each.artifact.key, str(each.damage)])
    if rows:
        print_columns(["", "kind", "what", "key", "damage"], rows)
    new = sum(each.is_new for each in verified)
    recorded = f"; {new} of earlier versions recorded as they are" if new else ""
    typer.echo(f"{len(rows)} of {len(verified)} artifacts damaged in {context.cache.root}{recorded}")
    raise typer.Exit(1 if rows else 0)


def _with_progress(verified: Iterator[Verified], say: Callable[[str], None]) -> Iterator[Verified]:
    """Say every ten seconds how far it is."""
    import time

    said = time.monotonic()
    for number, each in enumerate(verified, start=1):
        yield each
        if time.monotonic() - said > _SAY_INTERVAL:
            said = time.monotonic()
            say(f"{number} artifacts are verified, now {each.artifact.kind}")


def _kind(name: str) -> Kind:
    from orchestrator.artifacts.cache_entries import Kind
    from orchestrator.catalog.spelling import unknown
    from orchestrator.errors import UsageError

    names: Iterable[str] = [kind.value for kind in Kind]
    words = name.replace(",", " ").split()
    if len(words) > 1 and set(words) <= set(names):
        raise UsageError(f"found {name!r}; each kind is an argument of its own: {' '.join(words)}")
    if name not in names:
        raise UsageError(unknown("kind", name, list(names)))
    return Kind(name)


def _facts(removal: Removal) -> list[str]:
    return [f"{removal.size / 1e6:.1f}", _date(removal.entry.used)]


def _date(used: float) -> str:
    import time

    return time.strftime("%Y-%m-%d", time.localtime(used)) if used else "never"
