/* SPDX-License-Identifier: MIT */
/* How two ends on one host meet: the Unix socket, who the other is, and the memory. */
#include "link.h"

#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../strict.h"
#include "hello.h"
#include "sealed.h"

#define BACKLOG 8 /* one is ours; anybody may knock */

/* What SOFTRDMA_SHM allows, and what a peer may read to see that it can. */
static struct {
	pthread_once_t once;
	enum settings_shm mode;
	uint64_t probe;
} meeting = {.once = PTHREAD_ONCE_INIT};

static void prepare(void)
{
	meeting.mode = settings()->shm;
	if (getrandom(&meeting.probe, sizeof(meeting.probe), 0) != sizeof(meeting.probe))
		meeting.mode = SETTINGS_SHM_OFF;
}

/* ---- names ---- */

struct end_text {
	char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 16];
};

/* An IPv4 address in IPv6 clothes is the IPv4 address: the other end may see it without them. */
static void unmap(struct sockaddr_storage *addr)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6;

	memcpy(&v6, addr, sizeof(v6));
	if (addr->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
		return;
	v4.sin_port = v6.sin6_port;
	memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
	memset(addr, 0, sizeof(*addr));
	memcpy(addr, &v4, sizeof(v4));
}

static int end_address(int fd, int (*get)(int fd, struct sockaddr *addr, socklen_t *len),
		       struct sockaddr_storage *addr)
{
	socklen_t len = sizeof(*addr);

	memset(addr, 0, sizeof(*addr));
	if (get(fd, (struct sockaddr *)addr, &len))
		return -errno;
	unmap(addr);
	return 0;
}

static socklen_t address_len(const struct sockaddr_storage *addr)
{
	return addr->ss_family == AF_INET ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6);
}

static struct end_text name_end(const struct sockaddr_storage *addr)
{
	char host[INET6_ADDRSTRLEN + IF_NAMESIZE] = "?", port[6] = "?";
	struct end_text out;

	getnameinfo((const struct sockaddr *)addr, address_len(addr), host, sizeof(host), port,
		    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(out.text, sizeof(out.text), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	return out;
}

/* Where the initiator is found. The name of a connection is one's own within its namespace. */
static int make_name(int tcp_fd, bool initiator, struct sockaddr_un *name, socklen_t *len,
		     char *text, size_t size)
{
	struct sockaddr_storage own, peer;
	struct end_text from, to;
	int error, count;

	error = end_address(tcp_fd, getsockname, &own);
	if (!error)
		error = end_address(tcp_fd, getpeername, &peer);
	if (error)
		return error;
	from = name_end(initiator ? &own : &peer);
	to = name_end(initiator ? &peer : &own);
	snprintf(text, size, "%s-%s", name_end(&own).text, name_end(&peer).text);
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	count = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "softrdma/%s-%s",
			 from.text, to.text);
	if (count < 0 || (size_t)count >= sizeof(name->sun_path) - 1)
		return -ENAMETOOLONG;
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)count);
	return 0;
}

/* Is the peer of a TCP socket on this host? Only an address of this host can be bound. */
static bool is_near(int tcp_fd)
{
	struct sockaddr_storage peer;
	bool near;
	int fd;

	if (end_address(tcp_fd, getpeername, &peer))
		return false;
	((struct sockaddr_in *)(void *)&peer)->sin_port = 0; /* as in sockaddr_in6 */
	fd = socket(peer.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	near = !bind(fd, (struct sockaddr *)&peer, address_len(&peer));
	close(fd);
	return near;
}

/* ---- who the other is ---- */

/* NULL if it may share memory with us, else why not. */
static const char *check_peer(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return strerror(errno);
	if (peer.uid != geteuid())
		return "the peer is another user's";
	if (peer.pid <= 0)
		return "the peer's process is not visible from here";
	*pid = peer.pid;
	return NULL;
}

/*
 * Does /proc show the process numbers of our namespace? In a mount of another one, the peer's
 * number names another process, which may be in our namespaces when the peer is not.
 */
static bool is_proc_ours(void)
{
	char own[16], link[16] = "";

	snprintf(own, sizeof(own), "%d", (int)getpid());
	return readlink("/proc/self", link, sizeof(link) - 1) > 0 && !strcmp(link, own);
}

static bool is_in_our_namespace(pid_t pid, const char *kind)
{
	struct stat own, theirs;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	if (stat(path, &own))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
	return !stat(path, &theirs) && own.st_dev == theirs.st_dev && own.st_ino == theirs.st_ino;
}

/*
 * May the peer send us signals? The owner of memory can make a copy of it wait for ever, by
 * userfaultfd or FUSE, and the thread that copies cannot be got out of the kernel. A peer that can
 * stop this process anyway gains nothing by that. Any other, such as one in a container, could hold
 * up all connections, so nothing is copied from or to its memory.
 */
static bool may_signal_us(pid_t pid)
{
	return is_proc_ours() && is_in_our_namespace(pid, "pid") &&
	       is_in_our_namespace(pid, "user");
}

/* May the two ends reach each other's memory, as far as we have a say in it? */
static bool may_share_regions(pid_t pid)
{
	return meeting.mode == SETTINGS_SHM_ON && may_signal_us(pid);
}

/* Does the kernel let us reach the peer's memory? It is the peer's if the word is there. */
static bool probe(pid_t pid, const struct hello *hello)
{
	uint64_t value = 0;
	struct iovec local = {.iov_base = &value, .iov_len = sizeof(value)};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)hello->probe_at,
			       .iov_len = sizeof(value)};

	return may_share_regions(pid) &&
	       process_vm_readv(pid, &local, 1, &remote, 1, 0) == sizeof(value) &&
	       value == hello->probe_value;
}

/* ---- hellos ---- */

union fd_message {
	struct cmsghdr header;
	char room[CMSG_SPACE(HELLO_MAX_FDS * sizeof(int))];
};

/* @area_fd -1: none. Our table goes with it, if the peer may have it. */
static int send_hello(struct shm_link *link, int area_fd)
{
	int fds[HELLO_MAX_FDS], count = 0, table_fd = -1;
	struct hello hello;
	struct iovec iov = {.iov_base = &hello, .iov_len = sizeof(hello)};
	union fd_message control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t sent;

	if (may_share_regions(link->pid))
		table_fd = regions_fd();
	if (area_fd >= 0)
		fds[count++] = area_fd;
	if (table_fd >= 0)
		fds[count++] = table_fd;
	hello_make(&hello, table_fd >= 0, &meeting.probe);
	if (count) {
		control.header.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, (size_t)count * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
	}
	sent = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0)
		return -errno;
	link->has_ours = table_fd >= 0;
	return sent == sizeof(hello) ? 0 : -EPROTO;
}

static void close_all(const int *fds, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
}

static unsigned take_fds(struct msghdr *message, int *fds)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	size_t bytes;

	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
		return 0;
	bytes = header->cmsg_len - CMSG_LEN(0);
	memcpy(fds, CMSG_DATA(header), bytes); /* no more than there was room for */
	return (unsigned)(bytes / sizeof(int));
}

/* What the peer sent: its memory if it is the responder, its table. */
static int use_fds(struct shm_link *link, const struct hello *hello, const int *fds,
		   bool from_responder)
{
	void *area;
	int error;

	if (from_responder) {
		error = sealed_map(fds[0], sizeof(struct area), SEALED_SHARED, &area);
		if (error)
			return error;
		link->area = area;
	}
	link->may_copy = probe(link->pid, hello);
	if (hello->has_table && link->may_copy)
		link->table = regions_map(fds[from_responder]);
	return 0;
}

static int recv_hello(struct shm_link *link, bool from_responder)
{
	char bytes[sizeof(struct hello)];
	struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
	union fd_message control;
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fds[HELLO_MAX_FDS] = {-1, -1};
	struct hello hello;
	unsigned count;
	ssize_t got;
	int error;

	got = recvmsg(link->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return -errno;
	count = take_fds(&message, fds);
	error = message.msg_flags & MSG_CTRUNC
			? -EPROTO
			: hello_parse(bytes, (size_t)got, count, from_responder, &hello);
	if (!error)
		error = use_fds(link, &hello, fds, from_responder);
	close_all(fds, count);
	return error;
}

/* ---- the steps ---- */

static struct shm_link *link_new(int fd, pid_t pid, const char *name)
{
	struct shm_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->fd = fd;
	link->pid = pid;
	snprintf(link->name, sizeof(link->name), "%s", name);
	return link;
}

void link_release(struct shm_link *link)
{
	if (link->area)
		munmap(link->area, sizeof(*link->area));
	if (link->table)
		regions_unmap(link->table);
	link->area = NULL;
	link->table = NULL;
}

void shm_link_free(struct shm_link *link)
{
	if (!link)
		return;
	link_release(link);
	close(link->fd);
	free(link);
}

/* Why this process would not, NULL if it would. */
static const char *unwilling(void)
{
	pthread_once(&meeting.once, prepare);
	if (meeting.mode == SETTINGS_SHM_OFF)
		return "SOFTRDMA_SHM is off";
	return is_strict() ? "strict mode is for what hardware does" : NULL;
}

static void log_refusal(const char *name, const char *why)
{
	log_info("%s: TCP, not shared memory: %s", name, why);
}

static int open_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

int shm_offer(int tcp_fd)
{
	const char *why = unwilling();
	char text[160] = "a connection";
	struct sockaddr_un name;
	socklen_t len;
	int fd, error;

	error = make_name(tcp_fd, true, &name, &len, text, sizeof(text));
	if (!why && !error && !is_near(tcp_fd))
		why = "the peer is not on this host";
	if (why || error) {
		log_refusal(text, why ? why : strerror(-error));
		return error ? error : -ENOTSUP;
	}
	fd = open_socket();
	if (fd >= 0 && (bind(fd, (struct sockaddr *)&name, len) || listen(fd, BACKLOG))) {
		error = -errno;
		close(fd);
		fd = error;
	}
	if (fd < 0)
		log_refusal(text, strerror(-fd));
	return fd;
}

static int share_area(struct shm_link *link)
{
	void *map;
	int fd = sealed_new(sizeof(struct area), SEALED_SHARED, &map), error;

	if (fd < 0)
		return fd;
	link->area = map;
	for (unsigned end = 0; end < 2; end++)
		ring_clear(link->area->ring[end]);
	error = send_hello(link, fd);
	close(fd);
	return error;
}

/* Takes @fd over. */
static struct shm_link *meet(int fd, const char *text)
{
	struct shm_link *link;
	const char *why;
	pid_t pid = 0;
	int error;

	why = check_peer(fd, &pid);
	if (why) {
		log_refusal(text, why);
		close(fd);
		return NULL;
	}
	link = link_new(fd, pid, text);
	error = link ? share_area(link) : -ENOMEM;
	if (!error)
		return link;
	log_refusal(text, strerror(-error));
	if (link)
		shm_link_free(link);
	else
		close(fd);
	return NULL;
}

struct shm_link *shm_meet(int tcp_fd)
{
	const char *why = unwilling();
	char text[160] = "a connection";
	struct sockaddr_un name;
	socklen_t len;
	int fd, error;

	error = make_name(tcp_fd, false, &name, &len, text, sizeof(text));
	if (why || error) {
		log_refusal(text, why ? why : strerror(-error));
		return NULL;
	}
	fd = open_socket();
	if (fd >= 0 && connect(fd, (struct sockaddr *)&name, len)) {
		error = -errno;
		close(fd);
		fd = error;
	}
	if (fd < 0) {
		log_refusal(text, fd == -ECONNREFUSED ? "the peer is in another network namespace"
						      : strerror(-fd));
		return NULL;
	}
	return meet(fd, text);
}

/* Whether the one who knocked is the responder. Takes @fd over if not. */
static struct shm_link *admit(int fd, const char *text)
{
	struct shm_link *link = NULL;
	int error = -ENOMEM;
	const char *why;
	pid_t pid = 0;

	why = check_peer(fd, &pid);
	if (!why)
		link = link_new(fd, pid, text);
	if (link) {
		error = recv_hello(link, true);
		if (!error)
			error = send_hello(link, -1);
		if (!error)
			return link;
	}
	log_refusal(text, why ? why : strerror(-error));
	if (link)
		shm_link_free(link);
	else
		close(fd);
	return NULL;
}

struct shm_link *shm_take(int offer, int tcp_fd)
{
	char text[160] = "a connection";
	struct shm_link *link = NULL;
	struct sockaddr_un name;
	socklen_t len;
	int fd;

	make_name(tcp_fd, true, &name, &len, text, sizeof(text));
	while (!link && (fd = accept4(offer, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		link = admit(fd, text);
	close(offer);
	return link;
}

int link_conclude(struct shm_link *link)
{
	return recv_hello(link, false);
}
