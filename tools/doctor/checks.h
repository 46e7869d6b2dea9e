/* SPDX-License-Identifier: MIT */
/* The checks: each looks at what is known of the machine and says what that means. */
#ifndef DOCTOR_CHECKS_H
#define DOCTOR_CHECKS_H

#include "machine.h"
#include "report.h"

/* What the user asked about; @host NULL: nobody, @port 0: any. */
struct peer {
	const char *host;
	unsigned short port;
};

void check_choice(const struct machine *machine, struct report *report);
void check_devices(const struct machine *machine, struct report *report);
void check_soft_devices(const struct machine *machine, struct report *report);
void check_gids(const struct machine *machine, struct report *report);
void check_modules(const struct machine *machine, struct report *report);
void check_nodes(const struct machine *machine, struct report *report);
void check_memlock(const struct machine *machine, struct report *report);
void check_interfaces(const struct machine *machine, struct report *report);
void check_firewall(const struct machine *machine, struct report *report);
void check_container(const struct machine *machine, struct report *report);
void check_rights(const struct machine *machine, struct report *report);
/* One message to itself. */
void check_self(const struct machine *machine, struct report *report);
/* Name, route, link, device; and a connection if there is a port. */
void check_peer(const struct machine *machine, const struct peer *peer, struct report *report);

#endif
