/* SPDX-License-Identifier: MIT */
#include "interface.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_QUEUES 64

static int look_at_link(struct raw_interface *iface, int fd)
{
	struct ifreq request = {0};

	memcpy(request.ifr_name, iface->name, sizeof(request.ifr_name));
	if (ioctl(fd, SIOCGIFHWADDR, &request))
		return -errno;
	/* Loopback's frames look like Ethernet's. */
	if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER &&
	    request.ifr_hwaddr.sa_family != ARPHRD_LOOPBACK)
		return -EOPNOTSUPP;
	memcpy(iface->mac, request.ifr_hwaddr.sa_data, sizeof(iface->mac));
	if (ioctl(fd, SIOCGIFMTU, &request))
		return -errno;
	iface->mtu = (unsigned)request.ifr_mtu;
	return 0;
}

static void look_at_driver(struct raw_interface *iface, int fd)
{
	struct ethtool_value flags = {.cmd = ETHTOOL_GFLAGS};
	struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
	struct ifreq request = {.ifr_data = (void *)&flags};

	memcpy(request.ifr_name, iface->name, sizeof(request.ifr_name));
	/* If in doubt, yes: a rule about tags is then served where tags are known. */
	iface->strips_tags = ioctl(fd, SIOCETHTOOL, &request) || (flags.data & ETH_FLAG_RXVLAN);
	request.ifr_data = (void *)&driver;
	iface->is_virtual = !ioctl(fd, SIOCETHTOOL, &request) && !strcmp(driver.driver, "veth");
}

/* /sys may be that of another namespace, but not every driver knows channels. */
static unsigned count_queues(const struct raw_interface *iface, int fd)
{
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
	struct ifreq request = {.ifr_data = (void *)&channels};
	unsigned num = 0;
	char path[96];
	struct stat unused;

	memcpy(request.ifr_name, iface->name, sizeof(request.ifr_name));
	if (!ioctl(fd, SIOCETHTOOL, &request))
		num = channels.rx_count + channels.combined_count;
	while (num < MAX_QUEUES) {
		snprintf(path, sizeof(path), "/sys/class/net/%s/queues/rx-%u", iface->name, num);
		if (stat(path, &unused))
			break;
		num++;
	}
	return num == 0 ? 1 : num < MAX_QUEUES ? num : MAX_QUEUES;
}

int interface_look_up(struct raw_interface *iface, unsigned index, const char *name)
{
	struct raw_interface found = {.index = index};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), error;

	if (fd < 0)
		return -errno;
	snprintf(found.name, sizeof(found.name), "%s", name);
	error = look_at_link(&found, fd);
	look_at_driver(&found, fd);
	found.num_queues = count_queues(&found, fd);
	close(fd);
	if (!error)
		*iface = found;
	return error;
}
