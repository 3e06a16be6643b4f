# SPDX-License-Identifier: GPL-2.0-only
"""Does an error of a rendered module name the line of the template, and of the template that it includes?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.artifacts.module_source import render_own

TEMPLATE = """\
#include <linux/module.h>
{% if count > 3 %}
static int big;
{% endif %}
{# a comment
   of two lines #}
static int a[] = { {% for number in range(count) %}
{{ number }},
{% endfor %} };
{% include "part.h.j2" %}
{%- set text = "one
two" -%}
{% raw %}
static int braces[1][1] = {{ 1 }};
{% endraw %}
static int end = {{ count }};
"""
PART = "static int {{ symbol }};\n\nstatic int part;\n"


@pytest.mark.parametrize("count", [0, 1, 5])
def test_each_line_has_its_origin(tmp_path: Path, count: int) -> None:
    file, part = tmp_path / "mine.c.j2", tmp_path / "part.h.j2"
    file.write_text(TEMPLATE)
    part.write_text(PART)
    source = render_own(file, {"count": count, "symbol": "f"})
    texts = source.files["own_mine_main.c"].split("\n")
    origins = source.rendered["own_mine_main.c"]()
    assert len(origins) == len(texts)
    places = {text: (origin.file.name, origin.number) for text, origin in zip(texts, origins, strict=True)}
    assert places["#include <linux/module.h>"] == ("mine.c.j2", 1)
    assert places.get("static int big;") == (("mine.c.j2", 3) if count > 3 else None)
    assert places["static int a[] = { 0," if count else "static int a[] = {  };"] == ("mine.c.j2", 7)
    assert places.get("4,") == (("mine.c.j2", 8) if count > 3 else None)
    assert places["static int f;"] == ("part.h.j2", 1)
    assert places["static int part;"] == ("part.h.j2", 3)
    assert places["static int braces[1][1] = {{ 1 }};"] == ("mine.c.j2", 14)
    assert places[f"static int end = {count};"] == ("mine.c.j2", 16)


def test_what_cannot_be_told_is_not_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.c.j2"
    file.write_text("{% filter reverse %}text 1\n{% endfilter %}\n")
    assert render_own(file, {}).rendered["own_mine_main.c"]() == []
