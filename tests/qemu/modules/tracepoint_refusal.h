/* SPDX-License-Identifier: GPL-2.0-only */
/* How does it fail that the tracepoint's probe is unregistered? Included before the tracepoint module. */
#ifndef TRACEPOINT_REFUSAL_H
#define TRACEPOINT_REFUSAL_H

#include <linux/errno.h>
#include <linux/moduleparam.h>
#include <linux/tracepoint.h>

/* So many times. */
static int refusals;
module_param(refusals, int, 0644);

static inline int refusing_unregister(struct tracepoint *tracepoint, void *probe, void *data)
{
	return refusals-- > 0 ? -EBUSY : tracepoint_probe_unregister(tracepoint, probe, data);
}

#define tracepoint_probe_unregister refusing_unregister

#endif
