/* SPDX-License-Identifier: MIT */
/*
 * A stranger that shares memory with a side: it has the Unix socket and the area, and writes into
 * either what it likes.
 */
#ifndef STRANGERS_LODGER_H
#define STRANGERS_LODGER_H

#include "house.h"
#include "shm/area.h"
#include "shm/hello.h"

struct lodger {
	struct scene scene;
	int fd; /* the Unix socket */
	struct area *area;
	int area_fd;
	bool has_table; /* the side has sent its table of regions */
	struct ring_writer out;
	struct ring_reader in;
	uint64_t probe; /* what its hello tells the side to look at */
};

/* A socket at the name that the two ends of @tcp_fd make, @mine first or last. */
int unix_listen(int tcp_fd);
int unix_connect(int tcp_fd);
/* Descriptors that came with @len bytes. */
ssize_t unix_hear(int fd, void *bytes, size_t len, int *fds, unsigned *num_fds);
/* False: the socket took less. */
bool unix_try(int fd, const void *bytes, size_t len, const int *fds, unsigned num_fds);
void unix_say(int fd, const void *bytes, size_t len, const int *fds, unsigned num_fds);

/* The side has been met, and has said its hello; the lodger has not. */
void lodger_meet(struct lodger *lodger, const struct scene_options *options);
/* The same, with a socket that @listen_for makes at the name that unix_listen has for @tcp_fd. */
void lodger_meet_at(struct lodger *lodger, const struct scene_options *options,
		    int (*listen_for)(int tcp_fd));
void lodger_say_hello(struct lodger *lodger);
/* Both. */
void lodger_open(struct lodger *lodger);
void lodger_close(struct lodger *lodger);

/* An entry whose payload is all @value. */
void lodger_put(struct lodger *lodger, struct rc_frame *entry, uint8_t value);
void lodger_put_bytes(struct lodger *lodger, struct rc_frame *entry, const void *payload);
/* Without ringing the bell. */
void lodger_put_quietly(struct lodger *lodger, struct rc_frame *entry, const void *payload);
/* The side is woken, whether it sleeps or not. */
void lodger_ring(struct lodger *lodger);
/* The next entry of the side's; its payload is where it points. */
struct rc_frame lodger_take(struct lodger *lodger, const uint8_t **payload);

/* A Send of the lodger's arrives, and one of the side's. */
void lodger_expect_alive(struct lodger *lodger);
/* The side ends the connection and says why. */
void lodger_expect_terminate(struct lodger *lodger, uint16_t code);
/* Put one entry; it is refused, and the memory is as before. */
void lodger_refuse(struct rc_frame *entry, uint16_t code);

#endif
