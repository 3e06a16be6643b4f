/* SPDX-License-Identifier: GPL-2.0-only */
/* Where may something happen before a capability's module is ready? Included before its main file: "init". */
#ifndef CAPABILITY_WINDOW_H
#define CAPABILITY_WINDOW_H

#include "capability.h"
#include "window.h"

#define capability_init() ({	\
	window_open("init");	\
	capability_init();	\
})

#endif
