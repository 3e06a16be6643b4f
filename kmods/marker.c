// SPDX-License-Identifier: GPL-2.0-only
/*
 * How is a probe connected to a marker, and taken away again?
 *
 * In: the marker calls the probe before anything leads to the call. Then the
 * flag is set, or at each site the immediate value is patched: a CPU that comes
 * by meanwhile meets an int3 and goes where the new value would send it.
 * Out: in reverse, and a CPU may still be in the probe, with preemption off:
 * synchronize_rcu() waits for it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "ktext.h"
#include "marker.h"

static DEFINE_MUTEX(marker_mutex);

void marker_no_probe(const char *format, ...)
{
}

static struct marker *find(const struct marker_table *table, const char *name)
{
	const struct marker_site *site;

	for (site = table->begin; site < table->end; site++)
		if (!strcmp(site->marker->name, name))
			return site->marker;
	return NULL;
}

static void patch(const struct marker_site *site, u8 value)
{
	const u8 load[] = { site->load[0], value };

	ktext_lock();
	ktext_exchange(site->load, load, sizeof(load), value ? site->taken : site->passed);
	ktext_unlock();
}

static void arm(const struct marker_table *table, struct marker *marker, u8 value)
{
	const struct marker_site *site;

	WRITE_ONCE(marker->armed, value);
	for (site = table->begin; site < table->end; site++)
		if (site->marker == marker && site->load)
			patch(site, value);
}

static int refuse(const char *name, int err, const char *reason)
{
	pr_err("marker %s: %s\n", name, reason);
	return err;
}

static int connect(const struct marker_table *table, const char *name, const char *format, marker_probe *probe)
{
	struct marker *marker = find(table, name);

	if (!marker)
		return refuse(name, -ENOENT, "no such marker");
	if (format && strcmp(format, marker->format))
		return refuse(name, -EINVAL, "the probe expects another format");
	if (marker->call != marker_no_probe)
		return refuse(name, -EBUSY, "a probe is connected");
	if (ktext_init())
		return refuse(name, -EOPNOTSUPP, "this kernel lacks a function that markers need");
	WRITE_ONCE(marker->call, probe);
	/* Who takes the branch finds the probe. */
	smp_wmb();
	arm(table, marker, 1);
	return 0;
}

int marker_connect(const struct marker_table *table, const char *name, const char *format, marker_probe *probe)
{
	int err;

	mutex_lock(&marker_mutex);
	err = connect(table, name, format, probe);
	mutex_unlock(&marker_mutex);
	return err;
}

int marker_disconnect(const struct marker_table *table, const char *name)
{
	struct marker *marker = find(table, name);
	int err = -ENOENT;

	mutex_lock(&marker_mutex);
	if (marker && marker->call != marker_no_probe) {
		arm(table, marker, 0);
		WRITE_ONCE(marker->call, marker_no_probe);
		err = 0;
	}
	mutex_unlock(&marker_mutex);
	if (!err)
		synchronize_rcu();
	return err;
}

int marker_list(const struct marker_table *table, char *page)
{
	const struct marker_site *site;
	int size = 0;

	for (site = table->begin; site < table->end; site++)
		size += sysfs_emit_at(page, size, "%s %s %s %px %px %s\n", site->marker->name,
				      site->load ? "optimized" : "generic",
				      site->marker->call == marker_no_probe ? "-" : "connected", site->load,
				      &site->marker->armed, site->marker->format);
	return size;
}
