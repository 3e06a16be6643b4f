# SPDX-License-Identifier: GPL-2.0-only
"""Is the commit found that has changed a cost, whichever it is, and whatever cannot be measured?"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from user_trees import git

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, Revision
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.results.bisection_result import BisectionResult, Measured
from orchestrator.results.commit_heads import Commit
from orchestrator.run.bisection import Bisection, NotMeasured

COMMITS = 9
FILE = "cost"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[GitTree, list[str]]:
    """Commits whose file has their number, the oldest first, and the tree with them."""
    top = tmp_path_factory.mktemp("history")
    git(top, "init", "--quiet")
    commits = []
    for number in range(COMMITS):
        (top / FILE).write_text(str(number))
        git(top, "add", FILE)
        git(top, "commit", "--quiet", "--message", f"number {number}")
        commits.append(git(top, "rev-parse", "HEAD"))
    with GitTree.open(Cache(tmp_path_factory.mktemp("cache")), top) as tree:
        return tree, commits


def bisected(
    history: tuple[GitTree, list[str]], cost: Callable[[int], Measured | None], ends: tuple[int, int] = (0, COMMITS - 1)
) -> BisectionResult:
    """What is found where commit number N costs ``cost(N)``; it has no number where that is None."""
    tree, commits = history

    def measure(commit: Commit) -> Measured:
        number = int((tree.folder / FILE).read_text())
        assert (commit.hash, commit.subject) == (commits[number], f"number {number}")
        measured = cost(number)
        if measured is None:
            raise NotMeasured("does not build", detail=["error: expected ';'"])
        return measured

    good, bad = (Revision(tree.top, commits[end], f"end{end}") for end in ends)
    return Bisection(tree, measure, lambda text: None).between(good, bad)


@settings(max_examples=settings().max_examples // 6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.integers(1, COMMITS - 1),
    skipped=st.sets(st.integers(1, COMMITS - 2)),
    costs=st.sampled_from([(100.0, 101.0), (101.0, 100.0), (6e9, 6e9 + 1), (-1.0, 1.0)]),
)
@example(first=4, skipped=set(range(1, COMMITS - 1)), costs=(1.0, 2.0))
def test_the_commit_is_found_or_hidden_by_skipped_ones(
    history: tuple[GitTree, list[str]], first: int, skipped: set[int], costs: tuple[float, float]
) -> None:
    found = bisected(history, lambda n: None if n in skipped else Measured(costs[n >= first]))
    numbers = [history[1].index(candidate.hash) for candidate in found.candidates]
    assert first in numbers or all(n in skipped for n in range(first, max(numbers)))
    # All candidates but the newest were skipped, and nothing else lies between them.
    assert numbers == sorted(numbers, reverse=True)
    assert set(numbers[1:]) <= skipped
    assert numbers[-1] <= first <= numbers[0]
    if not skipped:
        assert numbers == [first]
        assert len(found.tried) <= 2 + 4
    assert {history[1].index(tried.commit.hash) for tried in found.skipped} <= skipped


def test_a_commit_belongs_to_the_nearer_end(history: tuple[GitTree, list[str]]) -> None:
    """One that costs some more than good is not the one that made it dear."""
    found = bisected(history, lambda n: Measured([100, 101, 101, 120, 160, 200, 200, 201, 200][n]))
    (commit,) = found.candidates
    assert commit.subject == "number 4"
    assert commit.author == "A Person"


def test_ends_that_do_not_differ_are_refused(history: tuple[GitTree, list[str]]) -> None:
    with pytest.raises(UsageError, match="cost the same, 5 and 5"):
        bisected(history, lambda n: Measured(5.0))
    with pytest.raises(UsageError, match="cost the same, 100 and 104"):
        bisected(history, lambda n: Measured(100.0 + n / 2, scatter=2.5))


@pytest.mark.parametrize("end", [0, COMMITS - 1])
def test_an_end_without_a_number_ends_it(history: tuple[GitTree, list[str]], end: int) -> None:
    with pytest.raises(LabError, match=f"end, end{end} .* has no number: does not build"):
        bisected(history, lambda n: None if n == end else Measured(float(n)))


def measured_too_early(number: int) -> Measured:
    raise AssertionError(f"number {number} was measured")


def test_ends_in_the_wrong_order_are_refused_before_they_are_built(history: tuple[GitTree, list[str]]) -> None:
    with pytest.raises(UsageError, match="end0, is an ancestor of the good one, end8") as caught:
        bisected(history, measured_too_early, (COMMITS - 1, 0))
    assert caught.value.hint.startswith("swap --good and --bad")
    with pytest.raises(UsageError, match="end3 and end3 are one commit"):
        bisected(history, measured_too_early, (3, 3))


@pytest.mark.parametrize(("first", "subject"), [(4, "number 4"), (2, "")])
def test_ends_on_two_branches_begin_at_their_merge_base(
    history: tuple[GitTree, list[str]], first: int, subject: str
) -> None:
    """A merge base that is bad leaves nothing to find between it and the bad end."""
    tree, commits = history
    other = git(tree.top, "commit-tree", "-m", "elsewhere", "-p", commits[3], f"{commits[0]}^{{tree}}")
    ends = Revision(tree.top, other, "elsewhere"), Revision(tree.top, commits[6], "end6")

    def measure(commit: Commit) -> Measured:
        return Measured(float(int((tree.folder / FILE).read_text()) >= first))

    bisection = Bisection(tree, measure, lambda text: None)
    if subject:
        assert [candidate.subject for candidate in bisection.between(*ends).candidates] == [subject]
    else:
        with pytest.raises(LabError, match="git cannot bisect") as caught:
            bisection.between(*ends)
        assert "merge base" in str(caught.value)


def test_after_one_that_was_interrupted_it_begins_anew(history: tuple[GitTree, list[str]]) -> None:
    def interrupted() -> Iterator[Measured]:
        yield Measured(0.0)
        yield Measured(1.0)
        raise KeyboardInterrupt

    costs = interrupted()
    with pytest.raises(KeyboardInterrupt):
        bisected(history, lambda n: next(costs))
    assert [candidate.subject for candidate in bisected(history, lambda n: Measured(float(n > 5))).candidates] == [
        "number 6"
    ]


def test_ends_that_a_shallow_clone_keeps_apart_are_refused_with_the_command_that_helps(
    history: tuple[GitTree, list[str]], tmp_path: Path
) -> None:
    top, commits = history[0].top, history[1]
    git(top, "tag", "old", commits[1])
    git(tmp_path, "clone", "--quiet", "--depth=2", f"file://{top}", "mine")
    git(tmp_path / "mine", "fetch", "--quiet", "--depth=1", "origin", "tag", "old")
    good, bad = (Revision(tmp_path / "mine", commits[number], name) for number, name in ((1, "old"), (-1, "HEAD")))
    measured = []

    def measure(commit: Commit) -> Measured:
        measured.append(commit.hash)
        return Measured(float(commits.index(commit.hash) > 4))

    def found() -> BisectionResult:
        with GitTree.open(Cache(tmp_path / "cache"), tmp_path / "mine") as tree:
            return Bisection(tree, measure, lambda text: None).between(good, bad)

    with pytest.raises(UsageError, match="old and HEAD have no history in common in this shallow clone") as caught:
        found()
    assert not measured
    subprocess.run(shlex.split(caught.value.hint), check=True, capture_output=True)
    assert [candidate.hash for candidate in found().candidates] == [commits[5]]


def test_an_end_that_cannot_be_checked_out_is_found_before_the_other_is_measured(
    history: tuple[GitTree, list[str]], tmp_path: Path
) -> None:
    top, commits = history[0].top, history[1]
    git(top, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--no-checkout", "--filter=blob:none", f"file://{top}", "mine")

    def measure(commit: Commit) -> Measured:
        pytest.fail(f"{commit.hash} is measured")

    with GitTree.open(Cache(tmp_path / "cache"), tmp_path / "mine") as tree:
        tree.check_out(commits[0])
        git(tmp_path / "mine", "remote", "set-url", "origin", str(tmp_path / "away"))
        ends = (Revision(tmp_path / "mine", commits[number], "") for number in (0, -1))
        with pytest.raises(HostError, match=f"the objects of {commits[-1][:12]} cannot be fetched"):
            Bisection(tree, measure, lambda text: None).between(*ends)
