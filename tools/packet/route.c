/* SPDX-License-Identifier: MIT */
/* Routes, asked of the kernel by netlink. */
#include "route.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct question {
	struct nlmsghdr header;
	struct rtmsg route;
	char attributes[64];
};

static void add_attribute(struct question *question, unsigned short type, const void *data,
			  unsigned short len)
{
	struct rtattr *at =
		(struct rtattr *)((char *)question + NLMSG_ALIGN(question->header.nlmsg_len));

	at->rta_type = type;
	at->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(at), data, len);
	question->header.nlmsg_len =
		NLMSG_ALIGN(question->header.nlmsg_len) + (uint32_t)RTA_ALIGN(at->rta_len);
}

/* The answer's length, or -errno. */
static ssize_t ask(const struct question *question, char *answer, size_t size)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t len;

	if (fd < 0)
		return -errno;
	len = send(fd, question, question->header.nlmsg_len, 0);
	if (len >= 0)
		len = recv(fd, answer, size, 0);
	if (len < 0)
		len = -errno;
	close(fd);
	return len;
}

static int read_answer(const char *answer, size_t len, struct route *out)
{
	const struct nlmsghdr *header = (const struct nlmsghdr *)answer;
	const struct rtmsg *route = NLMSG_DATA(header);
	const struct rtattr *at;
	unsigned left;

	if (!NLMSG_OK(header, len))
		return -EPROTO;
	if (header->nlmsg_type == NLMSG_ERROR)
		return ((const struct nlmsgerr *)NLMSG_DATA(header))->error;
	if (route->rtm_type == RTN_LOCAL)
		return -EADDRINUSE;
	left = (unsigned)RTM_PAYLOAD(header);
	for (at = RTM_RTA(route); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
		unsigned index;

		if (at->rta_type == RTA_PREFSRC)
			memcpy(&out->source, RTA_DATA(at), 4);
		else if (at->rta_type == RTA_GATEWAY)
			memcpy(&out->next_hop, RTA_DATA(at), 4);
		if (at->rta_type != RTA_OIF)
			continue;
		memcpy(&index, RTA_DATA(at), sizeof(index));
		if (!if_indextoname(index, out->ifname))
			return -ENODEV;
	}
	return out->ifname[0] ? 0 : -ENETUNREACH;
}

int route_find(struct in_addr to, const char *ifname, struct route *out)
{
	struct question question = {
		.header = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
			   .nlmsg_type = RTM_GETROUTE,
			   .nlmsg_flags = NLM_F_REQUEST},
		.route = {.rtm_family = AF_INET, .rtm_dst_len = 32},
	};
	char answer[4096] __attribute__((aligned(8))) = {0};
	ssize_t len;

	add_attribute(&question, RTA_DST, &to, sizeof(to));
	if (ifname) {
		unsigned index = if_nametoindex(ifname);

		if (!index)
			return -ENODEV;
		add_attribute(&question, RTA_OIF, &index, sizeof(index));
	}
	len = ask(&question, answer, sizeof(answer));
	if (len < 0)
		return (int)len;
	*out = (struct route){.next_hop = to};
	return read_answer(answer, (size_t)len, out);
}

unsigned route_mtu(const char *ifname)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	unsigned mtu = 0;

	if (fd < 0)
		return 0;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", ifname);
	if (!ioctl(fd, SIOCGIFMTU, &request))
		mtu = (unsigned)request.ifr_mtu;
	close(fd);
	return mtu;
}
