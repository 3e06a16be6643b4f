// SPDX-License-Identifier: GPL-2.0-only
// See btf.h. The format is described in Documentation/bpf/btf.rst.
#include "btf.h"

enum { ROOM = 32 << 20, ENOENT = 2, EINVAL = 22, EFBIG = 27, MAGIC = 0xeb9f };
enum {
	INT = 1, PTR, ARRAY, STRUCT, UNION, ENUM, TYPEDEF = 8, VOLATILE, CONST, RESTRICT, FUNC, FUNC_PROTO, VAR, DATASEC,
	FLOAT, DECL_TAG, TYPE_TAG, ENUM64
};

struct header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t size, types, types_size, strings, strings_size;
};

// The header that all kinds have in common; most have data after it.
struct type {
	uint32_t name, info, other;
};

static uint32_t kind(const struct type *type)
{
	return type->info >> 24 & 0x1f;
}

static uint32_t members(const struct type *type)
{
	return type->info & 0xffff;
}

static size_t size_of(const struct type *type)
{
	switch (kind(type)) {
	case INT:
	case VAR:
	case DECL_TAG:
		return sizeof(*type) + 4;
	case ARRAY:
		return sizeof(*type) + 12;
	case STRUCT:
	case UNION:
	case DATASEC:
	case ENUM64:
		return sizeof(*type) + 12 * members(type);
	case ENUM:
	case FUNC_PROTO:
		return sizeof(*type) + 8 * members(type);
	default:
		return sizeof(*type);
	}
}

// The type with this number, counted from 1; NULL after the last.
static const struct type *type_at(const struct header *header, uint32_t wanted)
{
	const char *at = (const char *)header + header->size + header->types, *end = at + header->types_size;

	for (uint32_t number = 1; at < end; number++) {
		if (number == wanted)
			return (const struct type *)at;
		at += size_of((const struct type *)at);
	}
	return NULL;
}

// Whether a name consists of these two parts.
static int is_joined(const char *name, const char *first, const char *second)
{
	for (; *first; first++, name++)
		if (*name != *first)
			return 0;
	return text_equal(name, second);
}

static long find_in(const struct header *header, uint32_t wanted, const char *prefix, const char *name,
		    struct btf_function *found)
{
	const char *types = (const char *)header + header->size + header->types, *end = types + header->types_size;
	const char *names = (const char *)header + header->size + header->strings;
	uint32_t number = 1;

	for (const char *at = types; at < end; number++) {
		const struct type *type = (const struct type *)at, *prototype;

		if (kind(type) == wanted && is_joined(names + type->name, prefix, name)) {
			prototype = type_at(header, type->other);
			if (prototype && kind(prototype) == PTR)
				prototype = type_at(header, prototype->other);
			found->id = number;
			found->arguments = prototype ? members(prototype) : 0;
			return 0;
		}
		at += size_of(type);
	}
	return -ENOENT;
}

// The kernel's type information, read once, or a negative errno as an address.
static const struct header *read_types(void)
{
	static const struct header *header;
	char *content;
	long size;

	if (header)
		return header;
	content = map_memory(-1, ROOM, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
	header = (const struct header *)content;
	if (is_error(content))
		return header;
	size = file_content("/sys/kernel/btf/vmlinux", content, ROOM);
	if (size == ROOM)
		size = -EFBIG;
	else if (size >= 0 && ((size_t)size < sizeof(*header) || header->magic != MAGIC))
		size = -EINVAL;
	if (size < 0)
		header = (const struct header *)size;
	return header;
}

long find_function(const char *name, struct btf_function *found)
{
	const struct header *header = read_types();

	return is_error(header) ? (long)header : find_in(header, FUNC, "", name, found);
}

long find_tracepoint(const char *name, struct btf_function *found)
{
	const struct header *header = read_types();
	long error = is_error(header) ? (long)header : find_in(header, TYPEDEF, "btf_trace_", name, found);

	if (!error && found->arguments)
		found->arguments--;	// the probe's own data come before the tracepoint's arguments
	return error;
}

long name_function(uint32_t id, char *to, size_t room)
{
	const struct header *header = read_types();
	const struct type *type;
	const char *name;
	size_t length;

	if (is_error(header))
		return (long)header;
	type = type_at(header, id);
	if (!type || kind(type) != FUNC)
		return -EINVAL;
	name = (const char *)header + header->size + header->strings + type->name;
	length = text_length(name);
	if (length >= room)
		return -EFBIG;
	memcpy(to, name, length + 1);
	return 0;
}

long list_types(struct btf_types *types)
{
	const struct header *header = read_types();
	const char *at, *end;
	const void **all;
	uint32_t count = 1;

	if (is_error(header))
		return (long)header;
	at = (const char *)header + header->size + header->types;
	end = at + header->types_size;
	// A type has at least the three words of its header.
	all = map_memory(-1, (header->types_size / sizeof(struct type) + 1) * sizeof(*all), 0, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS);
	if (is_error(all))
		return (long)all;
	for (; at < end; at += size_of((const struct type *)at))
		all[count++] = at;
	*types = (struct btf_types){header, all, count};
	return 0;
}

const char *function_name(const struct btf_types *types, uint32_t id)
{
	const struct header *header = types->header;
	const struct type *type = types->all[id];

	return kind(type) == FUNC ? (const char *)header + header->size + header->strings + type->name : NULL;
}

// The type without qualifiers and typedefs; NULL for void, and for an unknown number.
static const struct type *plain(const struct btf_types *types, uint32_t id)
{
	while (id && id < types->count) {
		const struct type *type = types->all[id];

		if (kind(type) != TYPEDEF && kind(type) != VOLATILE && kind(type) != CONST && kind(type) != RESTRICT &&
		    kind(type) != TYPE_TAG)
			return type;
		id = type->other;
	}
	return NULL;
}

static uint32_t bytes_of(const struct type *type)
{
	switch (type ? kind(type) : 0) {
	case PTR:
		return sizeof(void *);
	case INT:
	case STRUCT:
	case UNION:
	case ENUM:
	case ENUM64:
	case FLOAT:
		return type->other;
	default:
		return 0;
	}
}

int takes_trampoline(const struct btf_types *types, uint32_t id, uint32_t most, uint32_t largest, uint32_t result)
{
	const struct type *prototype = plain(types, ((const struct type *)types->all[id])->other), *returned;
	uint32_t words = 0;

	if (!prototype || kind(prototype) != FUNC_PROTO || members(prototype) > most)
		return 0;
	returned = plain(types, prototype->other);
	if (returned && (kind(returned) == STRUCT || kind(returned) == UNION || !bytes_of(returned) ||
			 bytes_of(returned) > result))
		return 0;
	for (uint32_t i = 0; i < members(prototype); i++) {
		const uint32_t *parameter = (const uint32_t *)(prototype + 1) + 2 * i;	// name and type
		uint32_t size = bytes_of(plain(types, parameter[1]));

		if (!size || size > largest)
			return 0;
		words += (size + 7) / 8;
	}
	return words <= most;
}
