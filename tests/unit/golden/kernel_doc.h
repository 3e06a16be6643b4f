/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What this file is for.
 *
 *	code(of, it);
 */
#ifndef A_H

/* Not for users. */
int hidden(void);

/**
 * struct pair - two numbers
 * @first: the one, which
 *	   goes on
 * @second: the other
 *
 * Some words.
 */
struct pair {
	int first;

	int second;
};

/**
 * add() - add both
 * @pair: what is added
 *
 * How.
 *
 * Context: may sleep.
 * Return: the sum, or:
 *
 * * -ERANGE: it does not fit
 */
static inline int add(const struct pair *pair)
{
	return pair->first + pair->second;
}

/**
 * TWICE() - a number twice
 * @number: evaluated twice
 */
#define TWICE(number)	((number) + \
			 (number))

/**
 * typedef sum - what adds
 */
typedef int sum(const struct pair *pair,
		int more);

/**
 * struct calls - what is called
 * @first: with a number
 */
struct calls {
	int (*first)(int number);
	void (*second)(void);
};

/**
 * enum flavour - which one
 * @SWEET: the one
 */
enum flavour {
	SWEET = 1,
	SOUR,
};
