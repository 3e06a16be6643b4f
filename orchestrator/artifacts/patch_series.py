# SPDX-License-Identifier: GPL-2.0-only
"""The commits of a patch series, in order, and what their messages say of themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.artifacts.git_tree import GitTree, Revision, find_revision, is_shallow, unshallowing
from orchestrator.errors import UsageError
from orchestrator.paths import user_path
from orchestrator.results.commit_heads import SeriesCommit

MOST_COMMITS = 1000
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{7,64})", re.MULTILINE)
_FORM = "[TREE@]BASE..TOPIC, such as v7.3..HEAD, or ./linux@v7.3..my-series"


def ends_of(text: str, tree: str) -> tuple[Revision, Revision]:
    """The base and the topic of ``[TREE@]BASE..TOPIC``, by default of the repository in ``tree``. Raises UsageError."""
    place, mark, span = text.partition("@")
    if not mark or not user_path(place).is_dir():
        place, span = tree, text
    place = f"{place.rstrip('/')}/"
    base, dots, topic = span.partition("..")
    if not dots or topic.startswith("."):
        raise UsageError(f"found {text!r}; expected {_FORM}")
    return find_revision(f"{place}@{base or 'HEAD'}"), find_revision(f"{place}@{topic or 'HEAD'}")


def series(tree: GitTree, base: Revision, topic: Revision) -> Sequence[SeriesCommit]:
    """Where the series begins, then its commits, oldest first; a merge stands for all that it brings.

    Raises UsageError for ends without common history, and for a series that is empty or too long.
    """
    common = tree.git("merge-base", base.commit, topic.commit)
    if common.status != 0:
        is_cut = is_shallow(tree.folder)
        hint = unshallowing(str(tree.top), whole=False) if is_cut else "name two commits of one history"
        raise UsageError(f"{base.name} and {topic.name} have no history in common", hint=hint)
    span = f"{common.stdout.strip()}..{topic.commit}"
    listed = tree.succeed("rev-list", "--reverse", "--first-parent", span, "--").split()
    if not listed:
        raise UsageError(f"{topic.name} has no commit that {base.name} lacks", hint=f"the form is {_FORM}")
    if len(listed) > MOST_COMMITS:
        what = f"{base.name}..{topic.name} has {len(listed)} commits, and a series has at most {MOST_COMMITS}"
        raise UsageError(what, hint="bisect finds the commit that changed a cost")
    # A topic that has merged the base since begins before the merge base.
    return [_read(tree, commit) for commit in (tree.parent(listed[0]), *listed)]


def _read(tree: GitTree, commit: str) -> SeriesCommit:
    text = tree.succeed("log", "-1", "--no-show-signature", "--format=%P%n%ae%n%B", commit, "--")
    parents, email, body = text.split("\n", 2)
    reverts = _REVERTS.search(body)
    return SeriesCommit(tree.commit(commit), email, len(parents.split()) > 1, reverts[1] if reverts else "")
