# SPDX-License-Identifier: GPL-2.0-only
"""The files of stored profiles: one for each cell, JSON compressed with gzip, in the run's folder ``profiles``.

The cell's record has the file's digest and the figures that prove the profile.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from pydantic import ValidationError

from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import LabError, UsageError
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults
from orchestrator.results.parameters import AT

FOLDER = "profiles"


LARGEST_FILE = 16 << 20
"""Bytes of a profile's file; that of a system call has some ten thousand."""


_LARGEST_TEXT = 256 << 20


_SUFFIX = ".json.gz"


def file_name(cell: str) -> str:
    """The file name for a cell's id, whose only special characters are slashes."""
    return f"{cell.replace('/', '.')}{_SUFFIX}"


def write_profile(profile: CellProfile, file: Path) -> str:
    """Write a profile, and return its digest. Raises HostError if the disk is full."""
    # Without the time, equal profiles are equal files.
    text = profile.model_dump_json(exclude=None if profile.code_lines else {"code_lines"})
    content = gzip.compress(text.encode(), mtime=0)
    with storage_faults(file):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def plain_file(file: Path) -> Path:
    """Beside a cell's profile: the calls without the probe, counted in turn with its own, of calls that vary."""
    return file.with_name(f"{file.name.removesuffix(_SUFFIX)}.without-probe{_SUFFIX}")


def load_profile(directory: Path, record: CellRecord) -> CellProfile:
    """The profile of a cell of the run in ``directory``.

    Raises UsageError if the cell has none, LabError for a missing, changed or damaged file.
    """
    if record.profile is None:
        hint = f"measure one: {PROGRAM} run CONFIG --profile symbols"
        raise UsageError(f"cell {record.id} has no profile", hint=hint)
    return _loaded(directory / FOLDER / file_name(record.id), record.profile.sha256, record)


def load_pair(before: tuple[Path, CellRecord], after: tuple[Path, CellRecord]) -> tuple[CellProfile, CellProfile]:
    """The profiles of two cells, each with its run's directory; raises as ``load_profile`` does.

    Beside the baseline of its own table, a cell of calls that vary has a profile of the calls without the probe: the
    kernel may be in another state than it was in the baseline's cell, and in none but the probe's work differ these.
    """
    (directory, plain), (other_path, probed) = before, after
    second = load_profile(other_path, probed)
    if not has_plain_profile(before, after):
        return load_profile(directory, plain), second
    assert probed.profile is not None
    return _loaded(plain_file(other_path / FOLDER / file_name(probed.id)), probed.profile.plain, probed), second


def has_plain_profile(before: tuple[Path, CellRecord], after: tuple[Path, CellRecord]) -> bool:
    """Whether the second cell has a profile of calls without its probe, and the first one is its baseline."""
    (directory, plain), (other_path, probed) = before, after
    facts = [(cell.table, cell.cpu, cell.smp, cell.kernel, cell.benchmark, AT.of(cell)) for cell in (plain, probed)]
    is_baseline = directory == other_path and plain.probe == BASELINE != probed.probe and facts[0] == facts[1]
    return is_baseline and probed.profile is not None and probed.profile.plain is not None


def _loaded(file: Path, digest: str | None, record: CellRecord) -> CellProfile:
    if not file.exists():
        hint = "a run writes profiles at the end of a boot: wait for it, or resume the run with --resume"
        raise LabError(f"the profile of cell {record.id} is missing", where=str(file), hint=hint)
    with storage_faults(file), file.open("rb") as opened:
        content = opened.read(LARGEST_FILE + 1)
    if hashlib.sha256(content).hexdigest() != digest:
        raise LabError(f"the profile of cell {record.id} differs from the recorded one", where=str(file))
    try:
        text = zlib.decompressobj(wbits=31).decompress(content, _LARGEST_TEXT)
        return CellProfile.model_validate_json(text)
    except (zlib.error, ValidationError) as error:
        raise LabError("damaged, or written by another version of this program", where=str(file)) from error


def file_beside(profile: Path) -> Path:
    """The file of the time line of the cell whose profile has this file."""
    return profile.with_name(profile.name.replace(".json.gz", ".timeline.json"))
