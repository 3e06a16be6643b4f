# SPDX-License-Identifier: GPL-2.0-only
"""Images that the tests do not build every day: they take minutes and hundreds of megabytes."""

from __future__ import annotations

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.disk_images import Image, cached_image, ready_image
from orchestrator.catalog.image_recipes import image
from orchestrator.paths import cache_dir


def needed_image(config: pytest.Config, name: str) -> Image:
    """An image. Where it is not in the cache, it is built with ``--nightly``, and the test is skipped without."""
    if config.getoption("--nightly"):
        return ready_image(BuildContext(Cache(cache_dir())), image(name))
    found = cached_image(BuildContext(Cache(cache_dir()), offline=True), image(name))
    if found is None:
        pytest.skip(f"{name} is not built yet; --nightly builds it, and so does once: ./lab build image {name}")
    return found
