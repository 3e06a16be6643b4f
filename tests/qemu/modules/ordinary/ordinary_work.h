/* SPDX-License-Identifier: GPL-2.0-only */
void ordinary_work(int size);
