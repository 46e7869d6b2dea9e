/* SPDX-License-Identifier: MIT */
#include "sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int seals_for(enum sealed_use use)
{
	return SIZE_SEALS | (use == SEALED_READ_BY_OTHERS ? F_SEAL_FUTURE_WRITE : 0);
}

int sealed_new(size_t size, enum sealed_use use, void **map)
{
	int fd = memfd_create("softrdma", MFD_CLOEXEC | MFD_ALLOW_SEALING), error;
	void *at = MAP_FAILED;

	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, (off_t)size))
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* The mapping that is there already may still write. */
	if (at != MAP_FAILED && !fcntl(fd, F_ADD_SEALS, seals_for(use))) {
		*map = at;
		return fd;
	}
	error = -errno;
	if (at != MAP_FAILED)
		munmap(at, size);
	close(fd);
	return error;
}

int sealed_map(int fd, size_t size, enum sealed_use use, void **map)
{
	int prot = use == SEALED_SHARED ? PROT_READ | PROT_WRITE : PROT_READ;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat stat;
	void *at;

	if (seals < 0 || fstat(fd, &stat))
		return -errno;
	/* More seals than these would do no harm, but are not what softrdma makes. */
	if (seals != seals_for(use) || (size_t)stat.st_size != size)
		return -EPERM;
	at = mmap(NULL, size, prot, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	*map = at;
	return 0;
}
