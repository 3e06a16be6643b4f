# SPDX-License-Identifier: GPL-2.0-only
"""Texts that try to get out of their place, and a hypothesis strategy of them and of any others."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import strategies as st

HOSTILE: tuple[str, ...] = tuple(
    text
    for texts in yaml.safe_load(Path(__file__).with_name("hostile_texts.yaml").read_text(encoding="utf-8")).values()
    for text in texts
)

hostile_texts = st.sampled_from(HOSTILE) | st.text(max_size=30)
