# SPDX-License-Identifier: GPL-2.0-only
"""The version of this program, which the package's build, ``./lab`` and ``ci/release.sh`` read here."""

__version__ = "0.2.0"
