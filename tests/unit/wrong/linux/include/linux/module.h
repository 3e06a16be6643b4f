/* SPDX-License-Identifier: GPL-2.0-only */
/* What a module needs of a kernel's headers to be taken for one by those who only read its file. */
#ifndef LINUX_MODULE_H
#define LINUX_MODULE_H

#define __init
#define __exit
#define THIS_ENTRY(name, text) \
	static const char name[] __attribute__((section(".modinfo"), used)) = text
#define MODULE_LICENSE(text) THIS_ENTRY(license, "license=" text)
#define module_init(function) int init_module(void) { return function(); }
#define module_exit(function) void cleanup_module(void) { function(); }
#define module_param(name, type, mode)                                           \
	static const char __param_str_##name[] __attribute__((used)) = #name;    \
	static const void *const __param_##name                                  \
		__attribute__((section("__param"), used)) = __param_str_##name

THIS_ENTRY(modinfo_name, "name=" KBUILD_MODNAME);
THIS_ENTRY(vermagic, "vermagic=6.1.0-mine SMP mod_unload ");
THIS_ENTRY(depends, "depends=");

int _printk(const char *format, ...);
#define pr_info(...) _printk(__VA_ARGS__)

#endif
