/* SPDX-License-Identifier: MIT */
/*
 * What is known of this machine: plain data, found by find_*.c and judged by check_*.c. A test
 * fills it by hand, or sets IBMSG_DOCTOR_ROOT to a folder that stands in for /, for what is read
 * from /proc, /sys and /dev.
 */
#ifndef DOCTOR_MACHINE_H
#define DOCTOR_MACHINE_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "../common/address.h"

#define MAX_DEVICES    32
#define MAX_PORTS      4
#define MAX_NODES      40
#define MAX_INTERFACES 64
#define MAX_ADDRESSES  16
#define MAX_LIMITS     8

#define ROOT_VARIABLE "IBMSG_DOCTOR_ROOT"

/* SOFTRDMA, as libsoftrdma reads it. */
enum choice { CHOICE_AUTO, CHOICE_ON, CHOICE_OFF, CHOICE_INVALID };

enum link_layer { LAYER_INFINIBAND, LAYER_ETHERNET };

struct port {
	unsigned number;
	bool active;
	const char *state;
	unsigned mtu; /* bytes */
	enum link_layer layer;
};

/* One that libibverbs lists, or libsoftrdma. */
struct device {
	char name[DEVICE_NAME];
	char interface[IF_NAMESIZE]; /* below it, if it is one of Ethernet and says so */
	bool soft, iwarp;
	int error; /* errno, if it does not open */
	struct port ports[MAX_PORTS];
	unsigned port_count;
	unsigned gids, gids_by_address; /* those made from an IP address, link-local ones apart */
	char gid[ADDRESS_TEXT];         /* the first of the latter, else the first of all */
};

/* A file in /dev/infiniband that should be there. */
struct node {
	char name[32];
	int error; /* errno of opening it */
	char group[32];
	bool group_may_write;
};

enum module_state { MODULE_ABSENT, MODULE_AVAILABLE, MODULE_BUILT_IN, MODULE_LOADED };
enum module_name { MODULE_RXE, MODULE_SIW, MODULE_UCM, MODULE_UVERBS, MODULES };

struct kernel {
	char release[64];
	char devices[MAX_DEVICES][DEVICE_NAME]; /* in /sys/class/infiniband */
	unsigned device_count;
	struct node nodes[MAX_NODES];
	unsigned node_count;
	enum module_state modules[MODULES];
	bool has_modules_folder;
	bool nf_tables, ip_tables, ufw, firewalld;
};

struct address {
	struct sockaddr_storage storage;
	char text[ADDRESS_TEXT];
	char device[DEVICE_NAME]; /* that serves it; "": none */
};

struct interface {
	char name[IF_NAMESIZE];
	bool up, running, loopback;
	unsigned mtu;
	struct address addresses[MAX_ADDRESSES];
	unsigned address_count;
};

#define UNLIMITED UINT64_MAX

struct process {
	bool is_root;
	uint64_t capabilities, bounding_set;
	uint64_t memlock, memlock_max; /* bytes, or UNLIMITED */
	bool seccomp;
	int raw_error, xdp_error;          /* errno of opening such a socket */
	char container[32];                /* what kind; "": no sign of one */
	bool own_user_namespace;           /* its ids are not the machine's */
	bool own_network;                  /* not that of process 1 */
	char rdma_limits[MAX_LIMITS][128]; /* lines of rdma.max that limit something */
	unsigned rdma_limit_count;
	char rdma_limits_file[256];
	uint64_t memory_max; /* bytes, or UNLIMITED */
	double cpus;         /* that the cgroup may use; 0: no limit */
};

struct machine {
	const char *root; /* in front of /proc, /sys and /dev; "" */
	const char *softrdma;
	enum choice choice;
	struct device devices[MAX_DEVICES];
	unsigned device_count;
	struct kernel kernel;
	struct interface interfaces[MAX_INTERFACES];
	unsigned interface_count;
	struct process process;
};

void find_process(struct machine *machine);
void find_container(struct machine *machine);
void find_kernel(struct machine *machine);
void find_devices(struct machine *machine);
void find_network(struct machine *machine);

static inline bool process_has(const struct process *process, unsigned capability)
{
	return process->capabilities >> capability & 1;
}

/* "sudo ", unless it is root who asks. */
static inline const char *machine_sudo(const struct machine *machine)
{
	return machine->process.is_root ? "" : "sudo ";
}

/* ---- choice.c: the rule by which libsoftrdma decides ---- */

/* The first real device that connections can use; NULL if there is none. */
const struct device *machine_usable_device(const struct machine *machine);
bool machine_uses_software(const struct machine *machine);

#endif
