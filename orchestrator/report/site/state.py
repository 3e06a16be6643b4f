# SPDX-License-Identifier: GPL-2.0-only
"""What a site remembers: which files are its own, and what each page was made from."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.report.site.addresses import SitePath
from orchestrator.report.site.metric_summary import MetricSummary


class KeptPage(BaseModel):
    """A page of the site.

    ``made_from`` is a digest of all that it shows, empty of a page that was not finished. ``files`` belong to it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    made_from: str = ""
    files: tuple[SitePath, ...] = ()
    summary: MetricSummary | None = None


class SiteState(BaseModel):
    """All pages of a site of the lab in the folder ``lab``, by their files."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    lab: str
    pages: dict[SitePath, KeptPage] = {}
