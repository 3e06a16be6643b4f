# SPDX-License-Identifier: GPL-2.0-only
"""Markdown as GitHub renders it: golden files, and that a guest's text stays text."""

from __future__ import annotations

import re

import pytest
from drawn_records import cells
from hostile_texts import hostile_texts
from hypothesis import given
from hypothesis import strategies as st
from modelled_cells import COUNTED, modelled_tables
from record_builders import (
    capabilities,
    cell,
    failed,
    mail_table,
    many_probes,
    marked_build,
    marker_loops,
    noop_list,
    recorded_build,
    run,
    wall_list,
)
from report_examples import RUNS
from report_text import check_golden

from orchestrator.benchmarks.registry import kinds, reports
from orchestrator.catalog.published_tables import claims
from orchestrator.experiment.file import load_experiment
from orchestrator.paths import data_dir
from orchestrator.report.claims import assess, decided_claims
from orchestrator.report.github_comment import COMMENT_LIMIT, details, github_comment
from orchestrator.report.highlights import Highlight, Rank
from orchestrator.report.markdown import escaped, render_markdown
from orchestrator.report.modelled_sheets import modelled_summary
from orchestrator.report.summary import SENTENCES, most_important, of_kernels, summary
from orchestrator.results.contract import CellRecord, RunRecord


@pytest.mark.parametrize("name", ["with_failures", "lists", "mail", "wall", "empty", "capabilities"])
def test_markdown_is_as_in_the_golden_file(name: str) -> None:
    check_golden(f"markdown_{name}.md", render_markdown(RUNS[name], reports()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("<script>&amp;", "&lt;script&gt;&amp;amp;"),
        ("*_`~[x](y)", "\\*\\_\\`\\~\\[x\\](y)"),
        ("@nobody broke #12", "@<!-- -->nobody broke #<!-- -->12"),
        ("see https://example.org and WWW.example.org", "see https&#58;//example.org and WWW&#46;example.org"),
        ("two\nlines", "two lines"),
        ("12.08", "12.08"),
    ],
)
def test_markup_is_shown_as_text(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_guests_lines_cannot_leave_their_fence() -> None:
    text = render_markdown(run(failed("kprobe", "it broke\n```\n# no heading\n````")), reports())
    assert "\n`````text\n```\n# no heading\n````\n`````\n" in text


def comment(parts: list[str], verdict: str = "all is well") -> str:
    text = github_comment("x --> y", verdict, parts, "6.1", "report latest")
    assert len(text) <= COMMENT_LIMIT
    assert text.startswith("<!-- probe-lab: x-----y -->\n\n")
    assert text.endswith("\n\n<sub>6.1</sub>\n")
    return text


def test_a_comment_has_a_mark_a_verdict_parts_and_what_it_was_made_with() -> None:
    text = "<!-- probe-lab: x-----y -->\n\n**no \\*luck\\***\n\none\n\ntwo\n\n<sub>6.1</sub>\n"
    assert comment(["one", "two"], "no *luck*") == text


def test_a_comment_that_is_too_long_says_what_prints_the_rest() -> None:
    rows = ["| a | b |", "| --- | ---: |", *(f"| cell {number} | {'9' * 90} |" for number in range(1000))]
    text = comment(["\n".join(rows), details("large", "x" * 9000), "small"])
    assert COMMENT_LIMIT - len(text) < 110
    kept = [line for line in text.splitlines() if line.startswith("| ")]
    assert kept == rows[: len(kept)]
    assert 500 < len(kept) < 1000
    assert "large" not in text
    assert "Shortened to fit into a comment of GitHub. All of it: report latest\n" in text
    assert "Shortened" not in comment(["\n".join(rows[:500])])


@given(st.lists(hostile_texts.map(lambda text: "| a |\n" + text * 3000), max_size=5), hostile_texts)
def test_any_comment_is_short_enough(parts: list[str], verdict: str) -> None:
    comment(parts, verdict * 1000)


@given(hostile_texts)
def test_a_summary_that_opens_cannot_leave_its_place(text: str) -> None:
    head, _, rest = details(text, "inside").partition("</summary>")
    assert rest == "\n\ninside\n\n</details>"
    assert not set(head.removeprefix("<details><summary>").replace("<!-- -->", "")) & set("<>\n")


def test_a_reason_cannot_begin_a_list_or_a_rule() -> None:
    text = render_markdown(run(failed("none", "- item"), failed("kprobe", "1. item", id="another")), reports())
    assert re.findall(r"^[ \t]*(?:-|\d+\.) .*", text, re.MULTILINE) == [
        "- Failed: 2 of 2 cells, the first pentium4/debian-686/none/noop: - item"
    ]


@given(st.lists(cells(), max_size=4, unique_by=lambda drawn: drawn.id))
def test_every_row_of_a_table_has_as_many_cells_as_its_head(drawn: list[CellRecord]) -> None:
    columns = None
    fenced = False
    for line in render_markdown(run(*drawn), reports()).split("\n"):
        fenced ^= line.startswith("```")
        if fenced or not line.startswith("| "):
            columns = None
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        assert columns in (None, count)
        columns = count


# The three sentences that a run ends with: which they are, in what order, and what they say of any run.


def sentences(*drawn: CellRecord) -> list[str]:
    return summary(run(*drawn), reports())


def test_the_quickstarts_cells_in_three_sentences() -> None:
    assert summary(RUNS["with_reference"], reports()) == [
        "Claims of djprobe-2005 that do not hold: 2 of 3 decided ones. The first: On a Pentium 4, djprobe is about "
        "30 times as fast as kprobe (20 to 45 times). (list5: kprobe / djprobe = 11.83)",
        "Largest overhead: jprobe, 1280 instructions a call (+313 %).",
        "Ratio of jprobe to djprobe: 24.15; published: 52.17.",
    ]


def test_a_failure_comes_before_all_else_with_the_first_line_of_its_reason() -> None:
    first, *others = sentences(*RUNS["with_failures"].cells)
    reason = "the guest's kernel panicked while kprobe was measured; the console's last lines were"
    assert first == f"Failed: 1 of 4 cells, pentium4/debian-686/kprobe/noop: {reason}"
    assert others[-1] == "Overhead: jprobe, 1280 instructions a call (+313 %)."


def test_many_failures_are_one_sentence() -> None:
    (first, _) = sentences(failed("none", "no guest"), failed("kprobe", "no guest"), cell("djprobe"))
    assert first == "Failed: 2 of 3 cells, all for the same reason, the first pentium4/debian-686/none/noop: no guest"
    (only,) = sentences(failed("kprobe", "no such probe", status="unsupported"))
    assert only == "Without a number: 1 of 1 cell (1 unsupported). pentium4/debian-686/kprobe/noop: no such probe."


def test_most_frequent_reason_is_printed() -> None:
    alike = [
        failed(probe, f"the kernel says\n[    {time}.204733] BUG at c0{time}00000", id=probe)
        for time, probe in enumerate(["kprobe", "jprobe", "djprobe"], start=1)
    ]
    (first, *_) = sentences(failed("none", "no guest"), *alike)
    assert first == "Failed: 4 of 4 cells, 3 of them for the same reason, the first kprobe: the kernel says"
    different = [failed(probe, f"no {probe}", id=probe) for probe in ("kprobe", "jprobe")]
    (first, *_) = sentences(*different)
    assert first == "Failed: 2 of 2 cells, the first kprobe: no kprobe"


def test_unsupported_cells_are_counted_by_reason() -> None:
    lacking = [
        failed("kprobe", f"built without CONFIG_{option}", status="unsupported", id=f"{option}{index}")
        for option, count in {"A": 1, "B": 40, "C": 2, "D": 1}.items()
        for index in range(count)
    ]
    (only,) = sentences(*lacking)
    assert only == (
        "Without a number: 44 of 44 cells (44 unsupported). 40 cells: built without CONFIG_B; "
        "2 cells: built without CONFIG_C; A0: built without CONFIG_A; 1 more reason."
    )


def test_one_cell_has_its_value() -> None:
    assert summary(RUNS["single_column"], reports()) == ["djprobe: 462 instructions a call."]
    assert sentences() == []


def test_what_the_clock_does_not_decide_is_named_and_is_not_the_largest() -> None:
    hidden = {"verdict": "none", "notes": ["the host drifted"]}
    found = sentences(cell("none"), cell("jprobe", **hidden), cell("kprobe"))
    assert found == [
        "Largest overhead: kprobes, 627 instructions a call (+153 %).",
        "Not decided: jprobe; the difference is no larger than between equal runs.",
    ]


def test_what_fifteen_years_brought_is_said_where_both_were_measured() -> None:
    sentence = "What fifteen years brought, from djprobe (2005) to BPF on fentry (2019): 61 to 129 instructions a call "
    identity = "pentium4/debian-686/bpf-fentry/noop"

    def found(handler: str = "noop") -> list[str]:
        then = cell("djprobe", overhead=61.0, value=470.0, samples=[470.0] * 4, handler=handler)
        today = cell(
            "djprobe",
            probe="bpf-fentry",
            id=identity,
            overhead=129.0,
            value=538.0,
            samples=[538.0] * 4,
            handler=handler,
        )
        said = sentences(cell("none", handler=handler), then, today)
        assert not [one for one in sentences(cell("none"), then) if one.startswith("What fifteen")]
        return [one for one in said if one.startswith("What fifteen")]

    assert found() == [f"{sentence}on debian-686."]
    assert found("count") == []


def test_kinds_have_sentences_of_their_own() -> None:
    assert sentences(*recorded_build())[1:] == [
        "Largest overhead: kprobe, +400.000 million instructions a run of kernel-build, +5.111 %.",
        "kprobe: +5.111 %; published: more than 18 %.",
    ]
    assert sentences(*marked_build()) == [
        "Overhead: lab-i386-smp-preempt-markers, +9.000 million instructions a run of kernel-build, +0.115 %.",
        "lab-i386-smp-preempt-markers: +0.115 %; published: -0.167 %.",
    ]
    assert sentences(*marker_loops(empty=2.0, varargs_preemptible=9.0, varargs=14.0))[1] == (
        "To disable preemption, arguments alike takes 5 instructions a loop; published: 18.48 cycles."
    )
    assert sentences(*many_probes())[0] == (
        "A hit, among the others, 5000 probes: most on lab-i386-smp-hash6, 536.6406 instructions; "
        "least on lab-i386-smp-hash12, 332.8906 instructions."
    )
    assert sentences(*capabilities())[0] == "List 15 Probes' function: All results agree with the document."
    assert "x86-32: " in " ".join(sentences(*mail_table("x86-32"), *mail_table("x86-64")))


def test_modelled_times_have_a_summary() -> None:
    record, modelled = modelled_tables(*(name for name, one in COUNTED.items() if one["cpu"] != "core-i7-1165g7"))
    found = modelled_summary(modelled, assess(record, reports(), modelled))
    assert found[0].startswith("Claims of djprobe-2005 that do not hold: 1 of 6 decided ones. The first: On Athlon 64")
    assert found[1].startswith("Largest overhead: list11: jprobe on pentium4, 1749.2 nsec (1622.0 to 1893.3);")
    assert found[2].startswith(
        "17 predicted times differ from the published ones in the median by 7.2 %, at worst by 36.5 %"
    )


def test_the_first_of_each_rank_then_the_next_ones() -> None:
    def finding(rank: Rank, name: str, weight: float = 0.0) -> Highlight:
        return Highlight(rank, name, weight)

    large, larger, hidden = finding(Rank.LARGEST, "b", 1), finding(Rank.LARGEST, "a", 2), finding(Rank.UNDECIDED, "u")
    assert most_important([hidden, large, larger]) == ["a", "b", "u"]
    wrong, other_highlight = finding(Rank.CONTRADICTED, "c"), finding(Rank.OTHER, "o")
    assert most_important([other_highlight, hidden, large, larger, wrong]) == ["c", "a", "u"]
    assert most_important([larger, larger, other_highlight]) == ["a", "o"]
    assert most_important([]) == []


@given(st.lists(cells(), max_size=5, unique_by=lambda drawn: drawn.id))
def test_any_run_has_at_most_three_lines(drawn: list[CellRecord]) -> None:
    found = sentences(*drawn)
    assert len(found) <= SENTENCES
    assert bool(found) == bool(drawn)
    assert all(sentence.isprintable() for sentence in found)


@pytest.mark.parametrize(
    ("record", "document"),
    [
        (run(*noop_list("list5")), "djprobe-2005"),
        (run(*wall_list()), "djprobe-2005"),
    ],
)
def test_the_command_that_is_to_decide_claims_measures_all_of_their_tables(record: RunRecord, document: str) -> None:
    (assessment,) = assess(record, reports())
    (sentence,) = (one for one in decided_claims(assessment).sentences if "need other tables" in one)
    program, command, config, *options = sentence.partition(": ")[2].split()
    assert [program, command] == ["orchestrator", "run"]
    overrides = [option for option in options if option != "--set"]
    experiment = load_experiment(data_dir("configs").parent / config, kinds(), overrides)
    measured = {named.name for named in experiment.tables}
    assert {table for claim in claims().values() if claim.document == document for table in claim.tables} <= measured
    assert {cell.clock for cell in record.cells} == {named.table.clock for named in experiment.tables}


def test_tables_are_told_apart_by_their_names() -> None:
    assert "list4: " in sentences(*noop_list("list4"), *noop_list("list7"))[1]


def test_a_fleets_workers_are_named_behind_all_else() -> None:
    record = RUNS["with_reference"]
    workers = ["b-1", "a-1", "a-1", *([None] * len(record.cells))]
    cells = [cell.model_copy(update={"worker": name}) for cell, name in zip(record.cells, workers, strict=False)]
    measured = record.model_copy(update={"cells": tuple(cells)})
    *before, last = summary(measured, reports())
    assert before == summary(record, reports())
    rest = len(record.cells) - 3
    assert rest == 1
    assert last == "Measured by a fleet: a-1 2 cells, b-1 1 cell, 1 cell by this machine."


def of_handlers(handlers: list[str], *drawn: CellRecord) -> list[CellRecord]:
    """Cells of no published table, of each handler."""
    return [
        one.model_copy(update={"id": f"{one.id}.{name}", "handler": name, "reference": None})
        for name in handlers
        for one in drawn
    ]


def test_several_handlers_of_a_table_are_named() -> None:
    drawn = [cell("none"), cell("kprobe"), cell("djprobe")]
    assert sentences(*of_handlers(["noop", "record"], *drawn)) == [
        "Largest overhead, handler noop: kprobes, 627 instructions a call (+153 %).",
        "Largest overhead, handler record: kprobes, 627 instructions a call (+153 %).",
    ]
    assert sentences(*of_handlers(["count"], *drawn)) == [
        "Largest overhead: kprobes, 627 instructions a call (+153 %)."
    ]


def test_the_largest_difference_of_kernels_has_its_table_and_handler() -> None:
    here = [cell("none"), cell("kprobe", value=1048.0, overhead=639.0, samples=[1048.0] * 4, interval=[639.0] * 2)]
    there = [
        one.model_copy(update={"id": f"{one.id}.64", "kernel": "debian-amd64"})
        for one in (cell("none"), cell("kprobe"))
    ]
    both = [handler.model_copy(update={"table": "mine"}) for handler in of_handlers(["noop", "count"], *here, *there)]
    assert [
        sentence.partition(": ")[0] for sentence in sentences(*both) if sentence.startswith("Largest difference")
    ] == [
        "Largest difference from debian-686 to debian-amd64, mine, handler noop",
        "Largest difference from debian-686 to debian-amd64, mine, handler count",
    ]


def test_kernels_with_words_say_what_the_lab_passes_and_what_came_along() -> None:
    own = {"kernel_release": "7.3-lab", "usual_parameters": "mitigations=off", "implied_options": "CONFIG_STACKTRACE=y"}
    cells = [cell("none"), cell("kprobe", kernel="lab-i386-up+CONFIG_KFENCE=y+nopti", parameters=own)]
    assert list(of_kernels(run(*cells))) == [
        "Every kernel boots with mitigations=off; its own parameters replace those of the same name.",
        "The options of lab-i386-up+CONFIG_KFENCE=y+nopti also set CONFIG_STACKTRACE=y.",
    ]
    assert list(of_kernels(run(cell("none")))) == []
