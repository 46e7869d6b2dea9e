/* SPDX-License-Identifier: MIT */
/* Files that are written aside and get their name at the end. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder(const char *path)
{
	struct stat stat_;

	return !stat(path, &stat_) && S_ISDIR(stat_.st_mode);
}

/* The folder of @path in @out, up to its last slash; "." without one. */
static void folder_of(char out[PATH_MAX], const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		strcpy(out, ".");
	else
		snprintf(out, PATH_MAX, "%.*s", (int)(slash - path + 1), path);
}

int output_check(const char *path)
{
	char folder[PATH_MAX];
	struct stat stat_;

	if (!strcmp(path, "-"))
		return 0;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	/* What is no regular file is written as it is. */
	if (!stat(path, &stat_) && !S_ISREG(stat_.st_mode) && !S_ISDIR(stat_.st_mode))
		return access(path, W_OK) ? -errno : 0;
	if (is_folder(path))
		strcpy(folder, path);
	else
		folder_of(folder, path);
	return access(folder, W_OK | X_OK) ? -errno : 0;
}

/* A name that a peer chose: of a file in the folder, and nothing else. */
static bool is_plain_name(const char *name)
{
	return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/');
}

/* A link is followed: what it leads to is replaced, not the link. */
static int find_final(struct output *output, const char *path, const char *name)
{
	char given[PATH_MAX];
	struct stat stat_;
	int len;

	if (is_folder(path)) {
		if (!is_plain_name(name))
			return -EISDIR;
		len = snprintf(given, sizeof(given), "%s/%s", path, name);
	} else {
		len = snprintf(given, sizeof(given), "%s", path);
	}
	if (len >= PATH_MAX)
		return -ENAMETOOLONG;
	if (lstat(given, &stat_) || !S_ISLNK(stat_.st_mode) || !realpath(given, output->final))
		strcpy(output->final, given);
	return 0;
}

static int make_part_name(struct output *output, const char *folder)
{
	const char *slash = strrchr(output->final, '/');
	const char *base = slash ? slash + 1 : output->final;
	int len = snprintf(output->part, sizeof(output->part), "%s%s.%.200s.XXXXXX", folder,
			   folder[strlen(folder) - 1] == '/' ? "" : "/", base);

	return len >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* A file with a name of its own, where the file system has none without. */
static int open_part(struct output *output, const char *folder)
{
	int error = make_part_name(output, folder);
	mode_t mask;

	if (error)
		return error;
	mask = umask(0);
	umask(mask);
	output->fd = mkostemp(output->part, O_CLOEXEC);
	if (output->fd < 0)
		return -errno;
	return fchmod(output->fd, 0666 & ~mask) ? -errno : 0;
}

static int open_aside(struct output *output)
{
	char folder[PATH_MAX];
	int error;

	folder_of(folder, output->final);
	output->aside = true;
	/* Nothing of it stays, however the process ends. */
	output->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
	if (output->fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
		return -errno;
	error = open_part(output, folder);
	if (error && output->fd >= 0)
		output_discard(output);
	return error;
}

int output_open(struct output *output, const char *path, const char *name)
{
	struct stat stat_;
	int error;

	output->aside = false;
	output->part[0] = '\0';
	if (!strcmp(path, "-")) {
		strcpy(output->final, "standard output");
		output->fd = STDOUT_FILENO;
		return 0;
	}
	error = find_final(output, path, name);
	if (error)
		return error;
	if (stat(output->final, &stat_))
		return open_aside(output);
	if (S_ISREG(stat_.st_mode)) {
		error = open_aside(output);
		if (!error) /* what it replaces decides who may read it; but for that it is whole */
			(void)!fchmod(output->fd, stat_.st_mode & 0777);
		return error;
	}
	output->fd = open(output->final, O_WRONLY | O_CLOEXEC);
	return output->fd < 0 ? -errno : 0;
}

int output_write(const struct output *output, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		ssize_t written = write(output->fd, at, len);

		if (written < 0)
			return -errno;
		at += written;
		len -= (size_t)written;
	}
	return 0;
}

/* linkat does not replace a file: the nameless one gets a temporary name first. */
static int give_name(struct output *output)
{
	char folder[PATH_MAX], self[64];
	int error;

	folder_of(folder, output->final);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", output->fd);
	for (unsigned tries = 0; tries < 100; tries++) {
		error = make_part_name(output, folder);
		if (error)
			break;
		snprintf(strrchr(output->part, '.'), 8, ".%06x",
			 ((unsigned)getpid() * 100 + tries) & 0xffffff);
		if (!linkat(AT_FDCWD, self, AT_FDCWD, output->part, AT_SYMLINK_FOLLOW))
			return 0;
		error = -errno;
		if (error != -EEXIST)
			break;
	}
	output->part[0] = '\0';
	return error;
}

int output_commit(struct output *output)
{
	int error = 0;

	if (output->aside && !output->part[0])
		error = give_name(output);
	if (!error) {
		error = close(output->fd) ? -errno : 0;
		output->fd = -1;
	}
	if (!error && output->aside && rename(output->part, output->final))
		error = -errno;
	if (error)
		output_discard(output);
	return error;
}

void output_discard(struct output *output)
{
	if (output->fd >= 0)
		close(output->fd);
	output->fd = -1;
	if (output->part[0])
		unlink(output->part);
	output->part[0] = '\0';
}
