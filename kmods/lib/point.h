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

/*
 * name: a const char * that is set before the module's init function runs.
 * bytes: an unsigned int, the offset. A module that was built for no point has
 * an empty name, which no symbol has: then registering ends with -ENOENT.
 */
#define POINT_PARAMETERS(name, bytes)						\
module_param_cb(symbol, &param_ops_charp, &(name), 0444);			\
MODULE_PARM_DESC(symbol, "the probed function");				\
module_param_named(offset, bytes, uint, 0444);					\
MODULE_PARM_DESC(offset, "bytes behind the symbol")

/*
 * Whether the address is that many bytes behind the start of the symbol that it
 * is in. kprobes take any offset that leads to an instruction, of another
 * function's too.
 */
bool point_is_in_symbol(const void *address, unsigned int offset);

#endif
