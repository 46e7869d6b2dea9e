/* SPDX-License-Identifier: MIT */
/* The bpf(2) system call, for generated programs. 0 or a descriptor, or -errno. */
#ifndef SOFTRDMA_RAW_BPF_H
#define SOFTRDMA_RAW_BPF_H

#include "filter.h"

/*
 * Load what the rules say for @place, with its tables. @xsk_map is for FILTER_XDP. Returns the
 * program's descriptor.
 */
int bpf_load_filter(enum filter_place place, const struct raw_rule *rules, unsigned num,
		    int xsk_map);

int bpf_create_map(enum bpf_map_type type, uint32_t key_size, uint32_t value_size, uint32_t max);
int bpf_update_map(int map, const void *key, const void *value);

/*
 * Attach a program to an interface until the link is closed. @place: FILTER_XDP or FILTER_TCX;
 * @flags as the kernel has them.
 */
int bpf_link(int program, unsigned ifindex, enum filter_place place, uint32_t flags);
/* Put another program in place of the link's, between two frames. */
int bpf_relink(int link, int program);

#endif
