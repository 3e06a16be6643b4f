// SPDX-License-Identifier: GPL-2.0-only
// A user's BPF programs, loaded and attached by libbpf as their sections say, and pinned so that they outlive this one.
//
//   bpfload attach FOLDER OBJECT    makes FOLDER/NAME/program and FOLDER/NAME/link of each program, and says of each
//                                   ID NAME SECTION
//
// Removing the folder detaches them. The words of libbpf and of the kernel's verifier go to stderr.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int say(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return level == LIBBPF_DEBUG ? 0 : vfprintf(stderr, format, arguments);
}

static int fail(const char *what, const char *about, long error)
{
	fprintf(stderr, "bpfload: %s%s%s%s\n", what, about, error ? ": " : "", error ? strerror(labs(error)) : "");
	return 1;
}

static int pin(const struct bpf_program *program, struct bpf_link *link, const char *folder)
{
	const char *name = bpf_program__name(program);
	char place[PATH_MAX], path[PATH_MAX + 16];
	int error;

	if (snprintf(place, sizeof(place), "%s/%s", folder, name) >= (int)sizeof(place))
		return fail("too long a name: ", name, 0);
	if (mkdir(place, 0700) != 0)
		return fail("cannot make ", place, errno);
	snprintf(path, sizeof(path), "%s/link", place);
	error = bpf_link__pin(link, path);
	if (error)
		return fail("cannot pin the link of ", name, error);
	snprintf(path, sizeof(path), "%s/program", place);
	error = bpf_obj_pin(bpf_program__fd(program), path);
	return error ? fail("cannot pin ", name, error) : 0;
}

static int show(const struct bpf_program *program)
{
	struct bpf_prog_info info = {0};
	__u32 size = sizeof(info);
	int error = bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size);

	if (error)
		return fail("the kernel does not know ", bpf_program__name(program), error);
	printf("%u %s %s\n", info.id, bpf_program__name(program), bpf_program__section_name(program));
	return 0;
}

static int attach(const char *folder, const char *file)
{
	// Maps that ask to be pinned by their names go with the rest.
	LIBBPF_OPTS(bpf_object_open_opts, options, .pin_root_path = folder);
	struct bpf_object *object = bpf_object__open_file(file, &options);
	struct bpf_program *program;
	int programs = 0, error;

	if (!object)
		return fail("libbpf cannot open the object", "", errno);
	error = bpf_object__load(object);
	if (error)
		return fail("the object does not load", "", error);
	bpf_object__for_each_program(program, object) {
		struct bpf_link *link;

		if (!bpf_program__autoload(program))
			continue;
		programs++;
		errno = 0;
		link = bpf_program__attach(program);
		if (!link && (errno == 0 || errno == EOPNOTSUPP || errno == ESRCH))
			return fail("libbpf attaches nothing by itself for the section ", bpf_program__section_name(program), 0);
		if (!link)
			return fail("cannot attach ", bpf_program__section_name(program), errno);
		if (pin(program, link, folder) || show(program))
			return 1;
	}
	return programs ? 0 : fail("the object has no program", "", 0);
}

int main(int count, char **words)
{
	libbpf_set_print(say);
	if (count == 4 && strcmp(words[1], "attach") == 0)
		return attach(words[2], words[3]);
	return fail("attach FOLDER OBJECT", "", 0);
}
