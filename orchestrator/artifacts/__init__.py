# SPDX-License-Identifier: GPL-2.0-only
"""Everything fetched or built: packages, kernels, modules, initramfs, and the cache they live in."""
