// SPDX-License-Identifier: GPL-2.0-only
/* How does a recorder start and stop, and what does it report? */
#include <linux/dcache.h>
#include <linux/debugfs.h>
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>

#include "function.h"
#include "ksym.h"
#include "places.h"
#include "refusal.h"

#define REPORT_FORMAT	1
#define RECORDER_SITES_MAX	256
/* The largest change of text is a five-byte jump. */
#define SITE_BYTES	5

struct site {
	const char *symbol;
	const void *address;
	unsigned int size;
	u8 original[SITE_BYTES];
};

DEFINE_PER_CPU(unsigned long [RECORDER_PLACES_MAX], place_hits);

static unsigned long entries[RECORDER_PLACES_MAX];
/* The last values of missed_hits(), for when the probes are out. */
static unsigned long missed_finally[RECORDER_PLACES_MAX];
static struct site sites[RECORDER_SITES_MAX];
static unsigned int site_count;

static DEFINE_MUTEX(places_mutex);
static bool in, restored;

int add_site(const char *symbol, const void *address, unsigned int size)
{
	struct site *site = &sites[site_count];

	if (site_count == RECORDER_SITES_MAX || size > SITE_BYTES)
		return refuse_point(symbol, 0, -ENOSPC, "too many sites");
	*site = (struct site){ .symbol = symbol, .address = address, .size = size };
	memcpy(site->original, address, size);
	site_count++;
	return 0;
}

int find_entries(void)
{
	unsigned int place;
	int err = 0;

	for (place = 0; place < place_count; place++) {
		const char *symbol = places[place].symbol;
		unsigned long address = ksym_lookup(symbol);
		struct function function;

		if (!address || !find_function(address, &function)) {
			err = refuse_point(symbol, 0, -ENOENT, "no such symbol");
			continue;
		}
		entries[place] = function.entry;
		err = add_site(symbol, (const void *)function.entry, SITE_BYTES) ?: err;
	}
	return err;
}

unsigned long entry_of(unsigned int place)
{
	return entries[place];
}

u8 live_byte(unsigned int place)
{
	return READ_ONCE(*(const u8 *)entries[place]);
}

bool is_restored(void)
{
	unsigned int i;

	for (i = 0; i < site_count; i++)
		if (memcmp(sites[i].original, sites[i].address, sites[i].size))
			return false;
	return true;
}

static void stop(void)
{
	unsigned int place;

	for (place = 0; place < place_count; place++)
		missed_finally[place] = missed_hits(place);
	take_out();
	in = false;
	restored = is_restored();
}

static unsigned long hits(unsigned int place)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(place_hits[place], cpu);
	return sum;
}

static unsigned long missed(unsigned int place)
{
	return in ? missed_hits(place) : missed_finally[place];
}

static void show_rings(struct seq_file *file)
{
	unsigned long long written = 0, overwritten = 0;
	int cpu, cpus = 0;

	for_each_possible_cpu(cpu) {
		unsigned long count = local_read(&per_cpu(cpu_ring, cpu)->written);

		written += count;
		overwritten += count > RING_SLOTS ? count - RING_SLOTS : 0;
		cpus++;
	}
	seq_printf(file, "rings cpus=%d slots=%d event-size=%zu written=%llu overwritten=%llu\n", cpus,
		   RING_SLOTS, sizeof(struct ring_event), written, overwritten);
}

static void show_event(struct seq_file *file, unsigned int event)
{
	unsigned long recorded = 0, lost = 0;
	unsigned int place;

	for (place = 0; place < place_count; place++) {
		if (places[place].event != event)
			continue;
		recorded += hits(place);
		lost += missed(place);
	}
	seq_printf(file, "event %s recorded=%lu missed=%lu\n", event_names[event], recorded, lost);
}

static void show_site(struct seq_file *file, const struct site *site)
{
	seq_printf(file, "site %s %lx original=%*phN live=%*phN\n", site->symbol, (unsigned long)site->address,
		   site->size, site->original, site->size, site->address);
}

/* Bounded by RECORDER_PLACES_MAX and RECORDER_SITES_MAX; the last line shows that nothing is missing. */
static int report_show(struct seq_file *file, void *unused)
{
	unsigned int i;

	mutex_lock(&places_mutex);
	seq_printf(file, "recorder format=%d mechanism=%s state=%s restored=%s\n", REPORT_FORMAT, mechanism,
		   in ? "recording" : "stopped", in ? "-" : restored ? "yes" : "no");
	show_rings(file);
	for (i = 0; i < event_count; i++)
		show_event(file, i);
	for (i = 0; i < place_count; i++)
		seq_printf(file, "place %s %s recorded=%lu missed=%lu\n", event_names[places[i].event],
			   places[i].symbol, hits(i), missed(i));
	for (i = 0; i < site_count; i++)
		show_site(file, &sites[i]);
	seq_printf(file, "end events=%u places=%u sites=%u\n", event_count, place_count, site_count);
	mutex_unlock(&places_mutex);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(report);

static int set_stop(const char *text, const struct kernel_param *param)
{
	bool wanted;
	int err = kstrtobool(text, &wanted);

	if (err || !wanted)
		return err ?: -EINVAL;
	mutex_lock(&places_mutex);
	if (in)
		stop();
	mutex_unlock(&places_mutex);
	return 0;
}

static const struct kernel_param_ops stop_ops = { .set = set_stop };
module_param_cb(stop, &stop_ops, NULL, 0200);

int places_begin(void)
{
	struct dentry *folder;
	int err = ring_allocate();

	if (err)
		return err;
	err = put_in();
	if (err) {
		ring_free();
		return err;
	}
	in = true;
	folder = debugfs_lookup(KBUILD_MODNAME, NULL);
	debugfs_create_file("report", 0400, folder, NULL, &report_fops);
	dput(folder);
	return 0;
}

void places_end(void)
{
	mutex_lock(&places_mutex);
	if (in)
		stop();
	mutex_unlock(&places_mutex);
	/* Removes the report with the folder and waits for its readers, then frees the rings. */
	ring_free();
}
