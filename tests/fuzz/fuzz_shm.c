/* SPDX-License-Identifier: MIT */
/*
 * A live queue pair in shared memory, and a rude process at the other end of it. The input says how
 * they meet, and then what either does, step by step: the lodger writes entries, positions, words
 * and its table, rings, says last words, hangs up; the side posts, polls, sleeps, deregisters,
 * disconnects. shm/guest.h has what must hold.
 *
 * The lodger never says that it copies from a region that the side deregisters: the side would
 * rightly wait for a second. tests/strangers/shm_ring.c has that.
 */
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "shm/guest.h"

#define STEPS     64u      /* of one input */
#define PAUSES    6u       /* of one input: nothing else waits */
#define THREAD_NS 1000000u /* in which the progress thread usually has done what it can */

int LLVMFuzzerInitialize(int *argc, char ***argv);

struct play {
	struct guest guest;
	struct input input;
	uint8_t *last;   /* the entry that was put last */
	unsigned pauses; /* made by this input */
	bool lied;       /* about how far the lodger has read: the side may overwrite it */
};

static uint8_t payload[RING_MAX_PAYLOAD];

static uint32_t take_word(struct input *input)
{
	uint32_t word = 0;

	for (unsigned i = 0; i < 4; i++)
		word = word << 8 | take_byte(input);
	return word;
}

/* ---- what entries say ---- */

static uint32_t choose_length(struct input *input)
{
	static const uint16_t lengths[] = {
		0,   1,   8,   16,  24,  32,   56,   57,   64,   65,
		100, 120, 121, 128, 256, 1000, 2048, 4096, 8000, RING_MAX_PAYLOAD};
	uint8_t byte = take_byte(input);

	return byte < 0xf0 ? lengths[byte % ARRAY_SIZE(lengths)]
			   : (uint32_t)(byte << 8 | take_byte(input)) % RING_MAX_PAYLOAD;
}

static uint32_t choose_key(struct play *play)
{
	uint8_t byte = take_byte(&play->input);

	switch (byte % 8) {
	case 4:
		return play->guest.old_key;
	case 5:
		return play->guest.lodger.scene.side.mr->rkey;
	case 6:
		return guest_key(&play->guest) ^ 1u << (byte >> 3);
	case 7:
		return byte >> 3;
	default:
		return guest_key(&play->guest);
	}
}

static uint64_t choose_address(struct play *play)
{
	uint64_t region = scene_to(&play->guest.lodger.scene);
	uint8_t byte = take_byte(&play->input);

	switch (byte % 8) {
	case 0:
		return region;
	case 1:
	case 2:
		return region + 8u * take_byte(&play->input);
	case 3:
		return region + REGION - (byte >> 3);
	case 4:
		return region - 1;
	case 5:
		return UINT64_MAX - byte;
	case 6:
		return (uintptr_t)play->guest.lodger.scene.side.buf;
	default:
		return region + byte;
	}
}

static uint64_t choose_argument(struct input *input)
{
	uint8_t byte = take_byte(input);

	switch (byte % 4) {
	case 0:
		return byte;
	case 1:
		return REGION;
	case 2:
		return take_word(input);
	default:
		return (uint64_t)take_word(input) << 32 | byte;
	}
}

static uint8_t choose_flags(struct input *input)
{
	uint8_t byte = take_byte(input);

	return byte < 0xf8 ? byte & RC_FLAGS : byte;
}

/* Of any kind, and with anything. */
static struct rc_frame choose_entry(struct play *play)
{
	struct rc_frame entry = {0};

	entry.kind = take_byte(&play->input) & 15;
	entry.flags = choose_flags(&play->input);
	entry.len = choose_length(&play->input);
	entry.key = choose_key(play);
	entry.addr = choose_address(play);
	entry.arg = choose_argument(&play->input);
	entry.imm = entry.len;
	return entry;
}

/* As a peer that behaves would write it. */
static struct rc_frame make_entry(struct play *play)
{
	static const uint8_t kinds[] = {RC_SEND,      RC_SEND, RC_WRITE, RC_WRITE,
					RC_WRITE_IMM, RC_READ, RC_ATOMIC};
	uint8_t byte = take_byte(&play->input);
	struct rc_frame entry = {.kind = kinds[byte % ARRAY_SIZE(kinds)],
				 .flags = byte & 0x40 ? 0 : RC_LAST,
				 .key = guest_key(&play->guest),
				 .addr = scene_to(&play->guest.lodger.scene)};

	if (entry.kind == RC_SEND || entry.kind == RC_WRITE)
		entry.len = choose_length(&play->input);
	else
		entry.arg = choose_length(&play->input);
	if (entry.kind == RC_ATOMIC)
		entry.len = sizeof(entry.swap);
	if (entry.kind == RC_SEND && byte & 0x80)
		entry.flags |=
			take_byte(&play->input) & (RC_SOLICITED | RC_INVALIDATE | RC_IMMEDIATE);
	if (entry.kind == RC_WRITE_IMM)
		entry.flags |= RC_IMMEDIATE;
	return entry;
}

/* ---- what the lodger does with the ring ---- */

static uint8_t *cell_of(const struct play *play, uint32_t index)
{
	return play->guest.lodger.out.cells + (size_t)(index % RING_CELLS) * RING_CELL;
}

static bool put(struct play *play, const struct rc_frame *entry, const void *bytes)
{
	struct ring_writer *out = &play->guest.lodger.out;
	uint8_t *at;

	if (ring_is_short(entry->kind, entry->flags, entry->len)) {
		if (ring_put_short(out, entry->flags, bytes, entry->len))
			return false;
		play->last = cell_of(play, out->tail - 1);
		return true;
	}
	if (ring_reserve(out, entry, &at))
		return false;
	play->last = at - RING_HEADER;
	memcpy(at, bytes, entry->len);
	ring_commit(out, entry);
	return true;
}

static void ring_bell(struct play *play)
{
	lodger_ring(&play->guest.lodger);
}

/* Where the side is to fetch a Send: from the lodger's memory, from nowhere, and more or less. */
static void put_fetch(struct play *play)
{
	struct ibv_sge pieces[20] = {0};
	uint8_t byte = take_byte(&play->input);
	struct rc_frame entry = {.kind = RC_SEND_FETCH, .flags = RC_LAST};
	unsigned count = byte % 4 ? byte % 4 : byte >> 2 & 15;

	for (unsigned i = 0; i < count; i++) {
		uint8_t where = take_byte(&play->input);

		pieces[i].addr = where & 0x80 ? where : (uintptr_t)guest_memory() + where;
		pieces[i].length = where & 0x40 ? 16 * KIB : where;
		entry.arg += pieces[i].length;
	}
	entry.len = count * (uint32_t)sizeof(*pieces);
	if (byte & 0x40) {
		entry.len += (uint32_t)(int8_t)take_byte(&play->input);
		entry.len %= sizeof(pieces);
		entry.arg += (uint64_t)(int8_t)take_byte(&play->input);
	}
	if (byte & 0x80)
		entry.flags = choose_flags(&play->input);
	put(play, &entry, pieces);
}

/* A first word by hand. The lodger's own tail may go on, or not. */
static void put_word(struct play *play)
{
	struct ring_writer *out = &play->guest.lodger.out;
	uint8_t how = take_byte(&play->input);
	uint64_t word;

	if (how & 1) {
		word = (uint64_t)take_word(&play->input) << 32;
		word |= take_word(&play->input);
	} else {
		uint8_t kind = take_byte(&play->input), flags = take_byte(&play->input);

		word = ring_first_word(kind & 15, flags & RC_FLAGS, take_word(&play->input) & 8191,
				       out->placed);
	}
	memcpy(cell_of(play, out->tail), &word, sizeof(word));
	out->tail += how >> 1 & 3;
}

/* The header of the entry that was put last is another at the next look. */
static void change_header(struct play *play)
{
	uint8_t at = take_byte(&play->input);

	if (play->last)
		play->last[at % RING_HEADER] = take_byte(&play->input);
}

/* The ring goes on by what takes no receive. */
static void put_many(struct play *play, bool polls)
{
	const struct rc_frame nothing = {.kind = RC_WRITE, .flags = RC_LAST};
	unsigned count = take_byte(&play->input);

	for (unsigned i = 0; i < count; i++) {
		put(play, &nothing, payload);
		if (polls)
			guest_poll(&play->guest, 1);
	}
}

/* More than the side keeps without receives. */
static void put_flood(struct play *play)
{
	struct rc_frame send = {.kind = RC_SEND, .flags = RC_LAST};

	send.len = choose_length(&play->input);
	for (unsigned i = 0; i < 64; i++) {
		if (put(play, &send, payload))
			continue;
		ring_bell(play);
		guest_poll(&play->guest, 4);
	}
}

/* ---- as a peer that behaves would read it ---- */

static void answer_read(struct play *play, const struct rc_frame *read)
{
	struct rc_frame data = {.kind = RC_READ_DATA};
	uint64_t left = read->arg;

	do {
		data.len = left < RING_MAX_PAYLOAD ? (uint32_t)left : RING_MAX_PAYLOAD;
		left -= data.len;
		data.flags = left ? 0 : RC_LAST;
	} while (put(play, &data, payload) && left);
}

static void answer(struct play *play, const struct rc_frame *entry)
{
	const struct rc_frame result = {.kind = RC_RESULT, .arg = 7};

	if (entry->kind == RC_READ)
		answer_read(play, entry);
	else if (entry->kind == RC_ATOMIC)
		put(play, &result, payload);
}

static void take_entries(struct play *play)
{
	struct ring_reader *in = &play->guest.lodger.in;
	uint8_t how = take_byte(&play->input);
	struct rc_frame entry = {0};
	const uint8_t *bytes;

	for (unsigned i = 0; i <= (how & 63u); i++) {
		if (ring_peek(in, &entry, &bytes) <= 0)
			break;
		if (!play->lied && (entry.kind == RC_SEND || entry.kind == RC_WRITE))
			CHECK(guest_is_source(bytes, entry.len));
		ring_pop(in);
		if (!(how & 0x40))
			answer(play, &entry);
	}
	ring_publish(in);
	if (!(how & 0x80))
		atomic_store(&play->guest.own->placed, in->published);
}

/* ---- what the lodger does elsewhere ---- */

/* Any word of both parts but those about copies, or of the ring where the side reads. */
static void scribble(struct play *play)
{
	uint8_t where = take_byte(&play->input), at = take_byte(&play->input);
	uint32_t value = take_word(&play->input);
	uint8_t *part = (uint8_t *)(where & 1 ? play->guest.own : play->guest.peer);
	uint8_t *cell = cell_of(play, play->guest.lodger.out.tail - (where >> 1 & 15u));

	play->lied = true;
	if (where & 0x80)
		memcpy(part + (size_t)at % (offsetof(struct area_side, hold) / 4) * 4, &value,
		       sizeof(value));
	else
		memcpy(cell + (size_t)at % (RING_CELL / 4) * 4, &value, sizeof(value));
}

static void move_position(struct play *play)
{
	uint8_t how = take_byte(&play->input);
	_Atomic uint32_t *position =
		how & 1 ? &play->guest.own->consumed : &play->guest.own->placed;
	uint8_t by = take_byte(&play->input);

	play->lied = true;
	switch (how >> 1 & 3) {
	case 0:
		atomic_store(position, play->guest.lodger.in.head);
		break;
	case 1:
		atomic_fetch_add(position, by);
		break;
	case 2:
		atomic_fetch_sub(position, by);
		break;
	default:
		atomic_store(position, take_word(&play->input));
	}
}

static void set_word(struct play *play)
{
	struct area_side *own = play->guest.own, *peer = play->guest.peer;
	_Atomic uint32_t *const words[] = {&own->asleep,   &own->wants_room, &own->domain,
					   &own->may_copy, &peer->asleep,    &peer->wants_room,
					   &own->hold.key};
	uint8_t which = take_byte(&play->input);

	atomic_store(words[which % ARRAY_SIZE(words)], take_byte(&play->input));
}

/* The table says something else: of what is there, or of what is not the lodger's at all. */
static void change_table(struct play *play)
{
	struct regions_entry *entry = &play->guest.table[SINK_STAG >> 8 & 0xffff];
	uint8_t how = take_byte(&play->input), value = take_byte(&play->input);

	switch (how % 6) {
	case 0:
		atomic_store(&entry->key, 0);
		break;
	case 1:
		atomic_store(&entry->key, SINK_STAG);
		break;
	case 2:
		atomic_store(&entry->tags, value);
		break;
	case 3:
		atomic_store(&entry->iova, SINK_TO + value);
		break;
	case 4:
		atomic_store(&entry->length, value % (GUEST_MEMORY + 1u));
		break;
	default: /* where nothing is */
		atomic_store(&entry->addr, value);
	}
}

/* Bells, a last word or a part of it, and descriptors that nobody asked for. */
static void say_something(struct play *play)
{
	uint8_t how = take_byte(&play->input);
	uint8_t bytes[4] = {0};
	int fds[4] = {0, 1, 2, 0};

	for (unsigned i = 0; i < (how & 3u); i++)
		bytes[i] = take_byte(&play->input);
	for (unsigned i = 0; i <= (how & 4 ? 200u : 0); i++)
		unix_try(play->guest.lodger.fd, bytes, (how & 3u) + 1, fds, how >> 3 & 3);
}

static void hang_up(struct play *play)
{
	static const int ways[] = {SHUT_RDWR, SHUT_WR, SHUT_RD};
	struct lodger *lodger = &play->guest.lodger;
	uint8_t how = take_byte(&play->input);

	if (how & 4) {
		close(lodger->fd);
		lodger->fd = -1;
	} else if (how & 8) {
		shutdown(lodger->scene.stranger.fd, ways[how % ARRAY_SIZE(ways)]);
	} else {
		shutdown(lodger->fd, ways[how % ARRAY_SIZE(ways)]);
	}
}

/* ---- what the side does ---- */

static void make_pieces(struct play *play, uint8_t *at, uint32_t len, unsigned count,
			struct ibv_sge *pieces)
{
	for (unsigned i = 0; i < count; i++) {
		uint32_t here = i + 1 < count ? len / count : len - (count - 1) * (len / count);

		pieces[i] = (struct ibv_sge){.addr = (uintptr_t)at,
					     .length = here,
					     .lkey = play->guest.lodger.scene.side.mr->lkey};
		at += here;
	}
}

static uint32_t choose_request_length(struct input *input)
{
	uint8_t byte = take_byte(input);

	switch (byte % 4) {
	case 0:
		return byte;
	case 1:
		return 64;
	case 2:
		return byte * 16u;
	default:
		return byte < 0x80 ? 16 * KIB : SLOT_BYTES - byte;
	}
}

static struct ibv_send_wr make_request(struct play *play, uint64_t id, uint8_t what)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND,
						     IBV_WR_RDMA_READ,
						     IBV_WR_RDMA_WRITE,
						     IBV_WR_SEND_WITH_IMM,
						     IBV_WR_RDMA_WRITE_WITH_IMM,
						     IBV_WR_SEND_WITH_INV,
						     IBV_WR_ATOMIC_CMP_AND_SWP,
						     IBV_WR_ATOMIC_FETCH_AND_ADD};
	const struct offer *remote = &play->guest.lodger.scene.side.remote;
	struct ibv_send_wr wr = {.wr_id = id, .opcode = opcodes[what % ARRAY_SIZE(opcodes)]};
	uint8_t flags = take_byte(&play->input);

	wr.send_flags = flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	wr.imm_data = 5;
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote->addr;
		wr.wr.atomic.rkey = remote->key;
	} else if (wr.opcode != IBV_WR_SEND_WITH_INV) {
		wr.wr.rdma.remote_addr = remote->addr + (flags & 0x80 ? flags : 0);
		wr.wr.rdma.rkey = remote->key ^ (flags & 0x40 ? 0x100 : 0);
	} else {
		wr.invalidate_rkey = remote->key;
	}
	return wr;
}

static void post_request(struct play *play)
{
	struct ibv_sge pieces[MAX_PIECES];
	struct ibv_send_wr wr, *bad;
	uint32_t len;
	uint64_t id;
	uint8_t *at, what = take_byte(&play->input);
	struct slot *slot = guest_slot(&play->guest, &id, &at);
	bool is_atomic;

	if (!slot)
		return;
	wr = make_request(play, id, what);
	is_atomic =
		wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	len = is_atomic ? 8 : choose_request_length(&play->input);
	wr.num_sge = is_atomic ? 1 : (int)(1 + what / 8 % MAX_PIECES);
	wr.sg_list = pieces;
	make_pieces(play, at, len, (unsigned)wr.num_sge, pieces);
	if (what & 0x80 && len <= 64 && !is_atomic && wr.opcode != IBV_WR_RDMA_READ)
		wr.send_flags |= IBV_SEND_INLINE;
	slot->reads = is_atomic || wr.opcode == IBV_WR_RDMA_READ;
	if (slot->reads)
		slot->writable = len;
	else
		guest_fill(slot, at, len);
	slot->use = SLOT_REQUEST;
	slot->must_complete = wr.send_flags & IBV_SEND_SIGNALED;
	if (ibv_post_send(play->guest.lodger.scene.side.qp, &wr, &bad))
		*slot = (struct slot){.filled = slot->filled};
}

static void post_receive(struct play *play)
{
	struct side *side = &play->guest.lodger.scene.side;
	struct ibv_sge pieces[MAX_PIECES];
	struct ibv_recv_wr wr = {.sg_list = pieces}, *bad;
	uint8_t how = take_byte(&play->input), *at;
	struct slot *slot = guest_slot(&play->guest, &wr.wr_id, &at);
	int error;

	if (!slot)
		return;
	slot->writable = how & 0x80 ? SLOT_BYTES - how : choose_request_length(&play->input);
	wr.num_sge = how % (MAX_PIECES + 1);
	if (!wr.num_sge)
		slot->writable = 0;
	make_pieces(play, at, slot->writable, (unsigned)wr.num_sge, pieces);
	slot->use = SLOT_RECV;
	slot->must_complete = !side->srq;
	error = side->srq ? ibv_post_srq_recv(side->srq, &wr, &bad)
			  : ibv_post_recv(side->qp, &wr, &bad);
	if (error)
		*slot = (struct slot){0};
}

static void post_receives(struct play *play)
{
	unsigned count = take_byte(&play->input) % 16u;

	for (unsigned i = 0; i < count; i++)
		post_receive(play);
}

static void poll_side(struct play *play)
{
	static const uint16_t times[] = {1, 2, 8, 70, 300};

	guest_poll(&play->guest, times[take_byte(&play->input) % ARRAY_SIZE(times)]);
}

static void take_event(struct side *side)
{
	struct ibv_cq *cq;
	void *context;

	if (!ibv_get_cq_event(side->comp, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

static bool may_pause(struct play *play)
{
	return play->guest.lodger.scene.side.qp->state == IBV_QPS_RTS && play->pauses++ < PAUSES;
}

/* As an event loop does: the events that are there, and then a moment in poll(). */
static void sleep_side(struct play *play)
{
	struct side *side = &play->guest.lodger.scene.side;
	struct pollfd fd = {.fd = side->comp->fd, .events = POLLIN};

	ibv_req_notify_cq(side->send_cq, 0);
	ibv_req_notify_cq(side->recv_cq, take_byte(&play->input) & 1);
	take_event(side);
	if (may_pause(play) && poll(&fd, 1, 1) == 1)
		take_event(side);
}

/* The side does nothing, and its thread has time to do what there is. */
static void rest(struct play *play)
{
	struct guest *guest = &play->guest;
	struct timespec begin, now;

	ring_bell(play);
	if (!may_pause(play))
		return;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((guest->peer->consumed != guest->lodger.out.tail || !guest->peer->asleep) &&
		 (now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec <
			 THREAD_NS);
}

static void fail_side(struct play *play)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	ibv_modify_qp(play->guest.lodger.scene.side.qp, &attr, IBV_QP_STATE);
}

/* ---- the program ---- */

static void step_entry(struct play *play)
{
	struct rc_frame entry = choose_entry(play);

	put(play, &entry, payload);
}

static void step_good_entry(struct play *play)
{
	struct rc_frame entry = make_entry(play);

	put(play, &entry, payload);
}

static void step_many(struct play *play)
{
	put_many(play, false);
}

static void step_stream(struct play *play)
{
	put_many(play, true);
}

static void step_greet(struct play *play)
{
	guest_greet(&play->guest);
}

static void step_register(struct play *play)
{
	if (play->guest.lodger.scene.mr)
		guest_deregister(&play->guest);
	else
		guest_register(&play->guest);
}

static void step_disconnect(struct play *play)
{
	rdma_disconnect(play->guest.lodger.scene.side.id);
}

static void (*const steps[])(struct play *play) = {
	step_good_entry, step_entry,      put_fetch,    put_word,  change_header, step_many,
	step_stream,     put_flood,       take_entries, scribble,  move_position, set_word,
	change_table,    say_something,   hang_up,      ring_bell, post_request,  post_receive,
	post_receives,   poll_side,       sleep_side,   rest,      step_register, step_greet,
	fail_side,       step_disconnect,
};

static void run(struct play *play)
{
	for (unsigned i = 0; i < STEPS && play->input.left; i++) {
		uint8_t byte = take_byte(&play->input);

		steps[byte % 32 % ARRAY_SIZE(steps)](play);
		/* After any step the lodger may ring, and the side may poll. */
		if (byte & 0x40)
			ring_bell(play);
		if (byte & 0x80)
			guest_poll(&play->guest, 4);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	setenv("SOFTRDMA", "on", 1);
	setenv("SOFTRDMA_SHM", "on", 0); /* or ring */
	setenv("SOFTRDMA_LOG", "error", 1);
	setenv("SOFTRDMA_RECV_TIMEOUT", "2000", 1);
	setenv("CMOCKA_TEST_ABORT", "1", 1); /* what the strangers assert */
	memset(payload, ANSWER, sizeof(payload));
	guest_prepare();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct play play = {.input = {.at = data, .left = size}};
	uint8_t how = take_byte(&play.input), hello = take_byte(&play.input);
	struct guest_options options = {
		.side_connects = how & 1,
		.shared_receives = how & 2,
		.one_cq = how & 4,
		.reads_only = how & 8,
		.early = how & 16,
		.hello = hello % (HELLO_LATE + 1),
	};

	if (options.hello == HELLO_WRONG)
		for (unsigned i = 0; i < sizeof(options.spoil); i++)
			options.spoil[i] = take_byte(&play.input);
	guest_open(&play.guest, &options);
	run(&play);
	guest_close(&play.guest);
	return 0;
}
