# SPDX-License-Identifier: GPL-2.0-only
"""What a guest writes to its disk: a file beside the image, which all guests share and none changes."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.artifacts.images import Image
from orchestrator.errors import HostError
from orchestrator.process import run

_LIMIT = 60.0


def overlay(image: Image, directory: Path, name: str) -> Path:
    """An empty qcow2 overlay ``name`` on ``image``, in a folder that is there; only its user can read it.

    Raises HostError where it cannot be made, or is there already.
    """
    path = directory.absolute() / name
    try:
        # qemu-img keeps the mode of a file that is there.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise HostError(f"cannot make {path}: {error.strerror}") from None
    base = str(image.base.absolute())
    finished = run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, str(path)], time_limit=_LIMIT)
    if finished.status != 0:
        path.unlink()
        raise HostError(f"cannot make an overlay on image {image.recipe.name}", detail=finished.complaint())
    return path
