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

/* A name may have several markers, and a marker several sites where the compiler copied it. */
#define for_each_site(site, table, of)						\
	for ((site) = (table)->begin; (site) < (table)->end; (site)++)		\
		if (!strcmp((site)->marker->name, of))

static struct marker *find(const struct marker_table *table, const char *name)
{
	const struct marker_site *site;

	for_each_site(site, table, name)
		return site->marker;
	return NULL;
}

static bool is_of_one_format(const struct marker_table *table, const struct marker *marker)
{
	const struct marker_site *site;

	for_each_site(site, table, marker->name)
		if (strcmp(site->marker->format, marker->format))
			return false;
	return true;
}

static void lead_to(const struct marker_table *table, const char *name, marker_probe *probe)
{
	const struct marker_site *site;

	for_each_site(site, table, name)
		WRITE_ONCE(site->marker->call, probe);
}

static void patch(const struct marker_site *site, u8 value)
{
	const u8 load[] = { site->load[0], value };

	ktext_lock();
	ktext_exchange(site->load, load, sizeof(load), value ? site->taken : site->passed);
	ktext_unlock();
}

static void arm(const struct marker_table *table, const char *name, u8 value)
{
	const struct marker_site *site;

	for_each_site(site, table, name) {
		WRITE_ONCE(site->marker->armed, value);
		if (site->load)
			patch(site, value);
	}
}

static int refuse(const char *name, int err, const char *reason)
{
	pr_err("marker %s: %s\n", name, reason);
	return err;
}

static int connect(const struct marker_table *table, const char *name, const char *format, marker_probe *probe)
{
	const struct marker *marker = find(table, name);

	if (!marker)
		return refuse(name, -ENOENT, "no such marker");
	if (!is_of_one_format(table, marker))
		return refuse(name, -EINVAL, "markers of this name differ in their format");
	if (format && strcmp(format, marker->format))
		return refuse(name, -EINVAL, "the probe expects another format");
	if (marker->call != marker_no_probe)
		return refuse(name, -EBUSY, "a probe is connected");
	if (ktext_init())
		return refuse(name, -EOPNOTSUPP, "this kernel lacks a function that markers need");
	lead_to(table, name, probe);
	/* Who takes the branch finds the probe. */
	smp_wmb();
	arm(table, name, 1);
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
	const struct marker *marker = find(table, name);
	int err = -ENOENT;

	mutex_lock(&marker_mutex);
	if (marker && marker->call != marker_no_probe) {
		arm(table, name, 0);
		lead_to(table, name, marker_no_probe);
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
