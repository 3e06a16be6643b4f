# SPDX-License-Identifier: GPL-2.0-only
"""The inputs that are kept: seeds from golden files, and what fuzzing has found worth keeping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .target import Target

FOLDER = Path(__file__).with_name("corpus")


def corpus_of(target: Target) -> Path:
    """The folder of a target's inputs."""
    return FOLDER / target.name


def kept_inputs(target: Target) -> Sequence[Path]:
    """The files of a target's inputs."""
    return sorted(corpus_of(target).iterdir())
