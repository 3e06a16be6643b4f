# SPDX-License-Identifier: GPL-2.0-only
"""How a store is opened that can be read and not written: a read-only file system, a folder of another user's."""

from __future__ import annotations

import os
from pathlib import Path


def read_only_name(path: Path) -> str | None:
    """The URI by which SQLite reads such a store; None for one that can be written, and for one that is not there."""
    if not path.is_file() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return None
    # Beside a database in WAL mode SQLite makes files, if only to read it; with a log that is left there it reads both.
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
