/* SPDX-License-Identifier: MIT */
/*
 * A peer that speaks raw TCP: it says what it likes, byte by byte, and reads what comes back. Waits
 * are bounded.
 */
#ifndef STRANGERS_STRANGER_H
#define STRANGERS_STRANGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "../../src/common/bytes.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

struct stranger {
	int fd;
	bool crc;          /* agreed: FPDUs carry one, and what comes is checked */
	uint32_t send_msn; /* of the next Send */
	uint32_t read_msn; /* of the next Read Request */
};

/* ---- the stream ---- */

void stranger_connect(struct stranger *stranger, uint16_t port); /* network order */
/* The same in two steps, for an address of either family. */
void stranger_open(struct stranger *stranger, int family);
void stranger_reach(struct stranger *stranger, const struct sockaddr_storage *to);
/* A listener's socket for one who waits to be connected to; its port in network order. */
int stranger_listen(uint16_t *port);
/* The same at an address of either family, in which the port that was chosen is stored. */
int stranger_listen_at(struct sockaddr_storage *at);
void stranger_accept(struct stranger *stranger, int listener);
/* The descriptor of the other end, which this process has too. */
int stranger_other_end(const struct stranger *stranger);
void stranger_close(struct stranger *stranger);
/* The other side sees a reset. */
void stranger_reset(struct stranger *stranger);
void stranger_finish(struct stranger *stranger); /* no more to say; still listens */

void stranger_say(struct stranger *stranger, const void *bytes, size_t len);
/* As much as goes at once, within @ms of nothing going; bytes that went. */
size_t stranger_push(struct stranger *stranger, const void *bytes, size_t len, int ms);
void stranger_hear(struct stranger *stranger, void *bytes, size_t len);
/* The other side ends within @ms, with or without a reset, and says nothing before. */
void stranger_expect_end_within(struct stranger *stranger, int ms);
void stranger_expect_end(struct stranger *stranger);
/* Whatever it says, it ends. */
void stranger_expect_end_after_all(struct stranger *stranger);
/* Nothing is heard for a moment. */
void stranger_expect_silence(struct stranger *stranger);

/* ---- the handshake ---- */

size_t mpa_bytes(const struct mpa_frame *frame, uint8_t bytes[MPA_MAX_FRAME]);
void stranger_say_frame(struct stranger *stranger, const struct mpa_frame *frame);
/* A reply's or request's bytes, and what they mean; @frame points into @bytes. */
void stranger_hear_frame(struct stranger *stranger, enum mpa_kind kind,
			 uint8_t bytes[MPA_MAX_FRAME], struct mpa_frame *frame);

/* ---- FPDUs ---- */

#define ULPDU(at) (FPDU_LENGTH_LEN + (at))

/* An FPDU in the making: length, headers and payload, to be spoiled as a test likes. */
struct fpdu {
	size_t len; /* without padding and CRC */
	uint8_t bytes[FPDU_LENGTH_LEN + UINT16_MAX + 3 + FPDU_CRC_LEN];
};

/* Payloads are all @value. */
void fpdu_send(struct fpdu *fpdu, struct stranger *stranger, size_t payload, uint8_t value);
/* A segment of a Send, with the MSN at hand; the last one counts it up. */
void fpdu_segment(struct fpdu *fpdu, struct stranger *stranger, enum rdmap_opcode opcode, bool last,
		  uint32_t mo, size_t payload, uint8_t value);
void fpdu_tagged(struct fpdu *fpdu, enum rdmap_opcode opcode, bool last, uint32_t stag, uint64_t to,
		 size_t payload, uint8_t value);
void fpdu_read(struct fpdu *fpdu, struct stranger *stranger, uint32_t stag, uint64_t to,
	       uint32_t size);
/* The sink that fpdu_read names. */
#define SINK_STAG 0x11223344u
#define SINK_TO   0x1000u
void fpdu_terminate(struct fpdu *fpdu, uint8_t first, uint8_t second, uint8_t third);
/* Padding and CRC: the length of it all. */
size_t fpdu_end(struct fpdu *fpdu, const struct stranger *stranger);

/* Ends it and says it. */
void stranger_say_fpdu(struct stranger *stranger, struct fpdu *fpdu);
void stranger_hear_fpdu(struct stranger *stranger, struct fpdu *fpdu);
/* A Send that brings @len bytes, all @value. */
void stranger_expect_send(struct stranger *stranger, size_t len, uint8_t value);
/* The next FPDU is this Terminate, and then the stream ends. */
void stranger_expect_terminate(struct stranger *stranger, uint16_t code);

#endif
