/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM whole
#if !defined(WHOLE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define WHOLE_TRACE_H
#include <linux/tracepoint.h>
TRACE_EVENT(whole_loaded,
	TP_PROTO(long number),
	TP_ARGS(number),
	TP_STRUCT__entry(__field(long, number)),
	TP_fast_assign(__entry->number = number;),
	TP_printk("%ld", __entry->number)
);
#endif
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE whole_trace
#include <trace/define_trace.h>
