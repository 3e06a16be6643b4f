# SPDX-License-Identifier: GPL-2.0-only
"""How the host's pip gets at its packages."""

from __future__ import annotations

import ast
import os
import sys

from orchestrator.errors import HostError
from orchestrator.process import run

_LIMIT = 60.0
_SECTIONS = ("global", "install", ":env:")
"""In the order in which later ones count more."""

_OF_THE_WAY = frozenset(
    (
        *("index-url", "extra-index-url", "find-links", "no-index", "only-binary", "prefer-binary"),
        *("cert", "client-cert", "proxy", "trusted-host", "default-timeout", "timeout", "retries"),
    )
)
"""Settings of where packages are and how they are reached; others would make a root less bare."""

_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that pip reads where ``cert`` is not set."""


def pip_settings() -> dict[str, str]:
    """Names and values for a pip.conf. Raises HostError where pip does not list them."""
    asked = run([sys.executable, "-m", "pip", "config", "list"], time_limit=_LIMIT)
    if asked.status != 0:
        raise HostError("pip does not list its settings", detail=asked.complaint())
    settings = read_settings(asked.stdout)
    for variable in _CERTIFICATES:
        if os.environ.get(variable):
            settings.setdefault("cert", os.environ[variable])
    return settings


def read_settings(listed: str) -> dict[str, str]:
    """The settings of the way to the packages, of what ``pip config list`` prints."""
    rows = [line.partition("=")[::2] for line in listed.splitlines() if "=" in line]
    settings = {}
    for section in _SECTIONS:
        for key, value in rows:
            name = key.removeprefix(f"{section}.")
            if name != key and name in _OF_THE_WAY:
                # Lists are lines in files, and pip takes any white space.
                settings[name] = " ".join(str(ast.literal_eval(value)).split())
    return settings
