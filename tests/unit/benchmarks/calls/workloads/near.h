/* SPDX-License-Identifier: GPL-2.0-only */
int near(void);
