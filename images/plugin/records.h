// SPDX-License-Identifier: GPL-2.0-only
// The largest number of distinct instructions.
#ifndef RECORDS_H
#define RECORDS_H

enum { RECORDS = 1 << 18 };

#endif
