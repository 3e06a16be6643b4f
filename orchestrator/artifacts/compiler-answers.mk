# SPDX-License-Identifier: GPL-2.0-only
# Kbuild's question whether a command succeeds, answered from a file where it has succeeded before.
#
# Each start of kbuild asks the compiler and the linker some 26 times which options they take, half of the time that a
# small module needs. LAB_SUCCEEDED is the file: a line for each command. LAB_RECORDED, if set, is a file to which those
# are added that succeed and are not in it. What fails is asked again each time: it may have been the host's fault.
# make reads this in each of its processes (MAKEFILES), before kbuild's own definition (scripts/Makefile.compiler).

define lab_newline


endef

lab_succeeded := $(lab_newline)$(file <$(LAB_SUCCEEDED))$(lab_newline)

lab_succeeds = $(shell TMP=$(TMPOUT)/tmp; trap "rm -rf $(TMPOUT)" EXIT; mkdir -p $(TMPOUT); \
	if ($(1)) >/dev/null 2>&1; then echo y; fi)

lab_ask = $(if $(lab_succeeds),$(if $(LAB_RECORDED),$(file >>$(LAB_RECORDED),$(1)))y)

override try-run = $(if $(findstring $(lab_newline)$(1)$(lab_newline),$(lab_succeeded)),$(2),$(if $(lab_ask),$(2),$(3)))
