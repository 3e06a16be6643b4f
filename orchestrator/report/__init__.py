# SPDX-License-Identifier: GPL-2.0-only
"""How results are shown: each format reads a run record and the catalogue, nothing else."""
