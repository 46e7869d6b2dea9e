/* SPDX-License-Identifier: MIT */
/* Rules to filter programs: rules in, instructions out; nothing is loaded here. */
#ifndef SOFTRDMA_RAW_FILTER_H
#define SOFTRDMA_RAW_FILTER_H

#include <linux/bpf.h>
#include <linux/filter.h>

#include "rule.h"

/*
 * Classic BPF that accepts a received frame if any of the rules matches; for a packet socket, which
 * sees frames without their VLAN tag. Returns the number of instructions, or -E2BIG: more than
 * @max.
 */
int filter_classic(const struct raw_rule *rules, unsigned num, struct sock_filter *out,
		   unsigned max);

/* ---- eBPF: for any number of rules at about the same cost ---- */

/* Where the program runs, and what it says of a frame that matches. */
enum filter_place {
	FILTER_XDP,    /* to the AF_XDP socket of its queue; others pass */
	FILTER_TCX,    /* drop; others go to the next program */
	FILTER_SOCKET, /* accept; others are not seen */
};

/* Rules with the same mask that are too many to be compared one by one: keys of a hash map. */
struct filter_table {
	unsigned words; /* of a key: those that the mask is about */
	unsigned num;
	uint64_t *keys; /* num * words */
};

struct filter_program {
	struct bpf_insn *code;
	unsigned num;
	struct filter_table *tables;
	unsigned num_tables;
};

/*
 * An instruction that loads a map (src_reg is BPF_PSEUDO_MAP_FD) holds a table's index in place of
 * a descriptor, or this: the map of AF_XDP sockets.
 */
#define FILTER_XSK_MAP (-1)

static inline bool filter_loads_map(const struct bpf_insn *at)
{
	return at->code == (BPF_LD | BPF_IMM | BPF_DW) && at->src_reg == BPF_PSEUDO_MAP_FD;
}

/* 0; -ENOMEM; -E2BIG: further than a jump can reach. To be freed with filter_free. */
int filter_ebpf(enum filter_place place, const struct raw_rule *rules, unsigned num,
		struct filter_program *out);
void filter_free(struct filter_program *program);

#endif
