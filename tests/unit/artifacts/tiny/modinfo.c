// SPDX-License-Identifier: GPL-2.0-only
// What makes an object file a kernel module for those who only read its .modinfo.
#define ENTRY(name, value) static const char name[] __attribute__((section(".modinfo"), used)) = #name "=" value

ENTRY(license, "GPL");
ENTRY(depends, DEPENDS);
ENTRY(vermagic, "6.1.0 SMP mod_unload = modversions");
