/* SPDX-License-Identifier: MIT */
#include "bpf_machine.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define require(what)                                                                              \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

void machine_set_frame(struct machine_frame *frame, const void *bytes, size_t len)
{
	*frame = (struct machine_frame){.wire_len = len, .len = len};
	require(len <= sizeof(frame->bytes));
	memcpy(frame->on_wire, bytes, len);
	memcpy(frame->bytes, bytes, len);
	if (len < 18 || (memcmp(frame->bytes + 12, "\x81\x00", 2) != 0 &&
			 memcmp(frame->bytes + 12, "\x88\xa8", 2) != 0))
		return;
	frame->tag.is_there = true;
	frame->tag.tpid = (uint16_t)(frame->bytes[12] << 8 | frame->bytes[13]);
	frame->tag.tci = (uint16_t)(frame->bytes[14] << 8 | frame->bytes[15]);
	frame->len -= 4;
	memmove(frame->bytes + 12, frame->bytes + 16, len - 16);
}

/* ---- classic ---- */

/* A load at @at of the frame, or beside it. False: out of bounds, which rejects the frame. */
static bool load_classic(const struct machine_frame *frame, uint16_t size, uint32_t at,
			 uint32_t *value)
{
	unsigned len = size == BPF_W ? 4 : size == BPF_H ? 2 : 1;

	if (at == (uint32_t)(SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT)) {
		*value = frame->tag.is_there;
		return true;
	}
	if (at == (uint32_t)(SKF_AD_OFF + SKF_AD_VLAN_TAG)) {
		*value = frame->tag.tci;
		return true;
	}
	if (at > frame->len || frame->len - at < len)
		return false;
	*value = 0;
	for (unsigned i = 0; i < len; i++)
		*value = *value << 8 | frame->bytes[at + i];
	return true;
}

static uint32_t compute(uint16_t code, uint32_t a, uint32_t operand)
{
	switch (BPF_OP(code)) {
	case BPF_AND:
		return a & operand;
	case BPF_SUB:
		return a - operand;
	default:
		require(!"a known operation");
		return 0;
	}
}

static bool compare(uint16_t code, uint32_t a, uint32_t k)
{
	switch (BPF_OP(code)) {
	case BPF_JEQ:
		return a == k;
	case BPF_JGE:
		return a >= k;
	case BPF_JGT:
		return a > k;
	case BPF_JSET:
		return a & k;
	default:
		require(!"a known jump");
		return false;
	}
}

bool machine_run_classic(const struct sock_filter *code, int num, const struct machine_frame *frame)
{
	uint32_t a = 0, x = 0;

	for (int at = 0;; at++) {
		const struct sock_filter *now = &code[at];

		require(at < num);
		switch (BPF_CLASS(now->code)) {
		case BPF_LD:
			if (BPF_MODE(now->code) == BPF_LEN)
				a = (uint32_t)frame->len;
			else if (!load_classic(frame, BPF_SIZE(now->code),
					       now->k + (BPF_MODE(now->code) == BPF_IND ? x : 0),
					       &a))
				return false;
			break;
		case BPF_LDX:
			require(BPF_MODE(now->code) == BPF_MSH);
			if (!load_classic(frame, BPF_B, now->k, &x))
				return false;
			x = (x & 15) * 4;
			break;
		case BPF_ALU:
			a = compute(now->code, a, BPF_SRC(now->code) == BPF_X ? x : now->k);
			break;
		case BPF_JMP:
			at += compare(now->code, a, now->k) ? now->jt : now->jf;
			break;
		case BPF_RET:
			return now->k != 0;
		default:
			require(!"a known instruction");
		}
	}
}

/* ---- eBPF ---- */

#define STACK 512

struct machine {
	enum filter_place place;
	const struct filter_program *program;
	const struct machine_frame *frame;
	uint64_t reg[11];
	uint8_t stack[STACK];
	bool redirected;
};

/* What registers hold in place of addresses. */
#define CONTEXT_BASE 0x100000000ull
#define STACK_TOP    0x200000000ull
#define MAP_BASE     0x300000000ull
#define VALUE_BASE   0x400000000ull

static uint8_t *on_stack(struct machine *machine, uint64_t address, unsigned len)
{
	uint64_t from_bottom = address - (STACK_TOP - STACK);

	require(from_bottom <= STACK - len);
	return machine->stack + from_bottom;
}

static uint64_t load_context(const struct machine *machine, uint64_t offset)
{
	if (machine->place == FILTER_XDP) {
		require(offset == offsetof(struct xdp_md, rx_queue_index));
		return 0;
	}
	if (offset == offsetof(struct __sk_buff, vlan_present))
		return machine->frame->tag.is_there;
	require(offset == offsetof(struct __sk_buff, vlan_tci));
	return machine->frame->tag.tci;
}

static unsigned bytes_of(uint8_t code)
{
	switch (BPF_SIZE(code)) {
	case BPF_B:
		return 1;
	case BPF_H:
		return 2;
	case BPF_W:
		return 4;
	default:
		return 8;
	}
}

static void load(struct machine *machine, const struct bpf_insn *now)
{
	uint64_t address = machine->reg[now->src_reg] + (uint64_t)now->off, value = 0;

	if (address >= CONTEXT_BASE && address < CONTEXT_BASE + 256)
		value = load_context(machine, address - CONTEXT_BASE);
	else
		memcpy(&value, on_stack(machine, address, bytes_of(now->code)),
		       bytes_of(now->code));
	machine->reg[now->dst_reg] = value;
}

static void store(struct machine *machine, const struct bpf_insn *now)
{
	uint64_t address = machine->reg[now->dst_reg] + (uint64_t)now->off;
	uint64_t value =
		BPF_CLASS(now->code) == BPF_ST ? (uint64_t)now->imm : machine->reg[now->src_reg];

	memcpy(on_stack(machine, address, bytes_of(now->code)), &value, bytes_of(now->code));
}

static uint64_t read_frame(struct machine *machine)
{
	bool wire = machine->place == FILTER_XDP;
	const uint8_t *bytes = wire ? machine->frame->on_wire : machine->frame->bytes;
	size_t have = wire ? machine->frame->wire_len : machine->frame->len;
	uint64_t offset = machine->reg[2], len = machine->reg[4];
	uint8_t *to = on_stack(machine, machine->reg[3], (unsigned)len);

	require(machine->reg[1] == CONTEXT_BASE);
	if (offset > have || have - offset < len)
		return (uint64_t)-14;
	memcpy(to, bytes + offset, len);
	return 0;
}

static uint64_t look_up(struct machine *machine)
{
	uint64_t index = machine->reg[1] - MAP_BASE;
	const struct filter_table *table;
	const uint8_t *key;

	require(index < machine->program->num_tables);
	table = &machine->program->tables[index];
	key = on_stack(machine, machine->reg[2], table->words * 8);
	for (unsigned i = 0; i < table->num; i++)
		if (!memcmp(table->keys + (size_t)i * table->words, key, table->words * 8))
			return VALUE_BASE;
	return 0;
}

static void call(struct machine *machine, int function)
{
	switch (function) {
	case BPF_FUNC_xdp_load_bytes:
		require(machine->place == FILTER_XDP);
		machine->reg[0] = read_frame(machine);
		break;
	case BPF_FUNC_skb_load_bytes:
		require(machine->place != FILTER_XDP);
		machine->reg[0] = read_frame(machine);
		break;
	case BPF_FUNC_map_lookup_elem:
		machine->reg[0] = look_up(machine);
		break;
	case BPF_FUNC_redirect_map:
		require(machine->reg[1] == MAP_BASE + (uint64_t)FILTER_XSK_MAP);
		machine->redirected = true;
		machine->reg[0] = 4;
		break;
	default:
		require(!"a known function");
	}
	for (unsigned i = 1; i <= 5; i++)
		machine->reg[i] = 0xdead; /* a call does not keep them */
}

static void swap(uint64_t *reg, int bits)
{
	require(bits == 16 || bits == 32);
	*reg = bits == 16 ? htobe16((uint16_t)*reg) : htobe32((uint32_t)*reg);
}

static void arithmetic(struct machine *machine, const struct bpf_insn *now)
{
	uint64_t *dst = &machine->reg[now->dst_reg];
	uint64_t operand = BPF_SRC(now->code) == BPF_X ? machine->reg[now->src_reg]
						       : (uint64_t)(int64_t)now->imm;

	if (BPF_CLASS(now->code) == BPF_ALU) {
		require(BPF_OP(now->code) == BPF_END);
		swap(dst, now->imm);
		return;
	}
	switch (BPF_OP(now->code)) {
	case BPF_MOV:
		*dst = operand;
		break;
	case BPF_ADD:
		*dst += operand;
		break;
	case BPF_AND:
		*dst &= operand;
		break;
	case BPF_OR:
		*dst |= operand;
		break;
	case BPF_LSH:
		*dst <<= operand;
		break;
	case BPF_RSH:
		*dst >>= operand;
		break;
	default:
		require(!"a known operation");
	}
}

static bool jumps(const struct machine *machine, const struct bpf_insn *now)
{
	uint64_t left = machine->reg[now->dst_reg];
	uint64_t right = BPF_SRC(now->code) == BPF_X ? machine->reg[now->src_reg]
						     : (uint64_t)(int64_t)now->imm;

	switch (BPF_OP(now->code)) {
	case BPF_JA:
		return true;
	case BPF_JEQ:
		return left == right;
	case BPF_JNE:
		return left != right;
	case BPF_JLT:
		return left < right;
	default:
		require(!"a known jump");
		return false;
	}
}

static uint64_t run(struct machine *machine)
{
	for (unsigned at = 0;; at++) {
		const struct bpf_insn *now = &machine->program->code[at];

		require(at < machine->program->num);
		switch (BPF_CLASS(now->code)) {
		case BPF_LD:
			machine->reg[now->dst_reg] =
				filter_loads_map(now)
					? MAP_BASE + (uint64_t)now->imm
					: (uint32_t)now[0].imm | (uint64_t)(uint32_t)now[1].imm
									 << 32;
			at++;
			break;
		case BPF_LDX:
			load(machine, now);
			break;
		case BPF_ST:
		case BPF_STX:
			store(machine, now);
			break;
		case BPF_ALU:
		case BPF_ALU64:
			arithmetic(machine, now);
			break;
		case BPF_JMP:
			if (BPF_OP(now->code) == BPF_EXIT)
				return machine->reg[0];
			if (BPF_OP(now->code) == BPF_CALL)
				call(machine, now->imm);
			else if (jumps(machine, now))
				at += (unsigned)now->off;
			break;
		default:
			require(!"a known instruction");
		}
	}
}

bool machine_run_ebpf(enum filter_place place, const struct filter_program *program,
		      const struct machine_frame *frame)
{
	struct machine machine = {.place = place, .program = program, .frame = frame};
	uint32_t result;

	memset(machine.stack, 0xa5, sizeof(machine.stack));
	machine.reg[1] = CONTEXT_BASE;
	machine.reg[10] = STACK_TOP;
	result = (uint32_t)run(&machine);
	switch (place) {
	case FILTER_XDP:
		require(result == 4 || result == 2);
		require(machine.redirected == (result == 4));
		return result == 4;
	case FILTER_TCX:
		require(result == 2 || result == UINT32_MAX);
		return result == 2;
	default:
		require(result == 0 || result == UINT32_MAX);
		return result != 0;
	}
}
