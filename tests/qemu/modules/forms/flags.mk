# SPDX-License-Identifier: GPL-2.0-only
ccflags-y += -I$(src)/include -I$(obj)
