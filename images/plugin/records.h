// SPDX-License-Identifier: GPL-2.0-only
// How many different instructions there is room for.
#ifndef RECORDS_H
#define RECORDS_H

enum { RECORDS = 1 << 18 };

#endif
