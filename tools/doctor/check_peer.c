/* SPDX-License-Identifier: MIT */
/* Judges the way to a peer: its name, the route, the link, the device, and a connection. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <ibmsg.h>

#include "checks.h"
#include "try.h"

#define DISCARD_PORT "9" /* to find a route takes some port; nothing is sent */

struct route {
	char peer[ADDRESS_TEXT], source[ADDRESS_TEXT];
	int error; /* errno: there is none */
	int mtu;   /* of the path, as far as it is known */
	const struct interface *interface;
	const struct address *address; /* the source, at the interface */
};

/* ---- where the way begins ---- */

static void find_interface(const struct machine *machine, struct route *route)
{
	for (unsigned i = 0; i < machine->interface_count; i++) {
		const struct interface *interface = &machine->interfaces[i];

		for (unsigned j = 0; j < interface->address_count; j++) {
			if (strcmp(interface->addresses[j].text, route->source) != 0)
				continue;
			route->interface = interface;
			route->address = &interface->addresses[j];
			return;
		}
	}
}

static int find_path_mtu(int fd, int family)
{
	int mtu = 0;
	socklen_t length = sizeof(mtu);

	if (family == AF_INET6)
		getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &length);
	else
		getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &length);
	return mtu;
}

/* To connect a datagram socket sends nothing, but asks for the route. */
static void find_route(const struct machine *machine, const struct addrinfo *peer,
		       struct route *route)
{
	struct sockaddr_storage source = {0};
	socklen_t length = sizeof(source);
	int fd = socket(peer->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*route = (struct route){0};
	address_to_text(peer->ai_addr, route->peer);
	if (fd < 0 || connect(fd, peer->ai_addr, peer->ai_addrlen) ||
	    getsockname(fd, (struct sockaddr *)&source, &length)) {
		route->error = errno;
	} else {
		address_to_text((struct sockaddr *)&source, route->source);
		route->mtu = find_path_mtu(fd, peer->ai_family);
		find_interface(machine, route);
	}
	if (fd >= 0)
		close(fd);
}

/* ---- what is wrong with it ---- */

static void judge_device(const struct machine *machine, const struct route *route,
			 struct report *report)
{
	const struct device *usable = machine_usable_device(machine);

	if (!route->address || *route->address->device)
		return;
	report_problem(report, "%s is reached from %s (%s), which no RDMA device serves",
		       route->peer, route->source, route->interface->name);
	if (route->interface->loopback && usable)
		report_cure(report,
			    "use this host's address on %s instead (see gids above), or: "
			    "export SOFTRDMA=on",
			    usable->name);
	else
		report_cure(report, "export SOFTRDMA=on (at both ends)");
}

static void judge_route(const struct machine *machine, const struct route *route,
			struct report *report)
{
	const struct interface *interface = route->interface;

	if (interface && (!interface->up || !interface->running)) {
		report_problem(report, "%s is reached by %s, which %s", route->peer,
			       interface->name, interface->up ? "has no link" : "is down");
		report_cure(report, "%sip link set %s up; ip link show %s", machine_sudo(machine),
			    interface->name, interface->name);
		return;
	}
	report_ok(report, "%s: from %s by %s, MTU %d", route->peer, route->source,
		  interface ? interface->name : "an unknown interface", route->mtu);
	judge_device(machine, route, report);
}

/* A name may have addresses that cannot be used, as long as one can. */
static bool judge_addresses(const struct machine *machine, const struct addrinfo *found,
			    struct report *report)
{
	char last[ADDRESS_TEXT] = "";
	unsigned usable = 0;
	int error = 0;

	for (; found; found = found->ai_next) {
		struct route route;

		find_route(machine, found, &route);
		if (route.error) {
			report_note(report, "%s: %s", route.peer, strerror(route.error));
			error = route.error;
			memcpy(last, route.peer, sizeof(last));
			continue;
		}
		judge_route(machine, &route, report);
		usable++;
	}
	if (usable)
		return true;
	report_problem(report, "no route to the peer: %s", strerror(error));
	report_cure(report, "ip route get %s; %sip route add default via GATEWAY", last,
		    machine_sudo(machine));
	return false;
}

static struct addrinfo *resolve(const char *host, struct report *report)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
	struct addrinfo *found = NULL;
	int error = getaddrinfo(host, DISCARD_PORT, &hints, &found);

	if (!error)
		return found;
	report_problem(report, "%s: %s", host,
		       error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
	report_cure(report, "getent ahosts %s; cat /etc/resolv.conf", host);
	return NULL;
}

/* ---- a connection ---- */

/* Whether TCP finds somebody at the port; then it is softrdma or iWARP that listens there. */
static bool listens_by_tcp(const struct addrinfo *peer, unsigned short port)
{
	int fd = socket(peer->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
	struct sockaddr_storage address = {0};
	socklen_t length = sizeof(int);
	int error = 0;

	if (fd < 0)
		return false;
	memcpy(&address, peer->ai_addr, peer->ai_addrlen);
	((struct sockaddr_in *)&address)->sin_port = htons(port); /* in both families */
	if (connect(fd, (struct sockaddr *)&address, peer->ai_addrlen) &&
	    (errno != EINPROGRESS || poll(&poll_fd, 1, 2000) != 1 ||
	     getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length)))
		error = -1;
	close(fd);
	return !error;
}

static void cure_connection(const struct machine *machine, const struct peer *peer,
			    const struct addrinfo *found, int error, struct report *report)
{
	const char *hint = ibmsg_error_hint(error);
	bool tcp = listens_by_tcp(found, peer->port);
	const struct device *usable = machine_usable_device(machine);

	if (tcp && !machine_uses_software(machine) && usable && !usable->iwarp)
		report_cure(report, "export SOFTRDMA=on (who listens there does so by TCP, as "
				    "softrdma, and not by RDMA)");
	else if (tcp)
		report_cure(report,
			    "ss -ltnp 'sport = :%u' at the peer: who listens there takes "
			    "TCP connections, but not ibmsg's",
			    peer->port);
	else
		report_cure(report, "%s", *hint ? hint : "IBMSG_LOG=debug ibmsg-doctor PEER PORT");
}

static void judge_connection(const struct machine *machine, const struct peer *peer,
			     const struct addrinfo *found, struct report *report)
{
	char device[DEVICE_NAME];
	int error = try_connect(peer->host, peer->port, device);

	if (!error) {
		report_ok(report, "%s port %u: a connection by %s", peer->host, peer->port, device);
		return;
	}
	if (error == IBMSG_REJECTED) {
		report_note(report,
			    "%s port %u: the way is good, but the program there rejected the "
			    "connection",
			    peer->host, peer->port);
		return;
	}
	report_problem(report, "%s port %u: %s", peer->host, peer->port, ibmsg_strerror(error));
	cure_connection(machine, peer, found, error, report);
}

void check_peer(const struct machine *machine, const struct peer *peer, struct report *report)
{
	struct addrinfo *found = resolve(peer->host, report);

	if (!found)
		return;
	if (judge_addresses(machine, found, report) && peer->port)
		judge_connection(machine, peer, found, report);
	freeaddrinfo(found);
}
