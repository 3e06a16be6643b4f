// SPDX-License-Identifier: GPL-2.0-only
// What one run of a program in another root costs with all that it starts, from before its fork to after its end.
//
//   macrobench [-o FILE] [-e FILE] [-a FILE] [-c off] ROOT [PROGRAM [ARGUMENT...]]
//       -o, -e: its standard output and its standard error are written to these files, outside of the root.
//       -c: QEMU's plugin does not go on counting behind the run. To begin anew has QEMU translate everything again.
//       -a: PROGRAM and its arguments are in this file instead, each with a zero byte behind it.
//
// A PROGRAM without a slash is looked for where a login shell would. Its environment is always the same.
// Output, one line, times in nanoseconds:
//   run real=T user=T system=T minor=FAULTS major=FAULTS switches=N tsc=TICKS
// TICKS of the TSC are between two marks around the run (region.h), and include both readings of the clock.
// Exit status: 0, 2 for bad usage, 1 (and no line) where the program did not end with status 0.
#include "clock.h"
#include "failure.h"
#include "process.h"
#include "region_clock.h"
#include "runtime.h"

enum { ARGUMENTS_MAX = 1024, TEXT_MAX = 128 * 1024, PATH_MAX = 4096 };
enum { O_APPEND = 02000 };

const char program_name[] = "macrobench";

struct usage {
	long user[2], system[2];
	long sizes[4], minor, major, others[6], voluntary, involuntary;
};

struct job {
	const char *output, *errors, *root;
	char **argv;
	int counts_once;
};

static char *const environment_inside[] = {
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C", NULL,
};
static const char *const folders[] = {
	"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/",
};
static char text[TEXT_MAX + 1];
static char *arguments[ARGUMENTS_MAX + 1];

static uint64_t nanoseconds(const long time[2])
{
	return (uint64_t)time[0] * 1000000000u + (uint64_t)time[1] * 1000u;
}

static char **read_arguments(const char *file)
{
	long fd = sys3(SYS_open, file, O_RDONLY | O_CLOEXEC, 0), size = 0, got = 0;
	int count = 0;

	if (fd < 0)
		fail("cannot open ", file);
	do {
		size += got;
		got = sys3(SYS_read, fd, text + size, (long)sizeof(text) - size);
	} while (got > 0);
	sys1(SYS_close, fd);
	if (got < 0 || size < 1 || size > TEXT_MAX || text[size - 1])
		fail("there are no arguments, or too long ones, in ", file);
	for (char *at = text; at < text + size; at += text_length(at) + 1) {
		if (count == ARGUMENTS_MAX)
			fail("there are too many arguments in ", file);
		arguments[count++] = at;
	}
	return arguments;
}

static void send_to(const char *file, int fd)
{
	long opened;

	if (!file)
		return;
	opened = sys3(SYS_open, file, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	if (opened < 0)
		fail("cannot write ", file);
	sys2(SYS_dup2, opened, fd);
}

static int has_slash(const char *name)
{
	while (*name && *name != '/')
		name++;
	return *name;
}

static void execute(char **argv)
{
	static char path[PATH_MAX];
	size_t length = text_length(argv[0]);

	if (has_slash(argv[0])) {
		sys3(SYS_execve, argv[0], argv, environment_inside);
		return;
	}
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		size_t folder = text_length(folders[i]);

		if (folder + length >= sizeof(path))
			return;
		memcpy(path, folders[i], folder);
		memcpy(path + folder, argv[0], length + 1);
		sys3(SYS_execve, path, argv, environment_inside);
	}
}

static void become(const struct job *job) __attribute__((noreturn));
static void become(const struct job *job)
{
	sys2(SYS_dup2, sys3(SYS_open, "/dev/null", O_RDONLY | O_CLOEXEC, 0), 0);
	send_to(job->output, 1);
	send_to(job->errors, 2);
	if (sys1(SYS_chroot, job->root) < 0 || sys1(SYS_chdir, "/") < 0)
		fail("cannot enter ", job->root);
	execute(job->argv);
	print(2, "macrobench: cannot execute ");
	print(2, job->argv[0]);
	print(2, "\n");
	exit_program(CANNOT_EXECUTE);
}

static struct job understand(int argc, char **argv)
{
	struct job job = {NULL, NULL, NULL, NULL, 0};

	argv++;
	argc--;
	for (; argc >= 2 && argv[0][0] == '-'; argv += 2, argc -= 2) {
		if (text_equal(argv[0], "-o"))
			job.output = argv[1];
		else if (text_equal(argv[0], "-e"))
			job.errors = argv[1];
		else if (text_equal(argv[0], "-c"))
			job.counts_once = text_equal(argv[1], "off");
		else if (text_equal(argv[0], "-a"))
			job.argv = read_arguments(argv[1]);
		else
			fail("unknown option ", argv[0]);
	}
	if (argc < 1 || argv[0][0] == '-' || (argc == 1) != (job.argv != NULL))
		fail("expected [-o FILE] [-e FILE] ROOT PROGRAM [ARGUMENT...], or -a FILE and ROOT", "");
	job.root = argv[0];
	if (!job.argv)
		job.argv = argv + 1;
	return job;
}

int program(int argc, char **argv, char **environment)
{
	struct job job = understand(argc, argv);
	struct usage usage;
	uint64_t clock, tsc;
	int status = 0;
	long pid;

	(void)environment;
	memset(&usage, 0, sizeof(usage));
	arm_counting();
	tsc = begin_region();
	clock = read_clock();
	pid = sys0(SYS_fork);
	if (pid < 0)
		fail("cannot fork", "");
	if (!pid)
		become(&job);
	while (sys4(SYS_wait4, pid, &status, 0, &usage) == -E_INTR)
		;
	clock = read_clock() - clock;
	tsc = end_region() - tsc;
	if (status) {
		print_wait_status(status);
		return 1;
	}
	__asm__ volatile(REGION_MARK(REGION_KEEP));
	if (job.counts_once)
		__asm__ volatile(REGION_MARK(REGION_DISARM));
	print_field("run real=", clock);
	print_field(" user=", nanoseconds(usage.user));
	print_field(" system=", nanoseconds(usage.system));
	print_field(" minor=", (uint64_t)usage.minor);
	print_field(" major=", (uint64_t)usage.major);
	print_field(" switches=", (uint64_t)(usage.voluntary + usage.involuntary));
	print_field(" tsc=", tsc);
	print(1, "\n");
	return 0;
}
