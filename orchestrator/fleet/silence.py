# SPDX-License-Identifier: GPL-2.0-only
"""What Dask logs and warns of in a command is not shown: the command says what happened in its own words."""

from __future__ import annotations

import logging
import warnings

_LOGGERS = ("distributed", "tornado", "asyncio")


def silence_dask() -> None:
    """Take the handlers from Dask's loggers, and from those of what it is built on; needs ``distributed``."""
    import distributed  # noqa: F401 - it gives its loggers handlers when it is imported

    for name in [*_LOGGERS, *(one for one in logging.root.manager.loggerDict if one.startswith("distributed."))]:
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False
    for package in ("distributed", "dask", "tornado"):
        warnings.filterwarnings("ignore", module=rf"{package}(\.|$)")
