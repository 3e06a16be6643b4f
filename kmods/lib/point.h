/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where does a module's probe go? Its parameters say so, "symbol=NAME
 * offset=BYTES": one module serves all points. What it was built with is their
 * default.
 */
#ifndef LAB_POINT_H
#define LAB_POINT_H

#include <linux/moduleparam.h>
#include <linux/types.h>

/**
 * POINT_PARAMETERS() - define the parameters symbol and offset
 * @name: a const char * that takes the symbol, such as kp.symbol_name of a kprobe
 * @bytes: an unsigned int that takes the offset, such as kp.offset
 *
 * Both are set before the module's init function runs. What they are initialised with is
 * the default. A module that was built for no point has an empty name, which no symbol
 * has: then registering ends with -ENOENT.
 */
#define POINT_PARAMETERS(name, bytes)						\
module_param_cb(symbol, &param_ops_charp, &(name), 0444);			\
MODULE_PARM_DESC(symbol, "the probed function");				\
module_param_named(offset, bytes, uint, 0444);					\
MODULE_PARM_DESC(offset, "bytes behind the symbol")

/**
 * point_is_in_symbol() - whether an address is in the function that was asked for
 * @address: where the probe is
 * @offset: the bytes behind the symbol that were asked for
 *
 * kprobes take any offset that leads to an instruction, of another function's too.
 *
 * Return: true where the symbol that the address is in begins that many bytes before it.
 */
bool point_is_in_symbol(const void *address, unsigned int offset);

#endif
