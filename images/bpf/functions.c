// SPDX-License-Identifier: GPL-2.0-only
// See functions.h.
#include "functions.h"
#include "btf.h"
#include "commands.h"
#include "lists.h"

enum { TABLE = 1 << 20, MOST = 1 << 18 };
// MAX_BPF_FUNC_ARGS, btf_distill_func_proto(); before Linux 6.6 x86 takes what is in registers alone (473e3150e30a).
enum { MOST_ARGUMENTS = 12, MOST_IN_REGISTERS = 6, LARGEST_ARGUMENT = 16, LARGEST_RESULT = 8 };

// A name in the kernel's list of symbols, with what is known about it.
struct name {
	const char *text;
	unsigned long address;
	uint32_t symbols, types, id, is_slept_in;
};

static struct name *names;

// Functions that BPF never attaches to: btf_id_deny of kernel/bpf/verifier.c, and noreturn_deny, which do not return.
static const char *const denied[] = {
	"migrate_disable", "migrate_enable", "___migrate_enable", "__rcu_read_lock", "__rcu_read_unlock",
	"rcu_read_unlock_strict", "preempt_count_add", "preempt_count_sub",
	// And of all functions at once the kernel's own test leaves out these, with rcu_*: what a trampoline itself needs, and
	// where RCU does not watch (is_unsafe_function() of tools/testing/selftests/bpf/trace_helpers.c).
	"arch_cpu_idle", "default_idle", "bpf_dispatcher_xdp_func", "bpf_get_numa_node_id",
};
static const char *const endless[] = {
	"__ia32_sys_exit", "__ia32_sys_exit_group", "__kunit_abort", "kunit_try_catch_throw",
	"__module_put_and_kthread_exit", "__x64_sys_exit", "__x64_sys_exit_group", "do_exit", "do_group_exit",
	"kthread_complete_and_exit", "kthread_exit", "make_task_dead",
};

static int is_of_rcu(const char *name)
{
	return name[0] == 'r' && name[1] == 'c' && name[2] == 'u' && name[3] == '_';
}

static int is_among(const char *name, const char *const *list, size_t count)
{
	while (count--)
		if (text_equal(name, list[count]))
			return 1;
	return 0;
}

// FNV-1a.
static uint64_t hash_of(const char *text, uint64_t seed)
{
	uint64_t hash = 0xcbf29ce484222325 ^ seed;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
	return hash;
}

static struct name *name_at(const char *text, int makes)
{
	for (uint64_t at = hash_of(text, 0);; at++) {
		struct name *name = &names[at & (TABLE - 1)];

		if (!name->text) {
			if (!makes)
				return NULL;
			name->text = text;
			return name;
		}
		if (text_equal(name->text, text))
			return name;
	}
}

static long read_symbols(struct functions *found)
{
	char *at = read_list("/proc/kallsyms"), end;

	names = room_for(TABLE * sizeof(*names));
	if (is_error(at) || is_error(names))
		return is_error(at) ? (long)at : (long)names;
	while (*at) {
		unsigned long address = next_hexadecimal(&at);
		struct name *name;
		const char *text;

		at += 3;	// the type between two spaces
		text = next_word(&at, &end);
		if (end == '\t') {	// of a module
			next_word(&at, &end);
			continue;
		}
		name = name_at(text, 1);
		name->symbols++;
		name->address = address;
	}
	found->text_start = name_at("_stext", 1)->address;
	found->text_end = name_at("_etext", 1)->address;
	return found->text_start && found->text_start < found->text_end ? 0 : -E_NOENT;
}

// As "6.12.3-rc1": 6 and 12.
static int is_before(uint32_t major, uint32_t minor)
{
	char release[64];
	long size = file_content("/proc/sys/kernel/osrelease", release, sizeof(release) - 1);
	uint32_t numbers[2] = {0, 0};
	int at = 0;

	for (long i = 0; i < size && at < 2; i++)
		if (release[i] >= '0' && release[i] <= '9')
			numbers[at] = numbers[at] * 10 + (uint32_t)(release[i] - '0');
		else
			at++;
	return numbers[0] < major || (numbers[0] == major && numbers[1] < minor);
}

static long read_types(int returns)
{
	struct btf_types types;
	const uint32_t most = is_before(6, 6) ? MOST_IN_REGISTERS : MOST_ARGUMENTS;
	long error = list_types(&types);

	if (error)
		return error;
	for (uint32_t id = 1; id < types.count; id++) {
		const char *text = function_name(&types, id);
		struct name *name = text ? name_at(text, 0) : NULL;

		if (!name)
			continue;
		name->types++;
		if (takes_trampoline(&types, id, most, LARGEST_ARGUMENT, LARGEST_RESULT) &&
		    !is_of_rcu(text) && !is_among(text, denied, sizeof(denied) / sizeof(*denied)) &&
		    !(returns && is_among(text, endless, sizeof(endless) / sizeof(*endless))))
			name->id = id;
	}
	return 0;
}

// Marks the functions that tasks sleep in, and those by which this program reads them. Older tasks have smaller numbers.
static void read_stacks(void)
{
	static char stack[1 << 14];
	const long last = sys0(SYS_getpid);

	for (long pid = 1; pid <= last; pid++) {
		char path[32], *at = stack, end;
		long size;

		put(put_number(put(path, "/proc/"), (uint64_t)pid, 10), "/stack");
		size = file_content(path, stack, sizeof(stack) - 1);
		stack[size > 0 ? size : 0] = 0;
		while (*at) {	// [<0>] name+0x5/0x10
			struct name *name;
			char *text;

			next_word(&at, &end);
			text = at;
			while (*at && *at != '+')
				at++;
			if (*at)
				*at++ = 0;
			name = name_at(text, 0);
			if (name)
				name->is_slept_in = 1;
			while (*at && *at++ != '\n')
				;
		}
	}
}

struct range {
	unsigned long start, end;
};

static struct range *forbidden;
static uint32_t forbidden_count;

static long read_blacklist(void)
{
	char *at = read_list("/sys/kernel/debug/kprobes/blacklist"), end;

	forbidden = room_for(MOST * sizeof(*forbidden));
	if (is_error(at) || is_error(forbidden))
		return is_error(at) ? (long)at : (long)forbidden;
	while (*at && forbidden_count < MOST) {
		struct range *range = &forbidden[forbidden_count++];

		at += 2;
		range->start = next_hexadecimal(&at);
		at += 3;	// -0x
		range->end = next_hexadecimal(&at);
		at++;
		next_word(&at, &end);
		if (end != '\n')
			next_word(&at, &end);
	}
	return 0;
}

static int is_forbidden(unsigned long address)
{
	for (uint32_t i = 0; i < forbidden_count; i++)
		if (address >= forbidden[i].start && address < forbidden[i].end)
			return 1;
	return 0;
}

static int comes_before(const struct function *one, const struct function *other)
{
	return one->key < other->key || (one->key == other->key && one->address < other->address);
}

static void sort(struct function *all, uint32_t count)
{
	for (uint32_t gap = count / 2; gap; gap = gap == 2 ? 1 : (uint32_t)divide(gap * 5, 11, NULL))
		for (uint32_t i = gap; i < count; i++) {
			struct function moved = all[i];
			uint32_t at = i;

			for (; at >= gap && comes_before(&moved, &all[at - gap]); at -= gap)
				all[at] = all[at - gap];
			all[at] = moved;
		}
}

long read_functions(struct functions *found, int demands, const char *target, uint32_t seed)
{
	static const char *const lists[] = {
		"/sys/kernel/tracing/available_filter_functions_addrs",	// since Linux 6.5
		"/sys/kernel/tracing/available_filter_functions",
	};
	char *at = read_list(lists[0]), end;
	const int has_addresses = !is_error(at);
	long error = read_symbols(found);

	if (!error && demands & TYPED)
		error = read_types(demands & RETURNS);
	if (!error && demands & NOT_IN_BLACKLIST)
		error = read_blacklist();
	if (!error && demands & ON_NO_STACK)
		read_stacks();
	if (!has_addresses)
		at = read_list(lists[1]);
	found->all = room_for(MOST * sizeof(*found->all));
	if (error || is_error(at) || is_error(found->all))
		return error ?: is_error(at) ? (long)at : (long)found->all;
	while (*at && found->count < MOST) {
		struct function one = {.address = has_addresses ? next_hexadecimal(&at) : 0};
		const struct name *name;

		at += has_addresses;
		one.name = next_word(&at, &end);
		if (end == ' ' || end == '\t') {	// of a module
			next_word(&at, &end);
			continue;
		}
		name = name_at(one.name, 0);
		if (!has_addresses || demands & (TYPED | UNIQUE)) {
			if (!name || name->symbols != 1)
				continue;
			one.address = one.address ?: name->address;
		}
		if (demands & TYPED && (name->types != 1 || !name->id))
			continue;
		if (demands & ON_NO_STACK && name && name->is_slept_in)
			continue;
		if (one.address < found->text_start || one.address >= found->text_end || is_forbidden(one.address))
			continue;
		one.id = name ? name->id : 0;
		one.key = text_equal(one.name, target) ? 0 : hash_of(one.name, seed) | 1;
		found->all[found->count++] = one;
	}
	sort(found->all, found->count);
	return found->count && !found->all[0].key ? 0 : -E_NOENT;
}
