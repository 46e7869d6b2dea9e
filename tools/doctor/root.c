/* SPDX-License-Identifier: MIT */
/* Small files of /proc, /sys and /dev, under the machine's root. */
#include "root.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct path root_path(const struct machine *machine, const char *format, ...)
{
	struct path path;
	va_list arguments;
	char *text;
	int length;

	va_start(arguments, format);
	length = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (length < 0)
		return (struct path){""};
	snprintf(path.text, sizeof(path.text), "%s%s", machine->root, text);
	free(text);
	return path;
}

bool path_exists(struct path path)
{
	return !access(path.text, F_OK);
}

bool path_read(struct path path, char *out, size_t size)
{
	FILE *file = fopen(path.text, "re");
	size_t length;

	if (!file)
		return false;
	length = fread(out, 1, size - 1, file);
	fclose(file);
	while (length && out[length - 1] == '\n')
		length--;
	out[length] = '\0';
	return true;
}

static void copy_trimmed(char *out, size_t size, const char *text)
{
	size_t length;

	while (isspace((unsigned char)*text))
		text++;
	length = strlen(text);
	while (length && isspace((unsigned char)text[length - 1]))
		length--;
	snprintf(out, size, "%.*s", (int)length, text);
}

bool path_find_line(struct path path, const char *prefix, char *out, size_t size)
{
	FILE *file = fopen(path.text, "re");
	char line[1024];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		if (strncmp(line, prefix, strlen(prefix)) != 0)
			continue;
		copy_trimmed(out, size, line + strlen(prefix));
		found = true;
	}
	fclose(file);
	return found;
}

bool path_has_text(struct path path, const char *text)
{
	FILE *file = fopen(path.text, "re");
	char *line = NULL;
	size_t room = 0;
	ssize_t length;
	bool found = false;

	if (!file)
		return false;
	/* A line may contain NUL bytes: /proc/1/environ. */
	while (!found && (length = getline(&line, &room, file)) >= 0)
		found = memmem(line, (size_t)length, text, strlen(text));
	free(line);
	fclose(file);
	return found;
}
