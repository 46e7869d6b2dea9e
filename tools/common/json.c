/* SPDX-License-Identifier: MIT */
/* JSON text: strings and their escapes. */
#include "json.h"

#include <string.h>

/* Bytes of the UTF-8 character at @text, 0 if it is none. */
static size_t utf8_length(const unsigned char *text)
{
	size_t length = *text < 0x80   ? 1
			: *text < 0xc2 ? 0
			: *text < 0xe0 ? 2
			: *text < 0xf0 ? 3
				       : 4;

	if (*text > 0xf4 || (*text == 0xe0 && text[1] < 0xa0) ||
	    (*text == 0xed && text[1] > 0x9f) || (*text == 0xf0 && text[1] < 0x90) ||
	    (*text == 0xf4 && text[1] > 0x8f))
		return 0;
	for (size_t i = 1; i < length; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

void json_print_string(FILE *out, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	fputc('"', out);
	while (*at) {
		size_t length = utf8_length(at);

		if (!length)
			fputc('?', out);
		else if (*at < 0x20 || *at == 0x7f)
			fprintf(out, "\\u%04x", *at);
		else
			fprintf(out, "%s%.*s", strchr("\"\\", *at) ? "\\" : "", (int)length,
				(const char *)at);
		at += length ? length : 1;
	}
	fputc('"', out);
}
