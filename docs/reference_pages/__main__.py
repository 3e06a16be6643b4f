# SPDX-License-Identifier: GPL-2.0-only
"""``python -m docs.reference_pages``: write the pages of docs/reference/."""

from __future__ import annotations

import sys

from .markdown import Undescribed
from .pages import FOLDER, PAGES


def main() -> int:
    """Write all pages, or none where something has no description."""
    try:
        texts = {name: page() for name, page in PAGES.items()}
    except Undescribed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for old in FOLDER.glob("*.md"):
        old.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
