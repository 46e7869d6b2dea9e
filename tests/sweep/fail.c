/* SPDX-License-Identifier: MIT */
/*
 * The calls that the library makes into libc, one of which fails: linked into a copy of the library
 * with --wrap, so that its own calls come here and nobody else's do. FAIL_CALL=NAME:N[:ERRNO]  the
 * N-th call of NAME fails once, with that number or with the first that it may fail with
 *   FAIL_COUNTS=FILE          how often each was called, appended at the end
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

/* Name, and what it fails with unless told otherwise. */
#define CALLS(X)                                                                                   \
	X(malloc, ENOMEM)                                                                          \
	X(calloc, ENOMEM)                                                                          \
	X(realloc, ENOMEM)                                                                         \
	X(strdup, ENOMEM)                                                                          \
	X(socket, EMFILE)                                                                          \
	X(bind, EADDRINUSE)                                                                        \
	X(listen, EADDRINUSE)                                                                      \
	X(accept4, EMFILE)                                                                         \
	X(connect, EADDRNOTAVAIL)                                                                  \
	X(shutdown, ENOTCONN)                                                                      \
	X(setsockopt, ENOMEM)                                                                      \
	X(getsockopt, ENOBUFS)                                                                     \
	X(getsockname, ENOBUFS)                                                                    \
	X(getpeername, ENOTCONN)                                                                   \
	X(send, EAGAIN)                                                                            \
	X(sendmsg, EAGAIN)                                                                         \
	X(recv, EAGAIN)                                                                            \
	X(recvmsg, EAGAIN)                                                                         \
	X(read, EINTR)                                                                             \
	X(poll, EINTR)                                                                             \
	X(ppoll, ENOMEM)                                                                           \
	X(epoll_create1, EMFILE)                                                                   \
	X(epoll_ctl, ENOMEM)                                                                       \
	X(epoll_wait, EINTR)                                                                       \
	X(eventfd, EMFILE)                                                                         \
	X(timerfd_create, EMFILE)                                                                  \
	X(fcntl, EAGAIN)                                                                           \
	X(ioctl, ENOBUFS)                                                                          \
	X(getrandom, EAGAIN)                                                                       \
	X(getifaddrs, ENOBUFS)                                                                     \
	X(if_nameindex, ENOBUFS)                                                                   \
	X(if_nametoindex, ENODEV)                                                                  \
	X(if_indextoname, ENXIO)                                                                   \
	X(getaddrinfo, EAI_MEMORY)                                                                 \
	X(getnameinfo, EAI_MEMORY)                                                                 \
	X(pthread_create, EAGAIN)                                                                  \
	X(pthread_atfork, ENOMEM)

#define AS_NUMBER(name, error) CALL_##name,
enum call { CALLS(AS_NUMBER) CALL_COUNT };

#define AS_ENTRY(name, error) {#name, error, 0},
static struct {
	const char *name;
	int error;
	atomic_uint count;
} calls[] = {CALLS(AS_ENTRY)};

static unsigned chosen = CALL_COUNT; /* none */
static unsigned chosen_at;

/* The program's, if it has one: told when the call has failed. */
__attribute__((weak, visibility("default"))) void sweep_failed(void);

__attribute__((constructor)) static void read_environment(void)
{
	const char *text = getenv("FAIL_CALL");
	const char *colon = text ? strchr(text, ':') : NULL;
	char *rest;

	for (unsigned i = 0; colon && i < CALL_COUNT; i++) {
		if (strlen(calls[i].name) != (size_t)(colon - text) ||
		    strncmp(calls[i].name, text, (size_t)(colon - text)) != 0)
			continue;
		chosen_at = (unsigned)strtoul(colon + 1, &rest, 10);
		if (*rest == ':')
			calls[i].error = atoi(rest + 1);
		chosen = i;
	}
	if (text && chosen == CALL_COUNT) {
		fprintf(stderr, "FAIL_CALL=%s: no such call\n", text);
		_Exit(2);
	}
}

__attribute__((destructor)) static void write_counts(void)
{
	const char *path = getenv("FAIL_COUNTS");
	FILE *file = path ? fopen(path, "a") : NULL;

	if (!file)
		return;
	for (unsigned i = 0; i < CALL_COUNT; i++)
		fprintf(file, "%s %u\n", calls[i].name, atomic_load(&calls[i].count));
	fclose(file);
}

/* Whether this call is the one; then errno is set. */
static bool fails(enum call call)
{
	unsigned n = atomic_fetch_add(&calls[call].count, 1) + 1;

	if (call != chosen || n != chosen_at)
		return false;
	if (sweep_failed)
		sweep_failed();
	errno = calls[call].error;
	return true;
}

/* A wrapper that returns @failure, its parameters and their names in parentheses. */
#define WRAP(type, name, failure, parameters, arguments)                                           \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		if (fails(CALL_##name))                                                            \
			return failure;                                                            \
		return __real_##name arguments;                                                    \
	}

WRAP(void *, malloc, NULL, (size_t size), (size))
WRAP(void *, calloc, NULL, (size_t count, size_t size), (count, size))
WRAP(void *, realloc, NULL, (void *old, size_t size), (old, size))
WRAP(char *, strdup, NULL, (const char *text), (text))
WRAP(int, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, bind, -1, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
WRAP(int, listen, -1, (int fd, int backlog), (fd, backlog))
WRAP(int, accept4, -1, (int fd, struct sockaddr *addr, socklen_t *len, int flags),
     (fd, addr, len, flags))
WRAP(int, connect, -1, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
WRAP(int, shutdown, -1, (int fd, int how), (fd, how))
WRAP(int, setsockopt, -1, (int fd, int level, int name, const void *value, socklen_t len),
     (fd, level, name, value, len))
WRAP(int, getsockopt, -1, (int fd, int level, int name, void *value, socklen_t *len),
     (fd, level, name, value, len))
WRAP(int, getsockname, -1, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))
WRAP(int, getpeername, -1, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))
WRAP(ssize_t, send, -1, (int fd, const void *data, size_t len, int flags), (fd, data, len, flags))
WRAP(ssize_t, sendmsg, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, recv, -1, (int fd, void *data, size_t len, int flags), (fd, data, len, flags))
WRAP(ssize_t, recvmsg, -1, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, read, -1, (int fd, void *data, size_t len), (fd, data, len))
WRAP(int, poll, -1, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
WRAP(int, ppoll, -1,
     (struct pollfd * fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask),
     (fds, count, timeout, mask))
WRAP(int, epoll_create1, -1, (int flags), (flags))
WRAP(int, epoll_wait, -1, (int fd, struct epoll_event *events, int most, int timeout),
     (fd, events, most, timeout))
WRAP(int, eventfd, -1, (unsigned value, int flags), (value, flags))
WRAP(int, timerfd_create, -1, (clockid_t clock, int flags), (clock, flags))
WRAP(int, fcntl, -1, (int fd, int command, long argument), (fd, command, argument))
WRAP(int, ioctl, -1, (int fd, unsigned long request, void *argument), (fd, request, argument))
WRAP(ssize_t, getrandom, -1, (void *data, size_t len, unsigned flags), (data, len, flags))
WRAP(int, getifaddrs, -1, (struct ifaddrs * *list), (list))
WRAP(struct if_nameindex *, if_nameindex, NULL, (void), ())
WRAP(unsigned, if_nametoindex, 0, (const char *name), (name))
WRAP(char *, if_indextoname, NULL, (unsigned index, char *name), (index, name))
WRAP(int, getaddrinfo, errno,
     (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res),
     (node, service, hints, res))
WRAP(int, getnameinfo, errno,
     (const struct sockaddr *addr, socklen_t len, char *host, socklen_t host_len, char *service,
      socklen_t service_len, int flags),
     (addr, len, host, host_len, service, service_len, flags))
WRAP(int, pthread_create, errno,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg),
     (thread, attr, start, arg))
WRAP(int, pthread_atfork, errno, (void (*before)(void), void (*parent)(void), void (*child)(void)),
     (before, parent, child))

/* What takes memory is putting a descriptor in; the rest fails only for wrong arguments. */
int __real_epoll_ctl(int fd, int operation, int target, struct epoll_event *event);
int __wrap_epoll_ctl(int fd, int operation, int target, struct epoll_event *event);
int __wrap_epoll_ctl(int fd, int operation, int target, struct epoll_event *event)
{
	if (operation == EPOLL_CTL_ADD && fails(CALL_epoll_ctl))
		return -1;
	return __real_epoll_ctl(fd, operation, target, event);
}
