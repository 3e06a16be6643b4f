# SPDX-License-Identifier: GPL-2.0-only
"""The colours of all pictures, named for what they show.

Series have the colours of Okabe and Ito's palette (jfly.uni-koeln.de/color), which colour-blind readers can
distinguish. Ink, quiet ink, lines and paper follow the reader's theme where a picture is part of a page
(``report.html.inline_picture``); the other colours are legible on light and on dark paper.
"""

from __future__ import annotations

INK, QUIET_INK, LINE, PAPER = "#000000", "#444444", "#dddddd", "#ffffff"
"""Text and axes; subtitles and the bars of intervals; grids; the background."""

MEASURED = ("#0072b2", "#56b4e9")
PUBLISHED = ("#d55e00", "#e69f00")
"""Bars: blue is measured, orange is published."""

STROKES = (("#0072b2", "-"), ("#d55e00", "--"), ("#009e73", ":"), ("#cc79a7", "-."))
"""Curves: different strokes keep apart those that lie on each other."""

STEP = "#d55e00"
"""A step of a history, and what failed in it."""

TONES = {"worse": "#d55e00", "better": "#009e73", "open": QUIET_INK}
"""A change: dearer, cheaper, undecided."""

USER, MODULE, KERNEL = "#9ec6e6", "#e79d7c", "#f3d98b"
"""Boxes of a flame graph; light enough for ``BOX_INK`` on them, in both themes."""

SAME, MORE, LESS = (226, 226, 226), (232, 86, 64), (88, 148, 222)
"""Boxes of a difference between two profiles, as red, green and blue."""

BOX_INK = "#111111"
"""Text on a coloured box; it does not follow the theme."""
