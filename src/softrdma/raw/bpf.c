/* SPDX-License-Identifier: MIT */
/* Loading and attaching generated programs. */
#include "bpf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../common/log.h"

#define ATTACH_TCX_INGRESS 46 /* BPF_TCX_INGRESS: newer than the headers may be */
#define LOG_BYTES          (64 << 10)

static int call(int command, union bpf_attr *attr)
{
	long result = syscall(SYS_bpf, command, attr, sizeof(*attr));

	return result < 0 ? -errno : (int)result;
}

int bpf_create_map(enum bpf_map_type type, uint32_t key_size, uint32_t value_size, uint32_t max)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = type;
	attr.key_size = key_size;
	attr.value_size = value_size;
	attr.max_entries = max;
	return call(BPF_MAP_CREATE, &attr);
}

int bpf_update_map(int map, const void *key, const void *value)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_fd = (uint32_t)map;
	attr.key = (uintptr_t)key;
	attr.value = (uintptr_t)value;
	return call(BPF_MAP_UPDATE_ELEM, &attr);
}

static int create_table(const struct filter_table *table)
{
	const uint32_t key_size = table->words * (uint32_t)sizeof(uint64_t), there = 1;
	int map = bpf_create_map(BPF_MAP_TYPE_HASH, key_size, sizeof(there), table->num);

	for (unsigned i = 0; map >= 0 && i < table->num; i++) {
		int error = bpf_update_map(map, table->keys + (size_t)i * table->words, &there);

		if (error) {
			close(map);
			map = error;
		}
	}
	return map;
}

static void set_place(union bpf_attr *attr, enum filter_place place)
{
	switch (place) {
	case FILTER_XDP:
		attr->prog_type = BPF_PROG_TYPE_XDP;
		attr->expected_attach_type = BPF_XDP;
		attr->prog_flags = BPF_F_XDP_HAS_FRAGS; /* jumbo frames come in pieces */
		break;
	case FILTER_TCX:
		attr->prog_type = BPF_PROG_TYPE_SCHED_CLS;
		break;
	case FILTER_SOCKET:
		attr->prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
		break;
	}
}

/* What the kernel thinks of a program that it refuses: our fault, so it is for us to read. */
static void explain_refusal(union bpf_attr *attr)
{
	char *text;

	if (!log_is_on(LOG_DEBUG) || !(text = calloc(1, LOG_BYTES)))
		return;
	attr->log_buf = (uintptr_t)text;
	attr->log_size = LOG_BYTES;
	attr->log_level = 1;
	if (call(BPF_PROG_LOAD, attr) < 0) {
		size_t len = strlen(text);

		log_debug("the kernel refuses a filter: %s", text + (len > 400 ? len - 400 : 0));
	}
	free(text);
}

static int load(enum filter_place place, const struct filter_program *program)
{
	union bpf_attr attr;
	int fd;

	memset(&attr, 0, sizeof(attr));
	set_place(&attr, place);
	attr.insns = (uintptr_t)program->code;
	attr.insn_cnt = program->num;
	attr.license = (uintptr_t) "MIT";
	strcpy(attr.prog_name, "softrdma_raw");
	fd = call(BPF_PROG_LOAD, &attr);
	if (fd < 0 && fd != -EPERM)
		explain_refusal(&attr);
	return fd;
}

/* The program's maps get their descriptors; afterwards the program holds them itself. */
static int load_with_tables(enum filter_place place, struct filter_program *program, int xsk_map)
{
	int *maps = calloc(program->num_tables + 1, sizeof(*maps));
	unsigned made = 0;
	int result = 0;

	if (!maps)
		return -ENOMEM;
	for (; made < program->num_tables && result >= 0; made++)
		result = maps[made] = create_table(&program->tables[made]);
	for (unsigned i = 0; i < program->num && result >= 0; i++) {
		struct bpf_insn *at = &program->code[i];

		if (filter_loads_map(at))
			at->imm = at->imm == FILTER_XSK_MAP ? xsk_map : maps[at->imm];
	}
	if (result >= 0)
		result = load(place, program);
	while (made--)
		if (maps[made] >= 0)
			close(maps[made]);
	free(maps);
	return result;
}

int bpf_load_filter(enum filter_place place, const struct raw_rule *rules, unsigned num,
		    int xsk_map)
{
	struct filter_program program;
	int result = filter_ebpf(place, rules, num, &program);

	if (result)
		return result;
	result = load_with_tables(place, &program, xsk_map);
	filter_free(&program);
	return result;
}

int bpf_link(int program, unsigned ifindex, enum filter_place place, uint32_t flags)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = (uint32_t)program;
	attr.link_create.target_ifindex = ifindex;
	attr.link_create.attach_type = place == FILTER_XDP ? BPF_XDP : ATTACH_TCX_INGRESS;
	attr.link_create.flags = flags;
	return call(BPF_LINK_CREATE, &attr);
}

int bpf_relink(int link, int program)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.link_update.link_fd = (uint32_t)link;
	attr.link_update.new_prog_fd = (uint32_t)program;
	return call(BPF_LINK_UPDATE, &attr);
}
