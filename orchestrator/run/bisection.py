# SPDX-License-Identifier: GPL-2.0-only
"""Which commit changed a cost: ``git bisect`` chooses commits, measurements judge them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.artifacts.git_tree import GitTree, Revision, is_shallow, unshallowing
from orchestrator.artifacts.submodules import SubmoduleError
from orchestrator.errors import LabError, UsageError
from orchestrator.program import PROGRAM
from orchestrator.results.bisection_result import BisectionResult, Measured, Tried
from orchestrator.results.commit_heads import Commit

# git 2.39 prints the word as it is, git 2.55 in quotes.
_FIRST_BAD = re.compile(r"^# first '?bad'? commit: \[([0-9a-f]{40,64})\]", re.MULTILINE)
_POSSIBLE = re.compile(r"^# possible first '?bad'? commit: \[([0-9a-f]{40,64})\]", re.MULTILINE)


class NotMeasured(LabError):
    """A commit has no number: it does not build, does not boot, or its cell failed. The bisection skips it."""


@dataclass
class Bisection:
    """A bisection between a ``good`` and a ``bad`` commit of one repository.

    A commit is bad if its value is nearer to the bad end's than to the good one's. ``measure`` is called with the
    commit checked out, and raises NotMeasured if there is no number. ``say`` gets a line for each step.
    """

    tree: GitTree
    measure: Callable[[Commit], Measured]
    say: Callable[[str], None]

    def between(self, good: Revision, bad: Revision) -> BisectionResult:
        """The first bad commit.

        Before anything is measured, raises UsageError if ``bad`` does not descend from ``good``, and LabError if an end
        cannot be checked out. Later raises UsageError if the ends do not differ, and LabError if one has no number.
        """
        self._check_order(good, bad)
        self.tree.check_out(good.commit, bad.commit)
        tried: list[Tried] = []
        ends = [self._end(revision, which, tried) for revision, which in ((good, "good"), (bad, "bad"))]
        least, most = (end.value for end in ends)
        if abs(most - least) <= sum(end.scatter for end in ends):
            raise UsageError(
                f"good and bad cost the same, {least:.10g} and {most:.10g}: there is no change to look for",
                hint=f"compare the two with: {PROGRAM} compare, or choose another cell with --cell",
            )
        self.tree.git("bisect", "reset", "HEAD")  # left by an interrupted bisection
        # git's own checkout would stop at what a build has changed, and leaves submodules as they are.
        self._bisect("start", "--no-checkout", bad.commit, good.commit, "--")
        try:
            while (candidates := self._candidates()) is None:
                commit = self.tree.commit("BISECT_HEAD")
                left = self.tree.succeed("rev-list", "--count", "refs/bisect/bad", "--not", "--glob=refs/bisect/good-*")
                self.say(f"{left.strip()} commits left; measuring {commit.short} {commit.subject}")
                attempt = self._try(commit)
                tried.append(attempt)
                verdict = "skip"
                if attempt.measured is not None:
                    value = attempt.measured.value
                    verdict = "bad" if abs(value - most) <= abs(value - least) else "good"
                self._bisect(verdict)  # git judges BISECT_HEAD, the commit that was measured
            return BisectionResult(candidates, tried)
        finally:
            self.tree.git("bisect", "reset", "HEAD")

    def _check_order(self, good: Revision, bad: Revision) -> None:
        if good.commit == bad.commit:
            raise UsageError(f"{good.name} and {bad.name} are one commit, {good.commit[:12]}", hint="name two commits")
        # For two branches git asks for their merge base first.
        if self.tree.git("merge-base", "--is-ancestor", bad.commit, good.commit).status == 0:
            raise UsageError(
                f"the bad commit, {bad.name}, is an ancestor of the good one, {good.name}",
                hint="swap --good and --bad: --good may be the more expensive one",
            )
        if self.tree.git("merge-base", good.commit, bad.commit).status != 0:
            is_cut = is_shallow(self.tree.folder)
            where = " in this shallow clone" if is_cut else ""
            raise UsageError(
                f"{good.name} and {bad.name} have no history in common{where}",
                hint=unshallowing(str(self.tree.top), whole=False) if is_cut else "name two commits of one history",
            )

    def _end(self, revision: Revision, which: str, tried: list[Tried]) -> Measured:
        commit = self.tree.commit(revision.commit)
        self.say(f"measuring the {which} end, {revision.name}: {commit.short} {commit.subject}")
        attempt = self._try(commit)
        if attempt.measured is None:
            what = f"the {which} end, {revision.name} ({commit.short}), has no number: {attempt.why_skipped}"
            raise LabError(what, hint="choose another commit that builds and boots")
        tried.append(attempt)
        return attempt.measured

    def _try(self, commit: Commit) -> Tried:
        try:
            self.tree.check_out(commit.hash)
            measured = self.measure(commit)
        except (NotMeasured, SubmoduleError) as error:
            self.say(f"{commit.short} is skipped: {error}")
            return Tried(commit, None, error.what)
        self.say(f"{commit.short} costs {measured.value:.10g} {measured.unit}")
        return Tried(commit, measured)

    def _bisect(self, *words: str) -> None:
        finished = self.tree.git("bisect", *words)
        if finished.status != 0 and self._candidates() is None:
            # For example if the merge base of two branches is bad: git's words are for the user.
            raise LabError("git cannot bisect between these commits", detail=finished.complaint())

    def _candidates(self) -> Sequence[Commit] | None:
        """The remaining candidates for the first bad commit, if the bisection has ended."""
        log = self.tree.git("bisect", "log").stdout
        first = _FIRST_BAD.search(log)
        if first:
            return [self.tree.commit(first[1])]
        possible = list(dict.fromkeys(_POSSIBLE.findall(log)))
        return [self.tree.commit(commit) for commit in possible] or None
