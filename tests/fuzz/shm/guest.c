/* SPDX-License-Identifier: MIT */
#include "guest.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/sealed.h"

#define TABLE_BYTES (65536u * sizeof(struct regions_entry))
#define END_MS      4000 /* in which a connection ends and all is flushed, on a machine that is busy */
#define CHECK_EVERY 64  /* inputs: a newcomer is served, and no descriptors are left */
#define MOST_LEFT   100 /* descriptors: what has ended is freed a little later */

static struct {
	void *table;
	int table_fd, null_fd;
	uint8_t *memory; /* the lodger's: a guard, GUEST_MEMORY, a guard */
	uint8_t *fresh;  /* bytes that are all FRESH, to compare with, */
	uint8_t *source; /* and all SOURCE */
	unsigned inputs;
	unsigned descriptors;
} common;

uint8_t *guest_memory(void)
{
	return common.memory + GUARD;
}

void guest_prepare(void)
{
	common.table_fd = sealed_new(TABLE_BYTES, SEALED_READ_BY_OTHERS, &common.table);
	common.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	common.memory = malloc(GUARD + GUEST_MEMORY + GUARD);
	common.fresh = malloc(SLOT_BYTES);
	common.source = malloc(SLOT_BYTES);
	CHECK(common.table_fd >= 0 && common.null_fd >= 0);
	CHECK(common.memory && common.fresh && common.source);
	memset(common.memory, FRESH, GUARD + GUEST_MEMORY + GUARD);
	memset(common.fresh, FRESH, SLOT_BYTES);
	memset(common.source, SOURCE, SLOT_BYTES);
	house_open_quietly();
	house_check_newcomer();
	common.descriptors = count_descriptors();
}

static bool is_fresh(const uint8_t *at, size_t len)
{
	return !memcmp(at, common.fresh, len);
}

/* ---- meeting ---- */

static void say_wrong_hello(struct guest *guest, struct hello *hello, int area_fd)
{
	const uint8_t *spoil = guest->options.spoil;
	const int fds[] = {area_fd >= 0 ? area_fd : common.table_fd, common.table_fd,
			   common.null_fd, common.null_fd};

	((uint8_t *)hello)[spoil[0] % sizeof(*hello)] ^= spoil[1];
	unix_try(guest->lodger.fd, hello, sizeof(*hello) - (spoil[2] & 0x80 ? 1 : 0),
		 spoil[2] & 0x40 ? fds + 2 : fds, spoil[2] % (spoil[2] & 0x40 ? 3 : 5));
}

/* @area_fd: -1, or the memory for the side that connects. */
static void say_hello(struct guest *guest, int area_fd)
{
	bool has_table = guest->options.hello == HELLO_TABLE;
	struct lodger *lodger = &guest->lodger;
	struct hello hello;
	int fds[HELLO_MAX_FDS];
	unsigned count = 0;

	guest->greeted = true;
	hello_make(&hello, has_table, &lodger->probe);
	if (guest->options.hello == HELLO_BLIND)
		hello.probe_value++;
	if (area_fd >= 0)
		fds[count++] = area_fd;
	if (has_table)
		fds[count++] = common.table_fd;
	if (guest->options.hello == HELLO_WRONG)
		say_wrong_hello(guest, &hello, area_fd);
	else
		unix_try(lodger->fd, &hello, sizeof(hello), fds, count);
}

void guest_greet(struct guest *guest)
{
	if (guest->greeted)
		return;
	guest->options.hello = HELLO_TABLE;
	say_hello(guest, -1);
}

static unsigned region_access(const struct guest *guest)
{
	return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
	       (guest->options.reads_only ? 0 : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
}

static struct scene_options scene_options_of(const struct guest *guest)
{
	return (struct scene_options){
		.no_recv = true,
		.access = region_access(guest),
		.side = {.bytes = SLOTS * SLOT_BYTES,
			 .sge = MAX_PIECES,
			 .inline_bytes = 64,
			 .one_cq = guest->options.one_cq,
			 .shared_receives = guest->options.shared_receives,
			 .access = IBV_ACCESS_LOCAL_WRITE},
	};
}

/* The lodger connects to the side. */
static void come_to_side(struct guest *guest, const struct scene_options *scene)
{
	lodger_meet(&guest->lodger, scene);
	guest->own = &guest->lodger.area->side[AREA_INITIATOR];
	guest->peer = &guest->lodger.area->side[AREA_RESPONDER];
	if (guest->options.hello != HELLO_LATE)
		say_hello(guest, -1);
}

static void make_area(struct lodger *lodger)
{
	void *map;

	lodger->area_fd = sealed_new(sizeof(struct area), SEALED_SHARED, &map);
	CHECK(lodger->area_fd >= 0);
	lodger->area = map;
	for (unsigned end = 0; end < 2; end++)
		ring_clear(lodger->area->ring[end]);
	ring_writer_init(&lodger->out, lodger->area->ring[AREA_RESPONDER],
			 &lodger->area->side[AREA_INITIATOR].consumed);
	ring_reader_init(&lodger->in, lodger->area->ring[AREA_INITIATOR],
			 &lodger->area->side[AREA_RESPONDER].consumed);
	lodger->probe = 0x1122334455667788;
}

static void make_region(struct guest *guest)
{
	struct scene *scene = &guest->lodger.scene;

	scene->arena = malloc(GUARD + REGION + GUARD);
	CHECK(scene->arena);
	memset(scene->arena, FRESH, GUARD + REGION + GUARD);
	scene->region = scene->arena + GUARD;
	scene->mr = ibv_reg_mr(scene->side.pd, scene->region, REGION, (int)region_access(guest));
	CHECK(scene->mr);
}

static void reply(struct stranger *stranger, const struct mpa_frame *request)
{
	const struct offer offer = {.addr = SINK_TO, .key = SINK_STAG, .len = 1u << 20};
	const struct mpa_frame frame = {
		.kind = MPA_REPLY,
		.revision = 2,
		.enhanced = true,
		.soft = true,
		.shm = true,
		.ird = request->ord,
		.ord = request->ird,
		.private_data = (const uint8_t *)&offer,
		.private_len = sizeof(offer),
	};

	stranger_say_frame(stranger, &frame);
}

/* What the side says, and its table, are of no use to the lodger. */
static void hear_hello(struct lodger *lodger)
{
	struct hello hello;
	int fds[4];
	unsigned count;

	unix_hear(lodger->fd, &hello, sizeof(hello), fds, &count);
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
}

/* The side connects to the lodger. */
static void receive_side(struct guest *guest, const struct scene_options *options)
{
	static uint8_t bytes[MPA_MAX_FRAME];
	struct lodger *lodger = &guest->lodger;
	struct side *side = &lodger->scene.side;
	struct rc_frame nothing = {.kind = RC_WRITE, .flags = RC_LAST};
	struct mpa_frame request;
	uint16_t port;

	guest->listener = stranger_listen(&port);
	side_resolve(side, port);
	side_equip(side, &options->side);
	memset(side->buf, FRESH, side->size);
	make_region(guest);
	side_connect(side, &options->side);
	stranger_accept(&lodger->scene.stranger, guest->listener);
	stranger_hear_frame(&lodger->scene.stranger, MPA_REQUEST, bytes, &request);
	make_area(lodger);
	guest->own = &lodger->area->side[AREA_RESPONDER];
	guest->peer = &lodger->area->side[AREA_INITIATOR];
	if (guest->options.early)
		lodger_put_quietly(lodger, &nothing, NULL);
	lodger->fd = -1;
	guest->greeted = true;
	if (guest->options.hello != HELLO_LATE) {
		lodger->fd = unix_connect(lodger->scene.stranger.fd);
		say_hello(guest, lodger->area_fd);
	}
	reply(&lodger->scene.stranger, &request);
	side_await_established(side);
	if (lodger->fd >= 0)
		hear_hello(lodger);
}

/* One region of the lodger's, as it is offered; what is wrong about it comes later. */
static void fill_table(struct guest *guest)
{
	struct regions_entry *entry = &guest->table[SINK_STAG >> 8 & 0xffff];

	memset((void *)entry, 0, 2 * sizeof(*entry));
	atomic_store(&entry->tags, 5u << 2 | 3);
	atomic_store(&entry->iova, SINK_TO);
	atomic_store(&entry->addr, (uintptr_t)guest_memory());
	atomic_store(&entry->length, GUEST_MEMORY);
	atomic_store(&entry->key, SINK_STAG);
	atomic_store(&guest->own->domain, 5);
}

void guest_open(struct guest *guest, const struct guest_options *options)
{
	struct scene_options scene;

	memset(guest, 0, sizeof(*guest));
	guest->options = *options;
	guest->listener = -1;
	guest->table = common.table;
	memset(guest_memory(), OFFERED, GUEST_MEMORY);
	scene = scene_options_of(guest);
	if (options->side_connects)
		receive_side(guest, &scene);
	else
		come_to_side(guest, &scene);
	fill_table(guest);
	/* So that a sleep in an event loop is taken for one. */
	CHECK(!fcntl(guest->lodger.scene.side.comp->fd, F_SETFL, O_NONBLOCK));
}

/* ---- the side's memory ---- */

struct slot *guest_slot(struct guest *guest, uint64_t *id, uint8_t **at)
{
	if (guest->used == SLOTS)
		return NULL;
	*id = guest->used;
	*at = guest->lodger.scene.side.buf + (size_t)guest->used * SLOT_BYTES;
	return &guest->slots[guest->used++];
}

void guest_fill(struct slot *slot, uint8_t *at, uint32_t len)
{
	memset(at, SOURCE, len);
	slot->filled = len;
}

bool guest_is_source(const uint8_t *at, size_t len)
{
	return len <= SLOT_BYTES && !memcmp(at, common.source, len);
}

static void check_slots(const struct guest *guest)
{
	const uint8_t *at = guest->lodger.scene.side.buf;

	for (unsigned i = 0; i < SLOTS; i++, at += SLOT_BYTES) {
		const struct slot *slot = &guest->slots[i];
		uint32_t used = slot->filled + slot->writable;

		CHECK(guest_is_source(at, slot->filled));
		CHECK(is_fresh(at + used, SLOT_BYTES - used));
	}
}

static void check_kept(struct guest *guest)
{
	if (guest->kept)
		CHECK(!memcmp(guest->kept, guest->lodger.scene.region, REGION));
	free(guest->kept);
	guest->kept = NULL;
}

uint32_t guest_key(const struct guest *guest)
{
	return guest->lodger.scene.mr ? guest->lodger.scene.mr->rkey : guest->old_key;
}

void guest_deregister(struct guest *guest)
{
	struct scene *scene = &guest->lodger.scene;

	if (!scene->mr)
		return;
	guest->old_key = scene->mr->rkey;
	CHECK(!ibv_dereg_mr(scene->mr));
	scene->mr = NULL;
	guest->kept = exact_copy(scene->region, REGION);
}

void guest_register(struct guest *guest)
{
	struct scene *scene = &guest->lodger.scene;

	if (scene->mr)
		return;
	check_kept(guest);
	scene->mr = ibv_reg_mr(scene->side.pd, scene->region, REGION, (int)region_access(guest));
	CHECK(scene->mr);
}

/* ---- completions ---- */

static void check_receive(struct slot *slot, const struct ibv_wc *wc)
{
	CHECK(wc->opcode & IBV_WC_RECV);
	/* The length of a Write with immediate data is that of the Write, which lies elsewhere. */
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		slot->writable = 0;
		return;
	}
	CHECK(wc->byte_len <= slot->writable);
	slot->writable = wc->byte_len;
}

/* A few bytes may be anything: the lodger changes what it has put. */
static void check_read(const struct guest *guest, const struct slot *slot)
{
	const uint8_t *at =
		guest->lodger.scene.side.buf + (size_t)(slot - guest->slots) * SLOT_BYTES;

	if (slot->writable >= 64)
		CHECK(!is_fresh(at, slot->writable));
}

static void note_completion(struct guest *guest, const struct ibv_wc *wc)
{
	struct slot *slot = &guest->slots[wc->wr_id];

	CHECK(wc->wr_id < guest->used);
	CHECK(slot->use != SLOT_FREE && !slot->done);
	slot->done = true;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (slot->use == SLOT_RECV)
		check_receive(slot, wc);
	else if (slot->reads)
		check_read(guest, slot);
}

void guest_poll(struct guest *guest, unsigned times)
{
	struct side *side = &guest->lodger.scene.side;
	struct ibv_wc wc;

	for (unsigned i = 0; i < times; i++) {
		if (ibv_poll_cq(side->send_cq, 1, &wc) > 0)
			note_completion(guest, &wc);
		if (ibv_poll_cq(side->recv_cq, 1, &wc) > 0)
			note_completion(guest, &wc);
	}
}

static bool is_all_done(const struct guest *guest)
{
	for (unsigned i = 0; i < guest->used; i++)
		if (guest->slots[i].must_complete && !guest->slots[i].done)
			return false;
	return true;
}

/* ---- parting ---- */

static void take_events(struct guest *guest)
{
	struct rdma_event_channel *channel = guest->lodger.scene.side.channel;
	struct rdma_cm_event *event;

	while (fd_is_readable(channel->fd, 0)) {
		CHECK(!rdma_get_cm_event(channel, &event));
		CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
		guest->ends++;
		rdma_ack_cm_event(event);
	}
}

/* The side ends it too, if it has not ended: all that was posted comes back, and the end is told.
 */
static void await_end(struct guest *guest)
{
	uint64_t until = now_ms() + END_MS;

	rdma_disconnect(guest->lodger.scene.side.id);
	for (;;) {
		guest_poll(guest, 4);
		take_events(guest);
		if (guest->ends && is_all_done(guest))
			break;
		CHECK(now_ms() < until);
		sched_yield();
	}
	guest_poll(guest, 2 * SLOTS); /* nothing comes twice */
	take_events(guest);
	CHECK(guest->ends == 1);
}

static void check_memory(struct guest *guest)
{
	check_slots(guest);
	check_kept(guest);
	CHECK(is_fresh(common.memory, GUARD));
	CHECK(is_fresh(common.memory + GUARD + GUEST_MEMORY, GUARD));
}

void guest_close(struct guest *guest)
{
	await_end(guest);
	side_settle(&guest->lodger.scene.side);
	check_memory(guest);
	lodger_close(&guest->lodger);
	if (guest->listener >= 0)
		close(guest->listener);
	if (++common.inputs % CHECK_EVERY)
		return;
	house_check_newcomer();
	CHECK(count_descriptors() < common.descriptors + MOST_LEFT);
}
