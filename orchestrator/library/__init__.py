# SPDX-License-Identifier: GPL-2.0-only
"""What programs, the command line and pytest use alike: experiments, runs, comparisons, guests."""
