// SPDX-License-Identifier: GPL-2.0-only
// The mechanisms that attach to many functions of the kernel, or to many places of this program.
#ifndef ATTACHING_H
#define ATTACHING_H

#include "functions.h"

enum { PLACES = 50000, PLACE_SIZE = 2 };

struct mechanism {
	const char *name;
	int demands;
	const char *list;		// has a line for each function that is attached; NULL for those of this program
	uint32_t type, attach_type;	// of its BPF program; 0 for none
};

// The one that is measured, what it can attach to, and whether one of the functions is none, in the middle.
extern const struct mechanism *mechanism;
extern struct functions functions;
extern int wrong_name;

// So many functions of this program, each of PLACE_SIZE bytes.
void places(void);

// Each of these ends the program where it fails.
// Chooses the mechanism and reads its functions.
void choose_mechanism(const char *name, uint32_t seed);
// Gives the module the functions, as many as the largest number asks for.
void give_functions(uint32_t largest);
// Prepares attaching to so many, which is not part of its cost.
void prepare(uint32_t count);

// To as many functions as were prepared. Returns a negative errno, with nothing attached.
long attach(uint32_t count);
long detach(void);

// Calls the first function so often; whether the mechanism counts hits, and those so far; and how many functions are
// attached.
void call_target(uint32_t calls);
int counts_hits(void);
uint64_t hits_now(void);
uint64_t listed(void);

#endif
