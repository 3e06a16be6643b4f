# SPDX-License-Identifier: GPL-2.0-only
"""The reference pages, and what writes each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import c_headers, commands, experiment_file, guest, image_recipe, price_list, printed_json, pytest_plugin, result
from .markdown import ROOT

FOLDER = ROOT / "docs" / "reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "experiment-file.md": experiment_file.page,
    "guest.md": guest.page,
    "pytest-plugin.md": pytest_plugin.page,
    "djprobe.md": c_headers.djprobe,
    "jprobe.md": c_headers.jprobe,
    "marker.md": c_headers.marker,
    "report.md": c_headers.report,
    "ring.md": c_headers.ring,
    "point.md": c_headers.point,
    "workload.md": c_headers.workload,
    "result.md": result.page,
    "json.md": printed_json.page,
    "price-list.md": price_list.page,
    "image-recipe.md": image_recipe.page,
}
