# SPDX-License-Identifier: GPL-2.0-only
"""A nightly run beside the last good one: its note, and its report on a terminal, by mail and to a webhook."""

from __future__ import annotations

import io
import json
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from rich.console import Console

from orchestrator import __version__
from orchestrator.comparison.comparison import CellChange, ComparedRuns
from orchestrator.comparison.forms import CellNames, comparison_sheet, difference_figures
from orchestrator.comparison.forms import summary as comparison_summary
from orchestrator.comparison.verdicts import is_exact, resolvable
from orchestrator.errors import HostError, UsageError
from orchestrator.files import write_whole
from orchestrator.plain_text import counted, cut, shown
from orchestrator.program import command
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.sheet import COUNTED, figure, unit_name
from orchestrator.report.text import print_sheets, summary
from orchestrator.results.budgets import only
from orchestrator.results.contract import PER_CALL, PER_LOOP, CellRecord, Status, all_ok
from orchestrator.results.faults import storage_faults
from orchestrator.results.origin import Origin, kernel_versions
from orchestrator.results.runs import EXPERIMENT_FILE, Run
from orchestrator.results.store import RunEntry, Store


def good_night(experiment: str) -> str:
    """The baseline that is an experiment's last good night."""
    return f"good-{experiment}"


@dataclass(frozen=True)
class Night:
    """What a night has measured.

    ``compared`` is its comparison with the last good night; None in the first one, and where ``doubt`` says why they
    could not be compared.
    """

    run: Run
    compared: ComparedRuns | None = None
    doubt: str = ""

    @property
    def experiment(self) -> str:
        return self.run.record.experiment

    @property
    def failed(self) -> Sequence[CellRecord]:
        return [cell for cell in self.run.record.cells if cell.status == "failed"]

    @property
    def beyond(self) -> Sequence[CellChange]:
        """The cells beyond their budget, failed and vanished ones included."""
        return () if self.compared is None else self.compared.comparison.beyond

    @property
    def is_good(self) -> bool:
        """Whether later nights may be compared with it: every cell has an outcome, none failed or is beyond budget."""
        return all_ok(self.run.record) and not self.run.unfinished and not self.beyond and not self.doubt


class NightNote:
    """A note beside the store: since when a night is under way, whatever ends the program. See ``only_night``."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def begin(self, now: datetime | None = None) -> None:
        """Note that a night begins, at ``now``; what an earlier one left is not resumed any more."""
        with storage_faults(self._file):
            write_whole(self._file, f"{(now or datetime.now(UTC)).isoformat()}\n")

    def end(self) -> None:
        with storage_faults(self._file):
            self._file.unlink(missing_ok=True)

    def runs(self, store: Store, experiment: str, cells: Iterable[str]) -> Sequence[RunEntry]:
        """The runs that may be those of the night that has not ended: of the experiment, begun in it, newest first.

        One that was not planned with exactly these cells, by their ids, is somebody's own, or of an experiment that has
        changed since.
        """
        begun, wanted = self._begun(), set(cells)
        if begun is None:
            return []
        return [
            entry
            for entry in store.runs()
            if entry.experiment == experiment
            and datetime.fromisoformat(entry.started) >= begun
            and {row["id"] for row in store.select("SELECT id FROM cells WHERE run = ?", entry.id)} == wanted
        ]

    def _begun(self) -> datetime | None:
        with storage_faults(self._file):
            text = self._file.read_text(errors="replace") if self._file.exists() else ""
        try:
            begun = datetime.fromisoformat(text.strip())
            return begun if begun.tzinfo else None
        except ValueError:  # damaged: a new night begins
            return None


@contextmanager
def only_night(lab: Path, experiment: str) -> Iterator[NightNote]:
    """The note of an experiment's night, for one process at a time. Raises UsageError while another one has it."""
    folder = lab / "nights"
    with storage_faults(folder):
        for one in (lab, folder):  # parents have the umask's mode
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(folder / f"{experiment}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        what = f"a night of experiment '{experiment}' is under way in another process"
        raise UsageError(what, where=str(lab), hint="wait until it has ended") from None
    try:
        yield NightNote(folder / experiment)
    finally:
        lock.release()


def word(night: Night) -> str:
    """``good`` or ``bad``."""
    return "good" if night.is_good else "bad"


def states(night: Night) -> Mapping[Status | str, int]:
    """How many cells have each status; ``planned`` are those without an outcome."""
    counts: Counter[Status | str] = Counter(cell.status for cell in night.run.record.cells)
    if night.run.unfinished:
        counts["planned"] = night.run.unfinished
    return counts


def verdict(night: Night) -> str:
    """The night in a sentence: ``nightly: good night, 45 cells ok``."""
    counts = ", ".join(f"{count} {status}" for status, count in states(night).items())
    return f"{night.experiment}: {word(night)} night, cells: {counts or 'none'}"


def against(night: Night) -> str:
    """What it was compared with, and the summary of that."""
    if night.doubt:
        return f"Not compared with the last good night: {night.doubt}"
    if night.compared is None:
        return "There is no good night before it to compare with."
    return (
        f"Compared with the last good night, {night.compared.before.record.run}: {comparison_summary(night.compared)}"
    )


def subject(night: Night) -> str:
    """A line for a mailbox: what is wrong, the largest of it by name."""
    return cut(f"[{night.experiment}] {word(night)}: {_in_short(night)}", 200)


def _in_short(night: Night) -> str:
    cells = counted(len(night.run.record.cells), "cell")
    if night.compared is not None:
        counts = ", ".join(f"{count} {change}" for change, count in night.compared.comparison.counts.items())
        return f"{counts}; {change_sentence(night, night.beyond[0])}" if night.beyond else counts
    if night.failed:
        return f"{len(night.failed)} of {cells} failed"
    return "not compared" if night.doubt else cells


def change_sentence(night: Night, change: CellChange) -> str:
    """A cell and its change: ``kprobe +10 instructions (+1.1 %)``, or ``kprobe failed``."""
    name = change.pair.title if night.compared is None else CellNames(night.compared.comparison).of(change)
    if change.value is None:
        return f"{name} {change.change}"
    unit = change.pair.first.unit
    difference, percent, _ = difference_figures(change.value, unit)
    return f"{name} {difference} {unit_name(unit)}" + (f" ({percent})" if percent else "")


def equal_runs(night: Night) -> Iterator[str]:
    """What the measurement of one thing, done again, differs by (A/A), for each kind of figure that the night has."""
    cells = [cell for cell in night.run.record.cells if cell.status == "ok"]
    # Samples of other exact cells are of different things: of one probe after the other.
    exact = [cell for cell in cells if is_exact(cell) and cell.metric in (PER_CALL, PER_LOOP)]
    if exact:
        spread = max(max(cell.samples) - min(cell.samples) for cell in exact)
        samples = sum(len(cell.samples) for cell in exact)
        yield f"calls and loops: {figure(spread, COUNTED)} instructions, in {samples} samples of {len(exact)} cells"
    by_id = {cell.id: cell for cell in night.run.record.cells}
    counted = [cell for cell in cells if cell.clock == "instructions" and not is_exact(cell)]
    for table in dict.fromkeys(cell.table for cell in counted):
        yield _whole_systems(table, [cell for cell in counted if cell.table == table], by_id)
    timed = [cell for cell in cells if cell.clock == "wall"]
    if timed:
        widest = max(timed, key=_half_width)
        yield f"times: their 95 % intervals reach up to {figure(_half_width(widest), 'ns')} ns to a side ({widest.id})"


def _whole_systems(table: str | None, cells: list[CellRecord], by_id: Mapping[str, CellRecord]) -> str:
    known = [(level, cell) for cell in cells if (level := resolvable(cell, by_id)) is not None]
    name = table or cells[0].benchmark
    if not known:
        return f"{name}: unknown, without a further boot of the baseline"
    largest, cell = max(known, key=lambda one: one[0])
    share = f" ({100 * largest / cell.value:.2g} %)" if cell.value else ""
    return f"{name}: up to {figure(largest, COUNTED)} instructions{share} between boots of the same work"


def _half_width(cell: CellRecord) -> float:
    low, high = cell.interval or (0.0, 0.0)
    return (high - low) / 2


def reproducers(night: Night) -> Iterator[str]:
    """Commands that measure what is beyond budget or failed again, and that explain it."""
    wrong = [one.pair.after for one in night.beyond if one.pair.after is not None] or list(night.failed)
    if not wrong:
        return
    yield command("run", str(night.run.directory / EXPERIMENT_FILE), *only(wrong[:3]))
    if night.compared is not None:
        yield command("compare", night.compared.before.record.run, night.run.record.run)


def acceptance(night: Night) -> Iterator[str]:
    """The command that makes a night the one that later ones are compared with; none where it is, or has failed."""
    if not (night.is_good or night.failed or night.run.unfinished):
        yield command("compare", "--set-baseline", good_night(night.experiment), night.run.record.run)


def night_lines(night: Night, registry: ReportRegistry) -> Iterator[str]:
    """The lines of the summary; what is beyond its budget or failed first."""
    yield verdict(night)
    yield against(night)
    wrong = [f"beyond budget: {change_sentence(night, one)}" for one in night.beyond]
    yield from shown(wrong or [f"failed: {cell.id}: {cell.first_line}" for cell in night.failed], 10)
    yield from (f"- {sentence}" for sentence in summary(night.run.record, registry))
    yield from (f"again: {command}" for command in reproducers(night))
    yield from (f"to accept it as it is: {command}" for command in acceptance(night))


_PROSE = 76
_LISTED = 20
# A longer line would be sent as quoted-printable, which nobody reads in a file (RFC 5322, section 2.1.1: 998).
_POLICY = SMTP.clone(linesep="\n", max_line_length=998, cte_type="7bit")


def night_mail(night: Night, origin: Origin, registry: ReportRegistry, now: datetime) -> str:
    """The mail, without a recipient: ``sendmail someone@example.org <FILE`` adds what it lacks."""
    return _message(subject(night), "\n\n".join(_parts(night, origin, registry)), now)


def unmeasured_mail(experiment: str, reason: str, now: datetime) -> str:
    """The mail of a night that has measured nothing."""
    return _message(f"[{experiment}] not measured", reason, now)


def _message(title: str, body: str, now: datetime) -> str:
    message = EmailMessage(policy=_POLICY)
    message["Subject"] = _ascii(title).replace("\n", " ")
    message["Date"] = format_datetime(now)
    message.set_content(_ascii(body) + "\n", charset="us-ascii")
    return message.as_string()


def _parts(night: Night, origin: Origin, registry: ReportRegistry) -> Iterator[str]:
    yield "\n".join(_wrapped([f"{verdict(night)}.", *against(night).splitlines()], ""))
    if night.compared is not None and night.compared.comparison.changed:
        yield _table(night)
    failed = shown([f"{cell.id}: {cell.first_line}" for cell in night.failed], _LISTED)
    sections: dict[str, Iterable[str]] = {
        "Failed": _wrapped(failed, "  "),
        "Summary": _wrapped(summary(night.run.record, registry), "  "),
        "Kernels": _indented(
            [f"{name}: {version}" for name, version in kernel_versions(origin).items()] or ["unknown"]
        ),
        "Machines": _indented(_machines(night, origin)),
        "Equal runs differ by (A/A)": _indented(equal_runs(night)),
        "Reproduce": _indented(reproducers(night)),
        "To accept it as it is": _indented(acceptance(night)),
        "Run": _indented([night.run.record.run, str(night.run.directory)]),
    }
    for title, lines in sections.items():
        listed = [*lines]
        if listed or title not in ("Failed", "Reproduce", "To accept it as it is"):
            yield "\n".join([f"{title}:", *listed])


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _wrapped(sentences: Iterable[str], indent: str) -> Iterator[str]:
    hanging = f"{indent}  " if indent else ""
    for sentence in sentences:
        yield from textwrap.wrap(
            sentence, _PROSE, initial_indent=indent, subsequent_indent=hanging, break_long_words=False
        )


def _machines(night: Night, origin: Origin) -> Iterator[str]:
    kinds = {(cell.cpu, cell.smp, cell.clock) for cell in night.run.record.cells}
    for cpu, smp, clock in sorted(kinds):
        yield f"{cpu}, {smp} CPU{'s' if smp > 1 else ''}, clock {clock}"
    if origin.sessions:
        session = origin.sessions[-1]
        host = ", ".join(f"{name} {value}" for name, value in session.host.items())
        yield from (line for line in (session.qemu, session.compiler, session.guests, f"host: {host}") if line)


def _table(night: Night) -> str:
    assert night.compared is not None
    buffer = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(file=buffer, width=100, force_terminal=False, color_system=None)
    print_sheets([comparison_sheet(night.compared, _LISTED)], console)
    buffer.seek(0)
    return "\n".join(line.rstrip() for line in buffer.read().strip("\n").splitlines())


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode("ascii")


def night_json(night: Night) -> Mapping[str, Any]:
    """What a server gets: at most 20 cells of each kind; ``counts`` has how many there are.

    Mattermost and Slack show ``text``.
    """
    comparison = None if night.compared is None else night.compared.comparison
    return {
        "text": f"{subject(night)}\n{against(night)}",
        "night": word(night),
        "experiment": night.experiment,
        "run": night.run.record.run,
        "compared_with": None if night.compared is None else night.compared.before.record.run,
        "cells": dict(states(night)),
        "counts": {} if comparison is None else dict(comparison.counts),
        "beyond": [
            {"cell": one.pair.title, "change": one.change, "why": list(one.beyond)} for one in night.beyond[:_LISTED]
        ],
        "failed": [{"cell": cell.id, "reason": cell.first_line} for cell in night.failed[:_LISTED]],
    }


def unmeasured_json(experiment: str, reason: str) -> Mapping[str, Any]:
    """What a server gets of a night that has measured nothing."""
    text = f"[{experiment}] not measured\n{reason}"
    return {"text": text, "night": "not measured", "experiment": experiment, "problems": [reason]}


_TRIED_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers of a server that may have another one later (RFC 9110, section 15)."""


@dataclass(frozen=True)
class Webhook:
    """A URL that takes JSON by POST. It may have a secret in it: only its host is ever printed."""

    url: str
    try_limit: float = 15.0
    """Seconds for one try, whatever the server does."""
    pauses: tuple[float, ...] = (1.0, 5.0)
    """Seconds before the second and the third try."""

    def check(self) -> None:
        """Raise UsageError unless it is a URL that can be posted to."""
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known or any(c.isspace() or not c.isprintable() for c in self.url):
            raise UsageError("expected a URL that begins with https:// or http://", where="--webhook")
        if "@" in parts.netloc:
            # http.client takes it for a part of the host's name, and prints it in its error.
            what = "a URL with a user's name or password before its host is not known here"
            raise UsageError(what, where="--webhook", hint="a webhook's secret is in its path or query")

    def post(self, content: Mapping[str, Any]) -> None:
        """Send it, at most three times. Raises HostError with the last answer where none of them was taken."""
        body = json.dumps(content).encode()
        for pause in (*self.pauses, None):
            answers: list[int | str] = []
            # A server that sends a byte now and then keeps a socket's own time limit from ever ending.
            thread = threading.Thread(target=lambda got=answers: got.append(self._answer(body)), daemon=True)
            thread.start()
            thread.join(self.try_limit)
            answer = answers[0] if answers else f"no answer in {self.try_limit:g} s"
            if answer == _TAKEN:
                return
            if pause is None or (isinstance(answer, int) and answer not in _TRIED_AGAIN):
                why = f"status {answer}" if isinstance(answer, int) else answer
                raise HostError(f"the webhook at {urlsplit(self.url).hostname} was not notified: {why}")
            time.sleep(pause)

    def _answer(self, body: bytes) -> int | str:
        """The status of the server's answer, _TAKEN for all good ones, or why there is none."""
        headers = {"Content-Type": "application/json", "User-Agent": f"probe-lab/{__version__}"}
        request = urllib.request.Request(self.url, body, headers, method="POST")  # noqa: S310  # checked: http or https
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.try_limit):
                return _TAKEN
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except (OSError, ValueError, HTTPException) as error:  # a connection that breaks, an answer that is none
            return str(getattr(error, "reason", error))[:200] or type(error).__name__


_TAKEN = 200


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET, which tells nothing: it is an answer like others."""

    def redirect_request(self, *arguments: Any) -> None:
        return None
