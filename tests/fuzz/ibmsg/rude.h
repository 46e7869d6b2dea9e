/* SPDX-License-Identifier: MIT */
/*
 * A peer of libibmsg that speaks iWARP over raw TCP and says what a fuzzer tells it to. It checks
 * what it hears: libibmsg must keep to the protocol whatever its peer does. It never blocks.
 */
#ifndef FUZZ_RUDE_H
#define FUZZ_RUDE_H

#include <proto.h>
#include <stranger.h>

/* ---- what bytes a message has ---- */

void pattern_put(uint8_t *to, uint32_t seed, uint64_t from, size_t len);
bool pattern_is(const uint8_t *bytes, uint32_t seed, uint64_t from, size_t len);

/* ---- messages from the rude peer ---- */

#define MAX_TOLD 1024

/* A message that was sent to the loop, in the order of delivery. Its seed is its index. */
struct told {
	uint64_t size;
	bool offered;       /* as a long message, which the loop has to read */
	bool packed;        /* in one SEND with the message after it */
	uint64_t address;   /* of an offer; the key is OFFER_KEY plus the index */
	uint32_t number;    /* of an offer */
	uint64_t delivered; /* bytes that answered reads have brought */
};

#define OFFER_KEY    0x10000u
#define WORD_KEY     0x777u
#define WORD_ADDRESS 0x1000u

/* ---- messages from the loop ---- */

#define MAX_POSTS 1024

/* A message that the application posted, in the order of posting. */
struct post {
	void *msg;
	size_t size;
	uint32_t seed;
	bool heard;      /* by the peer */
	bool is_offer;   /* it came as an offer */
	uint32_t number; /* then: its name, */
	uint64_t address;
	uint32_t key;
	int answer; /* and what the peer said to it; -1: nothing yet */
	bool done;  /* message_sent was called, */
	int error;  /* with this */
};

/* ---- the peer ---- */

/* What it does by itself. */
enum rude_habit {
	RUDE_ACKNOWLEDGES = 0x01, /* what it hears */
	RUDE_ANSWERS_READS = 0x02,
	RUDE_RETURNS_CREDITS = 0x04, /* for each message */
	RUDE_ANSWERS_OFFERS = 0x08,  /* without reading them */
	RUDE_COUNTS = 0x10,          /* says nothing for which it has no credit */
	RUDE_CLOSES = 0x20,          /* answers an END */
};

#define MAX_RUDE_READS 64

struct rude {
	struct stranger wire;
	bool is_open;  /* the stream takes words */
	bool original; /* messages have no headers */
	bool acks;     /* both ends acknowledge what was placed */
	uint8_t habits;
	struct proto_private ours, theirs;

	/* speaking */
	uint32_t said;   /* FPDUs */
	uint32_t awaits; /* of them: the loop's device has not placed all of these */
	uint32_t placed; /* as the device has told */
	struct told told[MAX_TOLD];
	unsigned num_told, num_offers;         /* all, and the offers among them */
	int64_t data_credits, control_credits; /* that the loop gave and that are left */
	unsigned pushed;                       /* bytes of answered reads, so far */
	bool hello_said, end_said, seen_said;
	bool has_guessed;  /* it has answered what it may not have heard */
	bool has_violated; /* before it has said SEEN: the connection must not end well */

	/* hearing */
	uint8_t in[2 * 65536 + 64];
	size_t in_len;
	uint32_t heard; /* FPDUs */
	struct rdmap_read_request reads[MAX_RUDE_READS];
	unsigned num_reads;
	struct post posts[MAX_POSTS];
	unsigned num_posts, next_post; /* all, and the next that is to be heard */
	int64_t data_given, control_given;
	int64_t data_heard, control_heard;
	unsigned owed_data, owed_control; /* heard, and the credits not yet returned */
	unsigned dones_heard;
	bool end_heard, seen_heard, hello_heard;
	uint64_t word_address; /* of the loop's sign of life */
	uint32_t word_key;
	unsigned read_post; /* the offer that is being read */
	bool is_reading;

	void (*pump)(void); /* lets the loop run */
};

/* Forget all; the stream is not open yet. */
void rude_init(struct rude *rude, void (*pump)(void));

/*
 * The handshake. Each returns whether the connection is established as far as the peer can see.
 * @early: the peer says hello before it has been accepted. @port in network order.
 */
bool rude_connect(struct rude *rude, uint16_t port, uint16_t reads, bool early);
/* @how: 0 accept, 1 reject, 2 reject without private data, 3 accept with a version unknown. */
bool rude_accept(struct rude *rude, int listener, uint16_t reads, unsigned how);

bool rude_is_called(int listener); /* somebody connects */

/* Take in what has come. */
void rude_hear(struct rude *rude);
/* Something that was said has not been placed yet. */
bool rude_waits(const struct rude *rude);

/* A SEND of these bytes, whatever they mean; but not a message that is to be delivered. */
void rude_send(struct rude *rude, const void *bytes, size_t len);
/* False: it has no credit for it, and respects that. */
bool rude_say(struct rude *rude, const struct proto_message *message);
void rude_say_data(struct rude *rude, size_t size, uint8_t flags);
/* @count messages of @size bytes in one SEND. @lie: 0 none, else it is spoiled in some way. */
void rude_say_many(struct rude *rude, unsigned count, size_t size, unsigned lie);
void rude_say_hello(struct rude *rude, uint16_t data, uint16_t control);
void rude_say_offer(struct rude *rude, uint64_t size, uint64_t address, uint32_t number);
void rude_say_done(struct rude *rude, unsigned which, bool exists, uint32_t status);
void rude_say_credit(struct rude *rude, uint16_t data, uint16_t control, uint8_t flags);
void rude_say_end(struct rude *rude, uint8_t flags);
/* To the device: all that was heard has been placed, or more. */
void rude_acknowledge(struct rude *rude, uint32_t more);
/* The oldest read: 0 well, 1 a byte more, 2 a byte less, 3 elsewhere, 4 half of it. */
void rude_answer_read(struct rude *rude, unsigned how);
/* Read the loop's sign of life, or an offer of it. @spoil: 0 well, 1 key, 2 bounds. */
void rude_read(struct rude *rude, unsigned which, unsigned spoil);
void rude_terminate(struct rude *rude, uint8_t code);
/* 0 in order, 1 a reset, 2 only this direction. */
void rude_leave(struct rude *rude, unsigned how);

/* The application has posted something. NULL: no room for it. */
struct post *rude_note_post(struct rude *rude, void *msg, size_t size, uint32_t seed);

#endif
