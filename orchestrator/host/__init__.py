# SPDX-License-Identifier: GPL-2.0-only
"""The host: what it must have, what it has, and what it can do."""
