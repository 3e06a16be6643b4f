# SPDX-License-Identifier: GPL-2.0-only
"""Does ``diff`` compare the cells that are meant, print what differs, and say what is wrong with what was asked for?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from called_commands import orchestrator, refusal
from record_builders import cell, failed
from stored_profiles import profile, record, stacked, store_run

pytestmark = pytest.mark.usefixtures("lab")

NONE, KPROBE = "pentium4/debian-686/none/noop", "pentium4/debian-686/kprobe/noop"
CALL = {"call": "gettimeofday", "arguments": '[{"buffer": 16}, 0]', "entry": "sysenter", "outcome": "always 0"}
BASE = {"callbench": 13, "callbench;entry": 40, "callbench;entry;gettimeofday": 20}
TRAP = {"callbench;entry;gettimeofday;int3": 30, "callbench;entry;gettimeofday;int3;handler [lab_kprobe]": 2}


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run of a baseline and a kprobe, with stacks, and of a cell without a profile and a failed one."""
    folder = tmp_path / "run"
    return store_run(
        tmp_path / "lab",
        folder,
        record(stacked(NONE, BASE), "none", folder, parameters=CALL),
        record(stacked(KPROBE, BASE | TRAP), "kprobe", folder, parameters=CALL),
        cell("djprobe"),
        failed("jprobe", "the guest hangs\nconsole's last lines"),
    )


def rows(*arguments: str) -> list[list[str]]:
    result = orchestrator(*arguments)
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_two_cells_of_a_run(run: str) -> None:
    printed = rows("diff", "latest:none", f"{run}:kprobe")
    assert ["int3", "-", "30", "+30", "new"] in printed
    assert ["handler", "[lab_kprobe]", "-", "2", "+2", "new"] in printed
    assert ["all", "73", "105", "+32"] in printed
    assert ["3", "symbols", "are", "equal", "in", "both."] in printed
    assert "different" not in str(printed)


def test_unlisted_symbols_are_summed_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    before = profile(NONE, {"same": 7, **{f"gone{n}": 2 for n in range(4)}, "f": 5})
    after = profile(KPROBE, {"same": 7, **{f"new{n}": 10 + n for n in range(30)}, "f": 9})
    store_run(tmp_path / "lab", folder, record(before, "none", folder), record(after, "kprobe", folder))
    listed = rows("diff", "latest:none", "latest:kprobe")
    assert ["new10", "-", "20", "+20", "new"] in listed
    assert [row[0] for row in listed if row and row[0].startswith("new")] == [f"new{n}" for n in range(29, 9, -1)]
    # new0 to new9, four that are gone, and f.
    assert ["15", "others", "13", "154", "+141"] in listed
    assert ["all", "20", "751", "+731"] in listed
    assert ["4", "others", "8", "0", "-8"] in rows("diff", "latest:none", "latest:kprobe", "--limit", "31")
    assert "others" not in str(rows("diff", "latest:none", "latest:kprobe", "--limit", "0"))
    assert "others" not in str(rows("diff", "latest:none", "latest:kprobe", "--limit", "34"))
    assert ["28", "others", "601", "80.0", "%"] in rows("profile", "latest", "kprobe", "--limit", "4")


def test_two_runs_are_compared_cell_by_cell(run: str, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    other = store_run(
        tmp_path / "lab",
        folder,
        record(stacked(KPROBE, BASE | TRAP | {"callbench;entry": 41}), "kprobe", folder, parameters=CALL),
        cell("djprobe"),
    )
    result = orchestrator("diff", run, other)
    assert result.exit_code == 0
    assert f"runs {run} -> {other}" in result.stdout
    left_out = [f"pentium4/debian-686/{probe}/noop" for probe in ("none", "djprobe", "jprobe")]
    assert result.stderr == f"not compared, without a profile in both runs: {', '.join(left_out)}\n"
    assert "runs" not in orchestrator("diff", f"{run}:kprobe", f"{run}:kprobe").stdout
    assert ["entry", "40", "41", "+1"] in [line.split() for line in result.stdout.splitlines()]
    assert result.stdout.count("equal in both") == 1


def test_a_run_s_directory_may_have_a_colon(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").rename(tmp_path / "a:b")
    monkeypatch.chdir(tmp_path)
    assert orchestrator("diff", "./a:b", "./a:b").exit_code == 0
    assert orchestrator("diff", "./a:b:none", "./a:b:kprobe").exit_code == 0


def test_the_instructions_of_a_function(run: str) -> None:
    printed = rows("diff", "latest:none", "latest:kprobe", "--symbol", "int3")
    assert ["nop", "+0x0", "-", "30", "+30", "new"] in printed
    assert "calls of neither cell execute 'int4'" in refusal("diff", "latest:none", "latest:kprobe", "--symbol", "int4")


def test_the_tree_of_calls(run: str) -> None:
    assert ["gettimeofday", "52", "20", "49.5", "%"] in rows("profile", "latest", "kprobe", "--tree")


def test_programs_get_documented_answers(run: str) -> None:
    """As docs/profiles.md has them."""
    commands = [
        ("diff", "latest:none", "latest:kprobe"),
        ("diff", "latest:none", "latest:kprobe", "--symbol", "int3"),
        ("profile", "latest", "kprobe"),
        ("profile", "latest", "kprobe", "--tree"),
    ]
    documented = (Path(__file__).parents[3] / "docs" / "profiles.md").read_text()
    for arguments in commands:
        answer = json.loads(orchestrator(*arguments, "--format", "json", "--limit", "1").stdout)
        assert not [key for key in sorted(keys_of(answer)) if f"`{key}`" not in documented], arguments


def keys_of(answer: Any) -> set[str]:
    """All keys but those of classes, which are names of instructions."""
    if isinstance(answer, list):
        return {key for one in answer for key in keys_of(one)}
    if not isinstance(answer, dict):
        return set()
    return {*answer, *(key for name, one in answer.items() if name != "classes" for key in keys_of(one))}


def test_json_is_whole_and_its_sums_are_right(run: str) -> None:
    (answer,) = json.loads(orchestrator("diff", "latest:none", "latest:kprobe", "--format", "json").stdout)
    assert sum(one["change"] for one in answer["symbols"]) == answer["change"] == 32


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"call": "getpid", "arguments": "[]"}, 'different calls: gettimeofday({"buffer": 16}, 0) and getpid()'),
        ({"arguments": "[1]"}, 'different calls: gettimeofday({"buffer": 16}, 0) and gettimeofday(1)'),
        ({"entry": "int80"}, "different entries into the kernel: sysenter and int80"),
        ({"outcome": "always EFAULT"}, "different results of the calls: always 0 and always EFAULT"),
    ],
)
def test_other_calls_are_compared_and_named(changes: dict[str, str], note: str, run: str, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    other_cell = record(stacked(KPROBE, BASE), "kprobe", folder, parameters=CALL | changes)
    second = store_run(tmp_path / "lab", folder, other_cell)
    assert note.split() in rows("diff", f"{run}:none", f"{second}:kprobe")
    (answer,) = json.loads(orchestrator("diff", f"{run}:none", f"{second}:kprobe", "--format", "json").stdout)
    assert answer["notes"] == [note]


def test_another_architecture_is_named_and_has_no_common_instructions(run: str, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    made = stacked("xeon-e5410/debian-amd64/none/noop", BASE, arch="x86_64")
    other = store_run(tmp_path / "lab", folder, record(made, "none", folder, parameters=CALL))
    printed = rows("diff", f"{run}:none", f"{other}:none")
    assert ["different", "architectures:", "i386", "and", "x86_64"] in printed
    words = "instructions of i386 and of x86_64 cannot be compared"
    assert words in refusal("diff", f"{run}:none", f"{other}:none", "--symbol", "entry")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("latest:noop", "latest:kprobe"), "'latest:noop' names 4 cells"),
        (
            ("latest:none", "latest"),
            "'latest:none' names a cell, 'latest' a run hint: name a cell of both: latest:n",
        ),
        (("latest", "latest:none"), "hint: name a cell of both: latest:none"),
        (("latest:none", "latest:kprob"), "has no cell 'kprob'"),
        (("latest:none", "latest:djprobe"), "cell pentium4/debian-686/djprobe/noop has no profile hint: measure one"),
        (("nonsense:none", "latest:none"), "unknown run 'nonsense'"),
        (("none", "kprobe"), "Name a cell RUN:CELL: latest:none"),
        ((":none", "latest:kprobe"), "':none' has no run before the colon hint: name a cell RUN:CELL"),
        (("latest:none", "latest:kprobe", "--tree", "--symbol", "f"), "name one of them"),
        (("latest:none", "latest:kprobe", "--tree"), "--tree needs one cell, not two"),
        (("latest:none", "latest:kprobe", "--callgrind", "x"), "--callgrind needs one cell, not two"),
        (("latest:none", "latest:kprobe", "--lcov", "x"), "--lcov needs one cell, not two"),
        (("latest:none", "latest:kprobe", "--lines", "--symbol", "f"), "--lines and --annotate exclude each other"),
        (("debian-686", "--config", "nowhere.yaml"), "--config needs two kernels"),
        (("latest:none", "latest:kprobe", "--only", "none"), "--only and --set need --config"),
        (("debian-686", "lab-i386-up", "--config", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_cannot_be_compared_is_said(arguments: tuple[str, ...], words: str, run: str) -> None:
    assert words in refusal("diff", *arguments)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tree", "--annotate", "entry"), "--tree and --annotate exclude each other hint: name one of them"),
        (("--annotate", "entry", "--folded", "x"), "--annotate and --folded exclude each other"),
        (("--tree", "--callgrind", "x", "--flame-graph", "y"), "--tree and --callgrind, --flame-graph exclude"),
        (("--lines", "--tree"), "--lines and --tree exclude each other hint: name one of them"),
        (("--lines", "--lcov", "x"), "--lines and --lcov exclude each other"),
        (("--format", "json", "--annotate", "entry"), "--format json and --annotate exclude each other"),
        (("--format", "markdown", "--folded", "x"), "--format markdown and --folded exclude each other"),
        (("--folded", "x", "--callgrind", "no/such/y"), "no/such: this folder does not exist"),
    ],
)
def test_what_would_be_left_out_of_a_profile_is_refused(
    options: tuple[str, ...], words: str, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = orchestrator("profile", run, "kprobe", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in " ".join(result.stderr.split())
    assert not (tmp_path / "x").exists()


def test_a_cell_is_named_to_profile_as_to_diff(run: str, tmp_path: Path) -> None:
    assert rows("profile", "latest:kprobe") == rows("profile", run, "kprobe")
    files = ("--folded", str(tmp_path / "folded"), "--callgrind", str(tmp_path / "callgrind"))
    assert orchestrator("profile", f"{run}:kprobe", *files).exit_code == 0
    assert (tmp_path / "folded").exists()
    assert (tmp_path / "callgrind").exists()
    result = orchestrator("profile", "latest:kprob")
    assert (result.exit_code, "has no cell 'kprob'" in result.stderr) == (2, True)


def test_a_failed_cell_says_why(run: str) -> None:
    printed = refusal("diff", "latest:none", "latest:jprobe", status=1)
    assert f"cell pentium4/debian-686/jprobe/noop of run {run} is failed the guest hangs" in printed


def test_runs_without_a_common_profile_say_what_they_have(run: str, tmp_path: Path) -> None:
    plain = store_run(tmp_path / "lab", tmp_path / "plain", cell("kprobe"))
    assert f"no cell of {plain} has a profile hint: measure" in refusal("diff", run, plain)
    folder = tmp_path / "second"
    made = stacked("pentium4/lab-i386-up/none/noop", BASE)
    other = store_run(tmp_path / "lab", folder, record(made, "none", folder))
    printed = refusal("diff", run, other)
    assert f"no cell id has a profile in both {run} and {other}" in printed
    assert f"{other}:pentium4/lab-i386-up/none/noop" in printed


def test_without_stacks_there_is_no_tree(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    store_run(tmp_path / "lab", folder, record(profile(NONE, {"f": 1}), "none", folder))
    for option in (["--tree"], ["--flame-graph", str(tmp_path / "x.svg")]):
        assert "has no stacks hint: measure stacks" in refusal("profile", "latest:none", *option)


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (("debian-686", "debian-686"), "are the same kernel"),
        (("debian-686", "debian-68"), "unknown kernel 'debian-68'"),
        (("debian-686", "debian-amd64"), "kernel 'debian-amd64' is 64-bit and CPU 'pentium4' is 32-bit"),
        (("debian-686", "./nowhere"), "this kernel image or build tree does not exist"),
    ],
)
def test_kernels_that_cannot_be_compared_are_named_before_anything_happens(
    kernels: tuple[str, str], words: str, tmp_path: Path
) -> None:
    quickstart = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
    assert words in refusal("diff", *kernels, "--config", str(quickstart))
    assert not (tmp_path / "lab").exists()
