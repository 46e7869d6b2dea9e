/* SPDX-License-Identifier: MIT */
#include "visit.h"

#include <unistd.h>

static const struct offer an_offer = {.addr = SINK_TO, .key = SINK_STAG, .len = 64};
static const struct pair_options options;

void visit_open(struct visit *visit)
{
	uint16_t port;

	memset(visit, 0, sizeof(*visit));
	visit->listener = stranger_listen(&port);
	side_resolve(&visit->side, port);
	side_equip(&visit->side, &options);
	side_recv(&visit->side, 1, 0, 64);
	side_connect(&visit->side, &options);
	stranger_accept(&visit->stranger, visit->listener);
	stranger_hear_frame(&visit->stranger, MPA_REQUEST, visit->request_bytes, &visit->request);
	assert_true(visit->request.soft);
	assert_true(visit->request.shm);
}

void visit_say_reply(struct visit *visit, bool shm)
{
	const struct mpa_frame reply = {
		.kind = MPA_REPLY,
		.revision = 2,
		.enhanced = true,
		.soft = true,
		.shm = shm,
		.ird = visit->request.ord,
		.ord = visit->request.ird,
		.private_data = (const uint8_t *)&an_offer,
		.private_len = sizeof(an_offer),
	};

	stranger_say_frame(&visit->stranger, &reply);
}

void visit_reply(struct visit *visit, bool shm)
{
	visit_say_reply(visit, shm);
	side_await_established(&visit->side);
}

void visit_close(struct visit *visit)
{
	house_check();
	side_close(&visit->side);
	stranger_close(&visit->stranger);
	close(visit->listener);
}
