// SPDX-License-Identifier: GPL-2.0-only
int sum(int first, int second);
long first_number(void);
