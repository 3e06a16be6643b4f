# SPDX-License-Identifier: GPL-2.0-only
"""What a site remembers: which files are its own, and what each page was made from."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.report.site.addresses import SitePath


class KeptPage(BaseModel):
    """A page of the site.

    ``made_from`` is a digest of all that it shows and of the program, empty of a page that was not finished. ``files``
    belong to it. ``line`` is what lists have of it, in the form of the program that made it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    made_from: str = ""
    files: tuple[SitePath, ...] = ()
    line: dict[str, Any] | None = None


class SiteState(BaseModel):
    """All pages of a site of the lab in the folder ``lab``, by their files."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    lab: str
    pages: dict[SitePath, KeptPage] = {}
