/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GREETING_WORDS_H
#define GREETING_WORDS_H

const char *greeting_words(void);

#endif
