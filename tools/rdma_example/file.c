/* SPDX-License-Identifier: MIT */
/* A file in a buffer, from a disk and to one. */
#include "file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

/* ---- the proof ---- */

static const char magic[8] = {'R', 'D', 'M', 'A', 'F', 'I', 'L', 'E'};

/* CRC32C, a byte at a time: the polynomial 0x1edc6f41, bits reflected. */
uint32_t file_checksum(const void *bytes, size_t length)
{
	static uint32_t table[256];
	const uint8_t *at = bytes;
	uint32_t crc = UINT32_MAX;

	for (uint32_t i = 0; i < 256 && !table[255]; i++) {
		uint32_t entry = i;

		for (int bit = 0; bit < 8; bit++)
			entry = entry & 1 ? entry >> 1 ^ 0x82f63b78 : entry >> 1;
		table[i] = entry;
	}
	for (size_t i = 0; i < length; i++)
		crc = table[(crc ^ at[i]) & 0xff] ^ crc >> 8;
	return ~crc;
}

void file_put_proof(uint8_t *buffer, size_t length)
{
	uint32_t numbers[] = {htonl((uint32_t)length), htonl(file_checksum(buffer, length))};

	memcpy(buffer + length, magic, sizeof(magic));
	memcpy(buffer + length + sizeof(magic), numbers, sizeof(numbers));
}

int64_t file_check_proof(const uint8_t *buffer, size_t size, uint32_t *checksum)
{
	uint32_t numbers[2];
	size_t length;

	if (size < FILE_PROOF_BYTES)
		return -EBADMSG;
	length = size - FILE_PROOF_BYTES;
	memcpy(numbers, buffer + length + sizeof(magic), sizeof(numbers));
	if (memcmp(buffer + length, magic, sizeof(magic)) != 0 || ntohl(numbers[0]) != length)
		return -EBADMSG;
	if (ntohl(numbers[1]) != file_checksum(buffer, length))
		return -EILSEQ;
	*checksum = ntohl(numbers[1]);
	return (int64_t)length;
}

/* ---- loading ---- */

/* As many bytes as there are, up to @size; -errno. */
static int64_t read_all(int fd, uint8_t *to, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t count = read(fd, to + done, size - done);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -errno;
		if (!count)
			break;
		done += (size_t)count;
	}
	return (int64_t)done;
}

static int load(int fd, uint64_t most, uint8_t **out, size_t *out_size)
{
	struct stat info;
	uint8_t *buffer;
	size_t length;
	int64_t count;

	if (fstat(fd, &info))
		return -errno;
	if (S_ISDIR(info.st_mode))
		return -EISDIR;
	if (!S_ISREG(info.st_mode))
		return -ESPIPE;
	if ((uint64_t)info.st_size > most - FILE_PROOF_BYTES)
		return -EFBIG;
	length = (size_t)info.st_size;
	buffer = malloc(length + FILE_PROOF_BYTES);
	if (!buffer)
		return -ENOMEM;
	/* One more than there should be, to see one that grows. */
	count = read_all(fd, buffer, length + 1);
	if (count != (int64_t)length) {
		free(buffer);
		return count < 0 ? (int)count : -ESTALE;
	}
	file_put_proof(buffer, length);
	*out = buffer;
	*out_size = length + FILE_PROOF_BYTES;
	return 0;
}

int file_load(const char *path, uint64_t most, uint8_t **out, size_t *out_size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;

	error = fd < 0 ? -errno : load(fd, most, out, out_size);
	if (fd >= 0)
		close(fd);
	if (error)
		report_error("Reading %s failed with errno : (%d), %s", path, error,
			     error == -ESTALE   ? "it changes while it is read"
			     : error == -ESPIPE ? "it is not a file with a length"
						: strerror(-error));
	return error;
}

/* ---- storing ---- */

static int write_all(int fd, const uint8_t *bytes, size_t length)
{
	size_t done = 0;

	while (done < length) {
		ssize_t count = write(fd, bytes + done, length - done);

		if (count < 0 && errno != EINTR)
			return -errno;
		done += count < 0 ? 0 : (size_t)count;
	}
	return 0;
}

/* A device or a pipe is written to; anything else is replaced. */
static bool is_replaced(const char *path)
{
	struct stat info;

	return stat(path, &info) || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
}

/* A new file beside @path, whose name is in @temporary. */
static int open_beside(const char *path, char temporary[static PATH_MAX])
{
	struct stat info;
	mode_t mask;
	int fd;

	if (!stat(path, &info) && S_ISDIR(info.st_mode))
		return -EISDIR;
	if (snprintf(temporary, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX)
		return -ENAMETOOLONG;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* As any other new file, not for its owner alone. */
	mask = umask(0);
	umask(mask);
	fchmod(fd, 0666 & ~mask);
	return fd;
}

static int replace(const char *path, const uint8_t *bytes, size_t length)
{
	char temporary[PATH_MAX];
	int error, fd = open_beside(path, temporary);

	if (fd < 0)
		return fd;
	error = write_all(fd, bytes, length);
	/* Some disks say only here that they are full. */
	if (close(fd) && !error)
		error = -errno;
	if (!error && rename(temporary, path))
		error = -errno;
	if (error)
		unlink(temporary);
	return error;
}

static int write_through(const char *path, const uint8_t *bytes, size_t length)
{
	int error, fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	error = write_all(fd, bytes, length);
	if (close(fd) && !error)
		error = -errno;
	return error;
}

static int report_place(const char *path, int error)
{
	if (error)
		report_error("Writing %s failed with errno : (%d), %s", path, error,
			     strerror(-error));
	return error;
}

int file_try_place(const char *path)
{
	char temporary[PATH_MAX];
	int fd;

	if (!is_replaced(path))
		return report_place(path, access(path, W_OK) ? -errno : 0);
	fd = open_beside(path, temporary);
	if (fd < 0)
		return report_place(path, fd);
	close(fd);
	unlink(temporary);
	return 0;
}

int file_store(const char *path, const uint8_t *bytes, size_t length)
{
	return report_place(path, is_replaced(path) ? replace(path, bytes, length)
						    : write_through(path, bytes, length));
}
