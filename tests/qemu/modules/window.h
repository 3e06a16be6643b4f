/* SPDX-License-Identifier: GPL-2.0-only */
/* What may happen while a module is in the middle of something? */
#ifndef WINDOW_H
#define WINDOW_H

/*
 * Runs /tmp/window.sh and waits for its end where the module's parameter "window"
 * has this name. Once: the parameter is empty afterwards. May sleep.
 */
void window_open(const char *name);

#endif
