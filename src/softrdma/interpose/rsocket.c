/* SPDX-License-Identifier: MIT */
/*
 * librdmacm's sockets over RDMA. The software device does not offer them: rsocket() says so, and no
 * descriptor is one.
 */
#include "system.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/select.h>

#include "mode.h"

#define RSOCKET(name, ...)                                                                         \
	(mode_is_software() ? fail_minus_one(EBADF)                                                \
			    : SYSTEM(fail_minus_one(ENOSYS), name, __VA_ARGS__))

#pragma GCC visibility push(default)

int rsocket(int domain, int type, int protocol)
{
	if (mode_is_software())
		return fail_minus_one(EOPNOTSUPP);
	return SYSTEM(fail_minus_one(ENOSYS), rsocket, domain, type, protocol);
}

int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return RSOCKET(rbind, socket, addr, addrlen);
}

int rlisten(int socket, int backlog)
{
	return RSOCKET(rlisten, socket, backlog);
}

int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return RSOCKET(raccept, socket, addr, addrlen);
}

int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return RSOCKET(rconnect, socket, addr, addrlen);
}

int rshutdown(int socket, int how)
{
	return RSOCKET(rshutdown, socket, how);
}

int rclose(int socket)
{
	return RSOCKET(rclose, socket);
}

/* ---- data ---- */

ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return RSOCKET(rrecv, socket, buf, len, flags);
}

ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
		  socklen_t *addrlen)
{
	return RSOCKET(rrecvfrom, socket, buf, len, flags, src_addr, addrlen);
}

ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	return RSOCKET(rrecvmsg, socket, msg, flags);
}

ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return RSOCKET(rsend, socket, buf, len, flags);
}

ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
		const struct sockaddr *dest_addr, socklen_t addrlen)
{
	return RSOCKET(rsendto, socket, buf, len, flags, dest_addr, addrlen);
}

ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	return RSOCKET(rsendmsg, socket, msg, flags);
}

ssize_t rread(int socket, void *buf, size_t count)
{
	return RSOCKET(rread, socket, buf, count);
}

ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	return RSOCKET(rreadv, socket, iov, iovcnt);
}

ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return RSOCKET(rwrite, socket, buf, count);
}

ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	return RSOCKET(rwritev, socket, iov, iovcnt);
}

off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	return RSOCKET(riomap, socket, buf, len, prot, flags, offset);
}

int riounmap(int socket, void *buf, size_t len)
{
	return RSOCKET(riounmap, socket, buf, len);
}

size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	if (mode_is_software())
		return (size_t)fail_minus_one(EBADF);
	return SYSTEM((size_t)fail_minus_one(ENOSYS), riowrite, socket, buf, count, offset, flags);
}

/*
 * ---- waiting: ordinary descriptors are welcome here, so without rsockets these are poll and
 * select ----
 */

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	if (mode_is_software())
		return poll(fds, nfds, timeout);
	return SYSTEM(fail_minus_one(ENOSYS), rpoll, fds, nfds, timeout);
}

int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	if (mode_is_software())
		return select(nfds, readfds, writefds, exceptfds, timeout);
	return SYSTEM(fail_minus_one(ENOSYS), rselect, nfds, readfds, writefds, exceptfds, timeout);
}

/* ---- names and options ---- */

int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return RSOCKET(rgetpeername, socket, addr, addrlen);
}

int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return RSOCKET(rgetsockname, socket, addr, addrlen);
}

int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	return RSOCKET(rsetsockopt, socket, level, optname, optval, optlen);
}

int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	return RSOCKET(rgetsockopt, socket, level, optname, optval, optlen);
}

int rfcntl(int socket, int cmd, ...)
{
	va_list args;
	long arg;

	/* As in fcntl(2): the argument, if there is one, fits in a long. */
	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	return RSOCKET(rfcntl, socket, cmd, arg);
}

SOFTRDMA_RSOCKET_NAMES(EXPORT_PREFIXED)
