// SPDX-License-Identifier: GPL-2.0-only
/* Which addresses of the kernel's text does the host give to a module? */
#include <linux/debugfs.h>
#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "ksym.h"
#include "sites.h"

unsigned long *sites;
unsigned int site_count;

static struct dentry *folder;
static unsigned long text_start, text_end;

static ssize_t write_sites(struct file *file, const char __user *text, size_t size, loff_t *offset)
{
	unsigned int count = size / sizeof(*sites), i;

	if (!count || *offset != site_count * sizeof(*sites))
		return -EINVAL;
	if (count > KPCACHE_SITES_MAX - site_count)
		return -ENOSPC;
	if (copy_from_user(sites + site_count, text, count * sizeof(*sites)))
		return -EFAULT;
	for (i = 0; i < count; i++)
		if (sites[site_count + i] < text_start || sites[site_count + i] >= text_end)
			return -ERANGE;
	site_count += count;
	*offset += count * sizeof(*sites);
	return count * sizeof(*sites);
}

static const struct file_operations sites_operations = {
	.owner = THIS_MODULE,
	.write = write_sites,
};

int sites_init(void)
{
	text_start = ksym_lookup("_stext");
	text_end = ksym_lookup("_etext");
	if (!text_start || !text_end)
		return -EOPNOTSUPP;
	sites = vmalloc(array_size(KPCACHE_SITES_MAX, sizeof(*sites)));
	if (!sites)
		return -ENOMEM;
	folder = debugfs_create_dir(THIS_MODULE->name, NULL);
	debugfs_create_file("sites", 0200, folder, NULL, &sites_operations);
	return 0;
}

void sites_exit(void)
{
	debugfs_remove(folder);
	vfree(sites);
}
