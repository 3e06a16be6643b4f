# SPDX-License-Identifier: GPL-2.0-only
"""What a run was made with, by its ``provenance.json`` alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from orchestrator.errors import LabError
from orchestrator.results.faults import storage_faults

FILE_NAME = "provenance.json"

_LARGEST_FILE = 64 << 20  # 10 000 cells with a module each take some 3 MB
_LONGEST = 300


def _plain(value: object) -> str:
    """A value as a sentence quotes it: short and printable, since the file may come from elsewhere."""
    text = "".join(c if c.isprintable() else "?" for c in str(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


Text = Annotated[str, BeforeValidator(_plain)]
Texts = dict[Text, Text]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Session(_Part):
    """What one process worked with; a run that was resumed has several, with the same tools."""

    orchestrator: Text = ""
    qemu: Text = ""
    compiler: Text = ""
    guests: Text = ""
    host: Texts = {}


class _Kernel(_Part):
    name: Text = ""
    release: Text = ""
    packages: Texts = {}
    image_sha256: Text = ""


class _Boot(_Part):
    name: Text = ""
    kernel: _Kernel = _Kernel()


class Origin(_Part):
    """What a run was made with: ``provenance.json``, or as much of it as there is."""

    sessions: tuple[_Session, ...] = ()
    boots: tuple[_Boot, ...] = ()


def origin_of(directory: Path, facts: Mapping[str, Any] | None = None) -> Origin:
    """What the run in ``directory`` was made with.

    Where the file is gone, what the store has of it (``facts``, as ``Store.provenance`` returns them), or nothing.
    Raises LabError for a damaged file, HostError for one that may not be read.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return Origin.model_validate({"sessions": [facts or {}]})
    with storage_faults(path), path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    try:
        if len(content) <= _LARGEST_FILE:
            return Origin.model_validate_json(content)
    except ValidationError:
        pass
    raise LabError("damaged: it does not say what the run was made with", where=str(path))
