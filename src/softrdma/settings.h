/* SPDX-License-Identifier: MIT */
/*
 * What the environment asks of the software device. It is read once, at the first call of
 * settings(), so a later setenv() in the program changes nothing and races with nobody. A process
 * that runs with more rights than its user (set-user-ID, file capabilities) has the defaults. The
 * log reads its own variable by the same rules, since each library has one (common/log.c).
 */
#ifndef SOFTRDMA_SETTINGS_H
#define SOFTRDMA_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

enum settings_mode { MODE_AUTO, MODE_ON, MODE_OFF };

enum settings_shm { SETTINGS_SHM_ON, SETTINGS_SHM_OFF, SETTINGS_SHM_RING };

enum settings_raw { SETTINGS_RAW_BEST, SETTINGS_RAW_XDP, SETTINGS_RAW_RING, SETTINGS_RAW_SOCKET };

/* What a device says of itself; it can do the same in each. */
enum settings_look { SETTINGS_LOOK_IWARP, SETTINGS_LOOK_ROCE };

struct settings {
	enum settings_mode mode;        /* SOFTRDMA */
	enum settings_shm shm;          /* SOFTRDMA_SHM */
	enum settings_raw raw;          /* SOFTRDMA_RAW */
	enum settings_look look;        /* SOFTRDMA_LOOK */
	bool crc;                       /* SOFTRDMA_CRC=1 */
	bool peer_to_peer;              /* SOFTRDMA_P2P=1 */
	bool revision_1;                /* SOFTRDMA_MPA=1 */
	bool strict;                    /* SOFTRDMA_STRICT=1 */
	uint16_t first_port, last_port; /* SOFTRDMA_PORTS=from-to; 0: any */
	unsigned
		recv_timeout_ms; /* SOFTRDMA_RECV_TIMEOUT: how long a message waits for a receive */
};

/* The same for the life of the process. It may be called with any lock held. */
const struct settings *settings(void);

#endif
