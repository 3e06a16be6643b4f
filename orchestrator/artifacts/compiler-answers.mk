# SPDX-License-Identifier: GPL-2.0-only
# Kbuild's question whether a command succeeds, answered from a file where it has succeeded before.
#
# Each start of kbuild asks the compiler and the linker some 26 times which options they take, half of the time that a
# small module needs. LAB_SUCCEEDED is the file: a line for each command. With LAB_RECORD those are added that succeed
# and are not in it. What fails is asked again each time: it may have been the host's fault.
# make reads this in each of its processes (MAKEFILES), before kbuild's own definition (scripts/Makefile.compiler; before
# Linux 5.17 commands write TMPO as well, and before 5.8 their files were beside the module's).

define lab_newline


endef

lab_succeeded := $(lab_newline)$(file <$(LAB_SUCCEEDED))$(lab_newline)

lab_succeeds = $(shell folder=$$(mktemp -d) || exit; trap 'rm -rf "$$folder"' EXIT; TMP=$$folder/tmp; TMPO=$$TMP.o; \
	if ($(1)) >/dev/null 2>&1; then echo y; fi)

lab_ask = $(if $(lab_succeeds),$(if $(LAB_RECORD),$(file >>$(LAB_SUCCEEDED),$(1)))y)

override try-run = $(if $(findstring $(lab_newline)$(1)$(lab_newline),$(lab_succeeded)),$(2),$(if $(lab_ask),$(2),$(3)))
