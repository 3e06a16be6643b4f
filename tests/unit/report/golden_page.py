# SPDX-License-Identifier: GPL-2.0-only
"""Pages without what differs from host to host: pictures, packed files, digests, folders, runs' ids.

Style and script are files of the package, and no part of what is compared either.
"""

from __future__ import annotations

import re
from pathlib import Path

from report_text import check_golden

from orchestrator.version import __version__

_LEFT_OUT = {
    r"<style>.*?</style>": "<style></style>",
    r"<script>.*?</script>": "<script></script>",
    r'content="default-src[^"]*"': 'content="POLICY"',
    r'(<svg [^>]*aria-labelledby="[^"]*")[^>]*>.*?</svg>': r"\1></svg>",
    r'(<template id="[^"]*">)[^<]*': r"\1",
    r"\b[0-9a-f]{64}\b": "DIGEST",
    r"\b\d{8}-\d{6}-[a-z]+-[0-9a-f]{4}\b": "RUN",
}


def check_golden_page(name: str, page: str, folder: Path) -> None:
    """Fail unless the page is the golden file ``page_NAME.html``; ``folder`` is what the run's directory is in."""
    text = page.replace(str(folder), "FOLDER").replace(f"orchestrator {__version__}", "orchestrator VERSION")
    for pattern, left in _LEFT_OUT.items():
        text = re.sub(pattern, left, text, flags=re.DOTALL)
    check_golden(f"page_{name}.html", text)
