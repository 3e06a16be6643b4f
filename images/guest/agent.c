// SPDX-License-Identifier: GPL-2.0-only
// Serves the host's commands over a virtio serial port, one at a time, in frames.
//
// A frame is a header of three little-endian words (payload length, type, request number) and its payload.
//   host → guest   EXEC  "directory\0program\0argument\0..."     PING
//                  PUT   octal-free mode word, "path\0"; then DATA frames, an empty one ends the file
//                  GET   "path\0"                               KILL (the command's process group, or the file)
//   guest → host   HELLO (protocol version word) once; STDOUT, STDERR, DATA; and to end a request
//                  EXIT (wait status word), OK, or ERROR (errno word)
// The console is the kernel's; nothing of this channel passes over it.
#include "runtime.h"

enum { EXEC = 1, KILL, PUT, GET, PING, DATA = 16, HELLO = 32, STDOUT, STDERR, EXIT, OK, ERROR };
enum { PROTOCOL = 1, PAYLOAD_MAX = 64 * 1024, ARGUMENTS_MAX = 1024 };
// The largest capacity that a pipe can be given (/proc/sys/fs/pipe-max-size); the default is 64 KiB.
enum { PIPE_MAX = 1024 * 1024 };
// Where a guest that has entered an image has the initramfs's programs.
#define OWN_PROGRAMS "/run/orchestrator/bin"
enum { SIGKILL = 9, SIGPIPE = 13, SIGCHLD = 17, SIG_BLOCK = 0, SIG_UNBLOCK = 1, WNOHANG = 1 };
enum { POLLIN = 1, POLLERR = 8, POLLHUP = 16 };

struct header {
	uint32_t length, type, request;
};

struct frame {
	struct header header;
	char payload[PAYLOAD_MAX + 1];
};

struct pollfd {
	int fd;
	short events, revents;
};

struct command {
	long pid;
	int output, errors;
};

static int port;
static struct frame received, sent;
// Whether received holds a request that came while a command was running: the host had given that one up.
static int waiting;
static const uint64_t child_signal = 1ull << (SIGCHLD - 1);

// The host is gone or sends nonsense: nobody is left to serve. QEMU runs with -no-reboot, so this ends it.
static void leave(const char *why)
{
	print(2, "agent: ");
	print(2, why);
	print(2, "\n");
	for (;;)
		sys4(SYS_reboot, 0xfee1dead, 672274793, 0x01234567, 0);
}

static void read_all(void *to, size_t size)
{
	char *p = to;

	while (size) {
		long n = sys3(SYS_read, port, p, size);

		if (n == -E_INTR)
			continue;
		if (n <= 0)
			leave("the host closed the command channel");
		p += n;
		size -= (size_t)n;
	}
}

static void receive(void)
{
	read_all(&received.header, sizeof(received.header));
	if (received.header.length > PAYLOAD_MAX)
		leave("a frame from the host is too long");
	read_all(received.payload, received.header.length);
	received.payload[received.header.length] = 0;
}

// The payload already lies in sent.payload; header and payload leave in one write.
static void send(uint32_t type, uint32_t request, size_t length)
{
	sent.header = (struct header){(uint32_t)length, type, request};
	if (write_all(port, &sent, sizeof(sent.header) + length) < 0)
		leave("cannot write to the command channel");
}

static void send_word(uint32_t type, uint32_t request, uint32_t word)
{
	memcpy(sent.payload, &word, sizeof(word));
	send(type, request, sizeof(word));
}

static void finish(uint32_t request, long result)
{
	if (result < 0)
		send_word(ERROR, request, (uint32_t)-result);
	else
		send(OK, request, 0);
}

static void run_child(char *directory, char **arguments, const int *output, const int *errors)
{
	static char *environment[] = {"PATH=/bin:/sbin:/usr/bin:/usr/sbin:" OWN_PROGRAMS, "HOME=/root", "TERM=dumb", NULL};
	static const char *const folders[] = {"/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", OWN_PROGRAMS "/"};
	long error = sys1(SYS_chdir, directory);

	sys2(SYS_setpgid, 0, 0);
	sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, &child_signal, NULL, 8);
	sys2(SYS_dup2, sys3(SYS_open, "/dev/null", O_RDONLY, 0), 0);
	sys2(SYS_dup2, output[1], 1);
	sys2(SYS_dup2, errors[1], 2);
	if (error < 0) {
		print(2, "agent: no such directory\n");
		exit_program(127);
	}
	error = sys3(SYS_execve, arguments[0], arguments, environment);
	int plain = 1;

	for (const char *p = arguments[0]; *p; p++)
		plain &= *p != '/';
	for (size_t i = 0; plain && i < sizeof(folders) / sizeof(*folders); i++) {
		char path[512];
		size_t folder = text_length(folders[i]), name = text_length(arguments[0]);

		if (folder + name >= sizeof(path))
			break;
		memcpy(path, folders[i], folder);
		memcpy(path + folder, arguments[0], name + 1);
		error = sys3(SYS_execve, path, arguments, environment);
	}
	print(2, "agent: cannot execute ");
	print(2, arguments[0]);
	print(2, "\n");
	exit_program(error == -13 ? 126 : 127);
}

static void close_both(const int *pipe)
{
	sys1(SYS_close, pipe[0]);
	sys1(SYS_close, pipe[1]);
}

static long start_command(struct command *command)
{
	static char *arguments[ARGUMENTS_MAX + 1];
	char *end = received.payload + received.header.length;
	char *directory = received.payload, *p = directory + text_length(directory) + 1;
	int output[2], errors[2], count = 0;

	for (; p < end && count < ARGUMENTS_MAX; p += text_length(p) + 1)
		arguments[count++] = p;
	arguments[count] = NULL;
	if (!count || p < end)
		return -7; // E2BIG
	long error = sys2(SYS_pipe2, output, O_CLOEXEC);

	if (error < 0)
		return error;
	error = sys2(SYS_pipe2, errors, O_CLOEXEC);
	if (error < 0) {
		close_both(output);
		return error;
	}
	command->pid = sys0(SYS_fork);
	if (command->pid == 0)
		run_child(directory, arguments, output, errors);
	if (command->pid < 0) {
		close_both(output);
		close_both(errors);
		return command->pid;
	}
	sys1(SYS_close, output[1]);
	sys1(SYS_close, errors[1]);
	command->output = output[0];
	command->errors = errors[0];
	// Both sides set it, so that the group exists before a KILL can come.
	sys2(SYS_setpgid, command->pid, command->pid);
	return command->pid;
}

// Passes on what one read returns; false at the end of the stream.
static int forward(int fd, uint32_t type, uint32_t request)
{
	long n = sys3(SYS_read, fd, sent.payload, PAYLOAD_MAX);

	if (n > 0)
		send(type, request, (size_t)n);
	return n > 0 || n == -E_INTR;
}

// What the command wrote before it ended: no more than a pipe holds. A process it left behind may hold the pipe open,
// or write to it, for ever.
static void drain(int fd, uint32_t type, uint32_t request)
{
	struct pollfd ready = {fd, POLLIN, 0};

	for (int i = 0; i < PIPE_MAX / PAYLOAD_MAX; i++)
		if (sys3(SYS_poll, &ready, 1, 0) <= 0 || !forward(fd, type, request))
			break;
}

// Reaps whatever has ended (as process 1 the agent inherits orphans); true when the command is among it.
static int reap(long pid, uint32_t *status)
{
	int word, found = 0;
	long ended;

	while ((ended = sys4(SYS_wait4, -1, &word, WNOHANG, NULL)) > 0)
		if (ended == pid) {
			*status = (uint32_t)word;
			found = 1;
		}
	return found;
}

static void execute(int children)
{
	struct command command;
	uint32_t request = received.header.request, status = 0;
	long error = start_command(&command);

	if (error < 0) {
		finish(request, error);
		return;
	}
	struct pollfd watched[] = {
		{port, POLLIN, 0}, {children, POLLIN, 0}, {command.output, POLLIN, 0}, {command.errors, POLLIN, 0}};
	for (int running = 1; running;) {
		if (sys3(SYS_poll, watched, 4, -1) < 0)
			continue;
		if (watched[2].revents && !forward(command.output, STDOUT, request))
			watched[2].fd = -1;
		if (watched[3].revents && !forward(command.errors, STDERR, request))
			watched[3].fd = -1;
		if (watched[1].revents) {
			char signals[128 * 8];

			sys3(SYS_read, children, signals, sizeof(signals));
			running = !reap(command.pid, &status);
		}
		if (watched[0].revents) {
			receive();
			if (received.header.type == KILL) {
				if (received.header.request == request)
					sys2(SYS_kill, -command.pid, SIGKILL);
			} else {
				waiting = 1;
				watched[0].fd = -1;
			}
		}
	}
	if (watched[2].fd >= 0)
		drain(command.output, STDOUT, request);
	if (watched[3].fd >= 0)
		drain(command.errors, STDERR, request);
	sys1(SYS_close, command.output);
	sys1(SYS_close, command.errors);
	send_word(EXIT, request, status);
}

// The whole file is taken from the channel even where it cannot be written: the next frame must be found.
static void put_file(void)
{
	uint32_t request = received.header.request, mode = 0;
	long fd = -22, error = 0; // EINVAL

	if (received.header.length > sizeof(mode)) {
		memcpy(&mode, received.payload, sizeof(mode));
		fd = sys3(SYS_open, received.payload + sizeof(mode), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	}
	if (fd < 0)
		error = fd;
	else
		sys2(SYS_fchmod, fd, mode);
	for (receive(); received.header.type == DATA && received.header.length; receive())
		if (!error)
			error = write_all((int)fd, received.payload, received.header.length);
	if (fd >= 0)
		sys1(SYS_close, fd);
	finish(request, error);
}

// Whether the host has abandoned a request.
static int is_killed(uint32_t request)
{
	struct pollfd asked = {port, POLLIN, 0};

	if (waiting || sys3(SYS_poll, &asked, 1, 0) <= 0)
		return 0;
	receive();
	waiting = received.header.type != KILL;
	return !waiting && received.header.request == request;
}

// Some files never end: the host gives one up that has become too large for it.
static void get_file(void)
{
	uint32_t request = received.header.request;
	long fd = sys3(SYS_open, received.payload, O_RDONLY | O_CLOEXEC, 0), n = fd;

	while (n >= 0 && (n = sys3(SYS_read, fd, sent.payload, PAYLOAD_MAX)) > 0) {
		send(DATA, request, (size_t)n);
		if (n == PAYLOAD_MAX && is_killed(request))
			n = -125; // ECANCELED
	}
	if (fd >= 0)
		sys1(SYS_close, fd);
	finish(request, n);
}

// The port is the one virtio serial port of the machine that has our name; numbers depend on the machine.
static int is_our_port(const char *entry)
{
	static const char name[] = "orchestrator.agent\n";
	char path[256] = "/sys/class/virtio-ports/", text[64] = "";
	size_t prefix = text_length(path), length = text_length(entry);

	if (prefix + length + sizeof("/name") > sizeof(path))
		return 0;
	memcpy(path + prefix, entry, length);
	memcpy(path + prefix + length, "/name", sizeof("/name"));
	long fd = sys3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return 0;
	sys3(SYS_read, fd, text, sizeof(text) - 1);
	sys1(SYS_close, fd);
	return text_equal(text, name);
}

static long open_port(void)
{
	static char entries[4096];
	long directory = sys3(SYS_open, "/sys/class/virtio-ports", O_RDONLY | O_CLOEXEC, 0), fd = -2;
	long size = directory < 0 ? 0 : sys3(SYS_getdents64, directory, entries, sizeof(entries));

	for (long at = 0; at < size && fd < 0; at += *(uint16_t *)(entries + at + 16)) {
		const char *entry = entries + at + 19; // inode 8, offset 8, record length 2, type 1
		char path[256] = "/dev/";

		if (text_length(entry) + sizeof("/dev/") > sizeof(path) || !is_our_port(entry))
			continue;
		memcpy(path + 5, entry, text_length(entry) + 1);
		fd = sys3(SYS_open, path, O_RDWR | O_CLOEXEC, 0);
	}
	if (directory >= 0)
		sys1(SYS_close, directory);
	return fd;
}

int program(int argc, char **argv, char **environment)
{
	static const long pause[2] = {0, 1000000};
	long fd, children;

	(void)argc;
	(void)argv;
	(void)environment;
	// The port appears when the driver has heard from QEMU, a little after it was loaded.
	while ((fd = open_port()) < 0)
		sys2(SYS_nanosleep, pause, NULL);
	port = (int)fd;
	sys4(SYS_rt_sigprocmask, SIG_BLOCK, &child_signal, NULL, 8);
	children = sys4(SYS_signalfd4, -1, &child_signal, 8, O_CLOEXEC | O_NONBLOCK);
	send_word(HELLO, 0, PROTOCOL);
	for (;;) {
		if (!waiting)
			receive();
		waiting = 0;
		switch (received.header.type) {
		case EXEC:
			execute((int)children);
			break;
		case PUT:
			put_file();
			break;
		case GET:
			get_file();
			break;
		case PING:
			finish(received.header.request, 0);
			break;
		case KILL: // the command ended by itself just before
			break;
		default:
			leave("a frame from the host has an unknown type");
		}
	}
}
