/* SPDX-License-Identifier: MIT */
/*
 * Rules to eBPF. The program reads the frame's headers into a key on its stack, as key_parse does,
 * and then looks for a rule that it matches: rules that share a mask in a hash map, a few by
 * comparing words. The frame is read by a helper that takes any offset, so one generator serves
 * every place where such a program can run.
 */
#include <endian.h>
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "../tuning.h"
#include "filter.h"

#define MAX_CODE       32000 /* instructions: a jump reaches no further */
#define ETHERTYPE_QINQ 0x88a8
#define DROP           2  /* TCX_DROP */
#define NEXT           -1 /* TCX_NEXT */
#define PASS           2  /* XDP_PASS */

/* The stack, below the frame pointer. */
#define KEY    (-(int)sizeof(union raw_key))
#define HEADER (KEY - 32)                            /* of IP, or a tag */
#define LOOKUP (HEADER - (int)sizeof(union raw_key)) /* a map's key */

#define FIELD(name) (KEY + (int)offsetof(union raw_key, name))

enum reg { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FP };
#define CONTEXT R6 /* of the program: kept across calls */
#define OFFSET  R7 /* in the frame: where the next header begins */
#define SPARE   R8

struct writer {
	enum filter_place place;
	struct bpf_insn *code;
	unsigned num, room;
	int error;
};

/* Where jumps go. Until it is placed its jumps are chained by their offsets, the last one here. */
struct label {
	int last;
};

#define NEW_LABEL ((struct label){-1})

/* ---- instructions ---- */

static void emit(struct writer *to, uint8_t code, enum reg dst, enum reg src, int off, int imm)
{
	if (to->num == to->room) {
		unsigned room = to->room ? to->room * 2 : 256;
		struct bpf_insn *grown = realloc(to->code, room * sizeof(*grown));

		if (!grown || room > 2 * MAX_CODE) {
			to->error = grown ? -E2BIG : -ENOMEM;
			to->code = grown ? grown : to->code;
			to->num = 0; /* nothing will be used of it */
			return;
		}
		to->code = grown;
		to->room = room;
	}
	to->code[to->num++] = (struct bpf_insn){.code = code,
						.dst_reg = (uint8_t)dst & 15,
						.src_reg = (uint8_t)src & 15,
						.off = (int16_t)off,
						.imm = imm};
}

static void emit_move(struct writer *to, enum reg dst, enum reg src)
{
	emit(to, BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0);
}

static void emit_constant(struct writer *to, enum reg dst, int imm)
{
	emit(to, BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm);
}

static void emit_constant64(struct writer *to, enum reg dst, uint64_t value)
{
	emit(to, BPF_LD | BPF_IMM | BPF_DW, dst, 0, 0, (int)(uint32_t)value);
	emit(to, 0, 0, 0, 0, (int)(uint32_t)(value >> 32));
}

static void emit_map(struct writer *to, enum reg dst, int map)
{
	emit(to, BPF_LD | BPF_IMM | BPF_DW, dst, BPF_PSEUDO_MAP_FD, 0, map);
	emit(to, 0, 0, 0, 0, 0);
}

static void emit_alu(struct writer *to, uint8_t operation, enum reg dst, int imm)
{
	emit(to, BPF_ALU64 | operation | BPF_K, dst, 0, 0, imm);
}

/* @size: BPF_B, BPF_H, BPF_W, BPF_DW. */
static void emit_load(struct writer *to, uint8_t size, enum reg dst, enum reg from, int off)
{
	emit(to, BPF_LDX | BPF_MEM | size, dst, from, off, 0);
}

static void emit_store(struct writer *to, uint8_t size, int off, enum reg src)
{
	emit(to, BPF_STX | BPF_MEM | size, FP, src, off, 0);
}

static void emit_store_constant(struct writer *to, uint8_t size, int off, int imm)
{
	emit(to, BPF_ST | BPF_MEM | size, FP, 0, off, imm);
}

static void emit_jump(struct writer *to, uint8_t operation, enum reg reg, int imm,
		      struct label *target)
{
	int previous = target->last;

	target->last = (int)to->num;
	emit(to, BPF_JMP | operation | BPF_K, reg, 0, previous, imm);
}

/* The jumps to @label lead here. */
static void place(struct writer *to, struct label *label)
{
	if (to->num > MAX_CODE)
		to->error = -E2BIG;
	if (to->error)
		return;
	while (label->last >= 0) {
		struct bpf_insn *jump = &to->code[label->last];
		int at = label->last;

		label->last = jump->off;
		jump->off = (int16_t)((int)to->num - at - 1);
	}
}

/* ---- reading headers ---- */

/* @len bytes of the frame at OFFSET to the stack; to @missing if it is shorter. */
static void read_frame(struct writer *to, int stack, int len, struct label *missing)
{
	emit_move(to, R1, CONTEXT);
	emit_move(to, R2, OFFSET);
	emit_move(to, R3, FP);
	emit_alu(to, BPF_ADD, R3, stack);
	emit_constant(to, R4, len);
	emit(to, BPF_JMP | BPF_CALL, 0, 0, 0,
	     to->place == FILTER_XDP ? BPF_FUNC_xdp_load_bytes : BPF_FUNC_skb_load_bytes);
	emit_jump(to, BPF_JNE, R0, 0, missing);
}

static void copy_field(struct writer *to, uint8_t size, int field, int from)
{
	emit_load(to, size, R1, FP, from);
	emit_store(to, size, field, R1);
}

/* XDP sees the tag where it was on the wire. */
static void read_tag_in_frame(struct writer *to)
{
	struct label tagged = NEW_LABEL, untagged = NEW_LABEL;

	emit_load(to, BPF_H, R1, FP, FIELD(ether_type));
	emit_jump(to, BPF_JEQ, R1, htobe16(ETHERTYPE_VLAN), &tagged);
	emit_jump(to, BPF_JNE, R1, htobe16(ETHERTYPE_QINQ), &untagged);
	place(to, &tagged);
	read_frame(to, HEADER, 4, &untagged);
	copy_field(to, BPF_H, FIELD(vlan_tci), HEADER);
	copy_field(to, BPF_H, FIELD(ether_type), HEADER + 2);
	emit_store_constant(to, BPF_B, FIELD(is_tagged), 1);
	emit_alu(to, BPF_ADD, OFFSET, 4);
	place(to, &untagged);
}

/* Later the kernel has taken it out. */
static void read_tag_beside(struct writer *to)
{
	struct label untagged = NEW_LABEL;

	emit_load(to, BPF_W, R1, CONTEXT, offsetof(struct __sk_buff, vlan_present));
	emit_jump(to, BPF_JEQ, R1, 0, &untagged);
	emit_load(to, BPF_W, R1, CONTEXT, offsetof(struct __sk_buff, vlan_tci));
	emit(to, BPF_ALU | BPF_END | BPF_TO_BE, R1, 0, 0, 16);
	emit_store(to, BPF_H, FIELD(vlan_tci), R1);
	emit_store_constant(to, BPF_B, FIELD(is_tagged), 1);
	place(to, &untagged);
}

static void read_ethernet(struct writer *to, struct label *miss)
{
	for (int i = 0; i < KEY_WORDS; i++)
		emit_store_constant(to, BPF_DW, KEY + i * 8, 0);
	emit_constant(to, OFFSET, 0);
	read_frame(to, KEY, ETHER_HDR_LEN, miss);
	emit_constant(to, OFFSET, ETHER_HDR_LEN);
	if (to->place == FILTER_XDP)
		read_tag_in_frame(to);
	else
		read_tag_beside(to);
}

static void read_ipv4_flags(struct writer *to)
{
	emit_load(to, BPF_B, R1, FP, HEADER + 6);
	emit_move(to, R2, R1);
	emit_alu(to, BPF_RSH, R1, 5); /* 0x40 to 0x2 */
	emit_alu(to, BPF_AND, R1, KEY_DONT_FRAGMENT);
	emit_alu(to, BPF_RSH, R2, 3); /* 0x20 to 0x4 */
	emit_alu(to, BPF_AND, R2, KEY_MORE_FRAGMENTS);
	emit(to, BPF_ALU64 | BPF_OR | BPF_X, R1, R2, 0, 0);
	emit_store(to, BPF_B, FIELD(ip_flags), R1);
}

/* Goes on where the ports are, else to @done. */
static void read_ipv4(struct writer *to, struct label *done)
{
	read_frame(to, HEADER, 20, done);
	emit_load(to, BPF_B, SPARE, FP, HEADER);
	emit_move(to, R1, SPARE);
	emit_alu(to, BPF_RSH, R1, 4);
	emit_jump(to, BPF_JNE, R1, 4, done);
	emit_alu(to, BPF_AND, SPARE, 15);
	emit_jump(to, BPF_JLT, SPARE, 5, done);
	emit_alu(to, BPF_LSH, SPARE, 2);
	emit_store_constant(to, BPF_B, FIELD(ip_version), 4);
	copy_field(to, BPF_B, FIELD(tos), HEADER + 1);
	read_ipv4_flags(to);
	copy_field(to, BPF_B, FIELD(ttl), HEADER + 8);
	copy_field(to, BPF_B, FIELD(ip_proto), HEADER + 9);
	copy_field(to, BPF_W, FIELD(src_ip), HEADER + 12);
	copy_field(to, BPF_W, FIELD(dst_ip), HEADER + 16);
	emit_load(to, BPF_H, R1, FP, HEADER + 6);
	emit_alu(to, BPF_AND, R1, htobe16(0x1fff));
	emit_jump(to, BPF_JNE, R1, 0, done);
	emit(to, BPF_ALU64 | BPF_ADD | BPF_X, OFFSET, SPARE, 0, 0);
}

static void read_ipv6(struct writer *to, struct label *done)
{
	read_frame(to, HEADER, 8, done);
	emit_load(to, BPF_B, R1, FP, HEADER);
	emit_alu(to, BPF_RSH, R1, 4);
	emit_jump(to, BPF_JNE, R1, 6, done);
	emit_alu(to, BPF_ADD, OFFSET, 8);
	read_frame(to, FIELD(src_ip), 32, done);
	emit_alu(to, BPF_ADD, OFFSET, 32);
	emit_load(to, BPF_W, R1, FP, HEADER);
	emit(to, BPF_ALU | BPF_END | BPF_TO_BE, R1, 0, 0, 32);
	emit_move(to, R2, R1);
	emit_alu(to, BPF_RSH, R2, 20);
	emit_store(to, BPF_B, FIELD(tos), R2);
	emit_alu(to, BPF_AND, R1, 0xfffff);
	emit(to, BPF_ALU | BPF_END | BPF_TO_BE, R1, 0, 0, 32);
	emit_store(to, BPF_W, FIELD(flow_label), R1);
	emit_store_constant(to, BPF_B, FIELD(ip_version), 6);
	copy_field(to, BPF_B, FIELD(ip_proto), HEADER + 6);
	copy_field(to, BPF_B, FIELD(ttl), HEADER + 7);
}

static void read_ports(struct writer *to, struct label *done)
{
	struct label known = NEW_LABEL;

	emit_load(to, BPF_B, SPARE, FP, FIELD(ip_proto));
	emit_jump(to, BPF_JEQ, SPARE, IPPROTO_TCP, &known);
	emit_jump(to, BPF_JNE, SPARE, IPPROTO_UDP, done);
	place(to, &known);
	read_frame(to, FIELD(src_port), 4, done);
	emit_store(to, BPF_B, FIELD(l4), SPARE);
}

static void read_key(struct writer *to, struct label *miss)
{
	struct label ipv6 = NEW_LABEL, ports = NEW_LABEL, done = NEW_LABEL;

	emit_move(to, CONTEXT, R1);
	read_ethernet(to, miss);
	emit_load(to, BPF_H, R1, FP, FIELD(ether_type));
	emit_jump(to, BPF_JEQ, R1, htobe16(ETHERTYPE_IPV6), &ipv6);
	emit_jump(to, BPF_JNE, R1, htobe16(ETHERTYPE_IP), &done);
	read_ipv4(to, &done);
	emit_jump(to, BPF_JA, 0, 0, &ports);
	place(to, &ipv6);
	read_ipv6(to, &done);
	place(to, &ports);
	read_ports(to, &done);
	place(to, &done);
}

/* ---- rules ---- */

/* The key's word @i, masked, into R1. */
static void load_masked(struct writer *to, const union raw_key *mask, unsigned i)
{
	emit_load(to, BPF_DW, R1, FP, KEY + (int)i * 8);
	if (mask->words[i] == UINT64_MAX)
		return;
	emit_constant64(to, R2, mask->words[i]);
	emit(to, BPF_ALU64 | BPF_AND | BPF_X, R1, R2, 0, 0);
}

static void compare_rule(struct writer *to, const struct raw_rule *rule, struct label *hit)
{
	struct label next = NEW_LABEL;

	for (unsigned i = 0; i < KEY_WORDS; i++) {
		int previous = next.last;

		if (!rule->mask.words[i])
			continue;
		load_masked(to, &rule->mask, i);
		emit_constant64(to, R2, rule->value.words[i]);
		next.last = (int)to->num;
		emit(to, BPF_JMP | BPF_JNE | BPF_X, R1, R2, previous, 0);
	}
	emit_jump(to, BPF_JA, 0, 0, hit);
	place(to, &next);
}

static void look_up(struct writer *to, const union raw_key *mask, int table, struct label *hit)
{
	int at = LOOKUP;

	for (unsigned i = 0; i < KEY_WORDS; i++) {
		if (!mask->words[i])
			continue;
		load_masked(to, mask, i);
		emit_store(to, BPF_DW, at, R1);
		at += 8;
	}
	emit_map(to, R1, table);
	emit_move(to, R2, FP);
	emit_alu(to, BPF_ADD, R2, LOOKUP);
	emit(to, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem);
	emit_jump(to, BPF_JNE, R0, 0, hit);
}

static bool same_mask(const struct raw_rule *one, const struct raw_rule *other)
{
	return !memcmp(&one->mask, &other->mask, sizeof(one->mask));
}

static int add_table(struct filter_program *program, const struct raw_rule *rules, unsigned num,
		     const struct raw_rule *first, unsigned count)
{
	struct filter_table *table,
		*tables = realloc(program->tables, (program->num_tables + 1) * sizeof(*tables));
	uint64_t *to;

	if (!tables)
		return -ENOMEM;
	program->tables = tables;
	table = &tables[program->num_tables];
	*table = (struct filter_table){.num = count};
	for (unsigned i = 0; i < KEY_WORDS; i++)
		table->words += first->mask.words[i] != 0;
	table->keys = calloc((size_t)count * table->words, sizeof(*table->keys));
	if (!table->keys)
		return -ENOMEM;
	program->num_tables++;
	to = table->keys;
	for (const struct raw_rule *rule = first; rule < rules + num; rule++)
		for (unsigned i = 0; same_mask(rule, first) && i < KEY_WORDS; i++)
			if (first->mask.words[i])
				*to++ = rule->value.words[i];
	return 0;
}

/* All rules that share the mask of @first, which is the first of them. */
static int add_rules(struct writer *to, struct filter_program *program,
		     const struct raw_rule *rules, unsigned num, const struct raw_rule *first,
		     struct label *hit)
{
	unsigned count = 0;
	int error;

	for (const struct raw_rule *rule = first; rule < rules + num; rule++)
		count += same_mask(rule, first);
	if (count > RAW_FEW_RULES) {
		error = add_table(program, rules, num, first, count);
		if (!error)
			look_up(to, &first->mask, (int)program->num_tables - 1, hit);
		return error;
	}
	for (const struct raw_rule *rule = first; rule < rules + num; rule++)
		if (same_mask(rule, first))
			compare_rule(to, rule, hit);
	return 0;
}

static bool is_first_of_mask(const struct raw_rule *rules, const struct raw_rule *rule)
{
	for (const struct raw_rule *before = rules; before < rule; before++)
		if (same_mask(before, rule))
			return false;
	return true;
}

/* One that matches every frame makes all others superfluous, and the kernel takes no dead code. */
static void reduce(const struct raw_rule **rules, unsigned *num)
{
	static const union raw_key nothing;

	for (unsigned i = 0; i < *num; i++) {
		if (memcmp(&(*rules)[i].mask, &nothing, sizeof(nothing)) != 0)
			continue;
		*rules += i;
		*num = 1;
	}
}

/* ---- the whole ---- */

static void end_program(struct writer *to, struct label *hit, struct label *miss)
{
	static const int misses[] = {[FILTER_XDP] = PASS, [FILTER_TCX] = NEXT, [FILTER_SOCKET] = 0};

	place(to, miss);
	emit_constant(to, R0, misses[to->place]);
	emit(to, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	place(to, hit);
	if (to->place == FILTER_XDP) {
		emit_map(to, R1, FILTER_XSK_MAP);
		emit_load(to, BPF_W, R2, CONTEXT, offsetof(struct xdp_md, rx_queue_index));
		emit_constant(to, R3, PASS); /* if there is no socket */
		emit(to, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map);
	} else {
		emit_constant(to, R0, to->place == FILTER_TCX ? DROP : -1);
	}
	emit(to, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

int filter_ebpf(enum filter_place where, const struct raw_rule *rules, unsigned num,
		struct filter_program *out)
{
	struct filter_program program = {0};
	struct writer writer = {.place = where};
	struct label hit = NEW_LABEL, miss = NEW_LABEL;
	int error = 0;

	reduce(&rules, &num);
	read_key(&writer, &miss);
	for (unsigned i = 0; i < num && !error; i++)
		if (is_first_of_mask(rules, &rules[i]))
			error = add_rules(&writer, &program, rules, num, &rules[i], &hit);
	end_program(&writer, &hit, &miss);
	program.code = writer.code;
	program.num = writer.num;
	if (!error)
		error = writer.error;
	if (error)
		filter_free(&program);
	else
		*out = program;
	return error;
}

void filter_free(struct filter_program *program)
{
	for (unsigned i = 0; i < program->num_tables; i++)
		free(program->tables[i].keys);
	free(program->tables);
	free(program->code);
	*program = (struct filter_program){0};
}
