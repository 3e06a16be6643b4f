// SPDX-License-Identifier: GPL-2.0-only
// Gives the kernel's random pool the bytes of a file, and credits them: seedrandom FILE. Without, a guest that has no
// hardware to ask would collect them from its timer for seconds before sshd may start. Then the generator takes a new key
// from the pool, which it would not do by itself for five minutes: restored guests would draw the same numbers.
#include "runtime.h"

enum { SEED_MAX = 512 };
// _IOW('R', 0x03, int[2]) and _IO('R', 0x07), from the kernel's <linux/random.h>.
enum { RNDADDENTROPY = 0x40085203, RNDRESEEDCRNG = 0x5207 };

static struct {
	int bits, size;
	char bytes[SEED_MAX];
} seed;

int program(int argc, char **argv, char **environment)
{
	long file, pool, error;

	(void)environment;
	if (argc != 2) {
		print(2, "usage: seedrandom FILE\n");
		return 2;
	}
	file = sys3(SYS_open, argv[1], O_RDONLY | O_CLOEXEC, 0);
	seed.size = (int)(file < 0 ? file : sys3(SYS_read, file, seed.bytes, SEED_MAX));
	seed.bits = 8 * seed.size;
	pool = sys3(SYS_open, "/dev/urandom", O_WRONLY | O_CLOEXEC, 0);
	error = seed.size <= 0 ? -1 : sys3(SYS_ioctl, pool, RNDADDENTROPY, &seed);
	if (error >= 0)
		error = sys3(SYS_ioctl, pool, RNDRESEEDCRNG, 0);
	if (error < 0)
		print(2, "seedrandom: the kernel's random pool did not take the seed\n");
	return error < 0;
}
