/* SPDX-License-Identifier: MIT */
/* What a queue pair expects of its peer, and which hello fits. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/log.h"
#include "../fork_order.h"
#include "../strict.h"
#include "internal.h"

#define BUCKETS 256u

/* By own number. A queue pair without one expects nobody. */
static struct list buckets[BUCKETS];

static struct list *bucket_of(uint32_t own)
{
	struct list *bucket = &buckets[own % BUCKETS];

	if (!bucket->next)
		list_init(bucket);
	return bucket;
}

struct meeting *meeting_find(uint32_t own)
{
	struct list *pos;

	list_for_each (pos, bucket_of(own)) {
		struct meeting *meeting = container_of(pos, struct meeting, link);

		if (meeting->terms.own == own)
			return meeting;
	}
	return NULL;
}

/* ---- addresses ---- */

static const struct in6_addr *as_v6(const uint8_t gid[16])
{
	return (const struct in6_addr *)(const void *)gid;
}

socklen_t gid_to_addr(const uint8_t gid[16], uint16_t port, unsigned ifindex,
		      struct sockaddr_storage *out)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;

	memset(out, 0, sizeof(*out));
	if (IN6_IS_ADDR_V4MAPPED(as_v6(gid))) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, gid + 12, sizeof(v4->sin_addr));
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	memcpy(&v6->sin6_addr, gid, sizeof(v6->sin6_addr));
	if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
		v6->sin6_scope_id = ifindex;
	return sizeof(*v6);
}

bool gid_is_addr(const uint8_t gid[16], const struct sockaddr *addr)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (addr->sa_family == AF_INET6)
		return !memcmp(gid, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
	return !memcmp(gid, mapped, sizeof(mapped)) &&
	       !memcmp(gid + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
}

/* ---- hellos ---- */

void meeting_say(const struct meeting *meeting, enum qp_hello_answer answer,
		 uint8_t out[QP_HELLO_LEN])
{
	const struct meet_terms *terms = &meeting->terms;
	struct qp_hello hello = {
		.answer = (uint8_t)answer,
		.path_mtu = terms->path_mtu,
		.from = terms->own,
		.to = terms->peer,
		.psn = meeting->psn,
		.expected = terms->expected_psn,
	};

	memcpy(hello.gid, terms->own_gid, sizeof(hello.gid));
	qp_hello_build(&hello, out);
}

/* Whose hello counts when both dial? Each end must come to the same result. */
static bool is_own_first(const struct meeting *meeting)
{
	const struct meet_terms *terms = &meeting->terms;

	if (terms->own != terms->peer)
		return terms->own < terms->peer;
	return memcmp(terms->own_gid, terms->peer_gid, sizeof(terms->own_gid)) < 0;
}

/* What does not fit, or NULL. */
static const char *misfit(const struct meeting *meeting, const struct qp_hello *hello,
			  const struct sockaddr *from)
{
	const struct meet_terms *terms = &meeting->terms;

	if (meeting->state == MEETING_MET)
		return "it has met already";
	if (hello->from != terms->peer)
		return "it expects another queue pair";
	if (memcmp(hello->gid, terms->peer_gid, sizeof(hello->gid)) != 0 ||
	    !gid_is_addr(meeting->peer_ip, from))
		return "it expects another address";
	if (hello->psn != terms->expected_psn)
		return "it expects another starting PSN";
	if (meeting->knows_psn && hello->expected != meeting->psn)
		return "the peer expects another starting PSN";
	return NULL;
}

enum qp_hello_answer meeting_judge(const struct meeting *meeting, const struct qp_hello *hello,
				   const struct sockaddr *from)
{
	const char *why = misfit(meeting, hello, from);

	if (why) {
		log_info("QP 0x%x: refuses QP 0x%x: %s", meeting->terms.own, hello->from, why);
		return MEET_UNFITTING;
	}
	if (is_strict() && hello->path_mtu != meeting->terms.path_mtu) {
		log_error("strict: QP 0x%x: the peer's path MTU is another", meeting->terms.own);
		return MEET_UNFITTING;
	}
	/* A hello that is not on its way yet may never get there. */
	if (meeting->state == MEETING_ASKS && is_own_first(meeting))
		return MEET_CROSSING;
	return MEET_WELCOME;
}

void meeting_done(struct meeting *meeting, const struct qp_hello *hello)
{
	dial_end(meeting);
	meeting->state = MEETING_MET;
	meeting->peer_told = hello != NULL;
	meeting->peer_expects = hello ? hello->expected : 0;
}

/* ---- what verbs asks ---- */

/*
 * A GID says the address, but the one that is made of the MAC need not be an address of the
 * interface. Two ends that have it in common are on this host.
 */
static void locate(struct meeting *meeting)
{
	static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
	const struct meet_terms *terms = &meeting->terms;
	bool same = !memcmp(terms->own_gid, terms->peer_gid, sizeof(terms->own_gid));
	bool here = same && IN6_IS_ADDR_LINKLOCAL(as_v6(terms->own_gid));

	memcpy(meeting->own_ip, here ? loopback : terms->own_gid, sizeof(meeting->own_ip));
	memcpy(meeting->peer_ip, here ? loopback : terms->peer_gid, sizeof(meeting->peer_ip));
}

int meet_expect(const struct meet_terms *terms, struct meeting **out)
{
	struct meeting *meeting = calloc(1, sizeof(*meeting));

	if (!meeting)
		return -ENOMEM;
	meeting->terms = *terms;
	locate(meeting);
	dial_init(meeting);
	list_add_tail(bucket_of(terms->own), &meeting->link);
	*out = meeting;
	return 0;
}

int meet_dial(struct meeting *meeting, uint32_t psn)
{
	meeting->psn = psn;
	meeting->knows_psn = true;
	if (meeting->state == MEETING_EXPECTS)
		dial_begin(meeting);
	if (meeting->state != MEETING_MET || !meeting->peer_told || meeting->peer_expects == psn)
		return 0;
	log_warn("QP 0x%x: starts with PSN 0x%x, and its peer expects 0x%x", meeting->terms.own,
		 psn, meeting->peer_expects);
	return -EPROTO;
}

void meet_end(struct meeting *meeting)
{
	dial_end(meeting);
	list_del(&meeting->link);
	free(meeting);
}

/* ---- fork: a child has none of its parent's queue pairs. The CM set's lock is held. ---- */

static void nothing(void)
{
}

static void drop(void)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		list_init(&buckets[i]);
	visitors_forget();
	ports_forget();
}

FORK_PART(FORK_MEETINGS, nothing, nothing, drop);
