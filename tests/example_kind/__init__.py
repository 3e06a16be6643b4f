# SPDX-License-Identifier: GPL-2.0-only
"""An example of a kind of benchmark, outside of the package: what it costs to read a file of /proc or /sys.

``table`` is its part of an experiment file, ``task`` and ``kind`` are its cells, ``measurement`` measures one of them,
``report`` prints them, and ``registry`` adds the kind to the package's own. docs/adding-a-kind.md goes through it.
"""
