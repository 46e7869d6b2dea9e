/* SPDX-License-Identifier: MIT */
/* The calls that libsoftrdma makes into libc. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
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
	X(pthread_atfork, ENOMEM)                                                                  \
	X(memfd_create, EMFILE)                                                                    \
	X(ftruncate, ENOSPC)                                                                       \
	X(fstat, ENOMEM)                                                                           \
	X(mmap, ENOMEM)                                                                            \
	X(process_vm_readv, EPERM)                                                                 \
	X(process_vm_writev, EFAULT)

#include "fail.h"

WRAP(void *, malloc, NULL, (size_t size), (size))
WRAP(void *, calloc, NULL, (size_t count, size_t size), (count, size))
WRAP(void *, realloc, NULL, (void *old, size_t size), (old, size))
WRAP(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
WRAP(int, ftruncate, -1, (int fd, off_t size), (fd, size))
WRAP(int, fstat, -1, (int fd, struct stat *out), (fd, out))
WRAP(void *, mmap, MAP_FAILED, (void *at, size_t size, int prot, int flags, int fd, off_t offset),
     (at, size, prot, flags, fd, offset))
WRAP(ssize_t, process_vm_readv, -1,
     (pid_t pid, const struct iovec *to, unsigned long num_to, const struct iovec *from,
      unsigned long num_from, unsigned long flags),
     (pid, to, num_to, from, num_from, flags))
WRAP(ssize_t, process_vm_writev, -1,
     (pid_t pid, const struct iovec *from, unsigned long num_from, const struct iovec *to,
      unsigned long num_to, unsigned long flags),
     (pid, from, num_from, to, num_to, flags))
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
