# SPDX-License-Identifier: GPL-2.0-only
"""The fleet: boots of one run on many machines, through Dask distributed. Needs the extra ``fleet``."""
