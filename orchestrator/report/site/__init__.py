# SPDX-License-Identifier: GPL-2.0-only
"""The store as a folder of static pages, rebuilt where what they are made from has changed."""
