# SPDX-License-Identifier: GPL-2.0-only
"""Files and folders of the host that its settings name, and the names that they have inside a bare root."""

from __future__ import annotations

import re
from pathlib import Path

_PLACE = "/mnt/host"
# A path, or a URI of one; apt has others than file: for that.
_NAMED = re.compile(r"(?P<scheme>(?:mirror\+)?file:(?://)?|copy:(?://)?)?(?P<path>/.+)")


class FromHost:
    """Collects what is to be seen from inside: host paths, with their names in there."""

    def __init__(self) -> None:
        self.seen: dict[Path, str] = {}

    def translate(self, value: str) -> str:
        """A setting's value with each path of the host, if there is something, by the name it has inside."""
        return " ".join(self._word(word) for word in value.split(" "))

    def _word(self, word: str) -> str:
        named = _NAMED.fullmatch(word)
        if named is None or not Path(named["path"]).exists():
            return word
        path = Path(named["path"])
        # An index's pages may name files beside its folder.
        shown = path.parent if named["scheme"] and path.parent != Path("/") else path
        self.seen[shown] = f"{_PLACE}{shown}"
        return f"{named['scheme'] or ''}{_PLACE}{named['path']}"
