# SPDX-License-Identifier: GPL-2.0-only
"""Facts as data: CPU models, kernels, probes, benchmarks and the published tables."""
