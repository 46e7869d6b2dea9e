/* SPDX-License-Identifier: MIT */
/* What the checks found, kept and printed. */
#include "report.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>

#include "../common/json.h"

static const char *const level_names[] = {"ok", "note", "problem"};

static void *must_have(void *memory)
{
	if (memory)
		return memory;
	fputs("ibmsg-doctor: out of memory\n", stderr);
	exit(126);
}

__attribute__((format(printf, 1, 0))) static char *format_text(const char *format,
							       va_list arguments)
{
	char *text;

	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	return must_have(text);
}

__attribute__((format(printf, 3, 0))) static void add(struct report *report, enum level level,
						      const char *format, va_list arguments)
{
	struct finding *findings =
		realloc(report->findings, (report->count + 1) * sizeof(*report->findings));

	report->findings = must_have(findings);
	report->findings[report->count++] = (struct finding){
		.level = level, .check = report->check, .text = format_text(format, arguments)};
}

void report_fini(struct report *report)
{
	for (unsigned i = 0; i < report->count; i++) {
		free(report->findings[i].text);
		free(report->findings[i].cure);
	}
	free(report->findings);
}

void report_ok(struct report *report, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add(report, LEVEL_OK, format, arguments);
	va_end(arguments);
}

void report_note(struct report *report, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add(report, LEVEL_NOTE, format, arguments);
	va_end(arguments);
}

void report_problem(struct report *report, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add(report, LEVEL_PROBLEM, format, arguments);
	va_end(arguments);
	report->problems++;
}

void report_cure(struct report *report, const char *format, ...)
{
	struct finding *last = report->findings + report->count - 1;
	va_list arguments;

	assert(report->count && last->level == LEVEL_PROBLEM && !last->cure);
	va_start(arguments, format);
	last->cure = format_text(format, arguments);
	va_end(arguments);
}

void report_print_text(const struct report *report, FILE *out, bool problems_only)
{
	for (unsigned i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		if (problems_only && finding->level != LEVEL_PROBLEM)
			continue;
		fprintf(out, "%-8s %-10s %s\n", level_names[finding->level], finding->check,
			finding->text);
		if (finding->cure)
			fprintf(out, "%-8s %-10s %s\n", "", "  cure:", finding->cure);
	}
	if (report->problems)
		fprintf(out, "%u problem%s\n", report->problems, report->problems > 1 ? "s" : "");
	else
		fprintf(out, "no problem\n");
}

static void print_member(FILE *out, const char *name, const char *value)
{
	fprintf(out, "\"%s\": ", name);
	json_print_string(out, value);
}

void report_print_json(const struct report *report, FILE *out, const char *version)
{
	fprintf(out, "{\n  ");
	print_member(out, "version", version);
	fprintf(out, ",\n  \"problems\": %u,\n  \"findings\": [", report->problems);
	for (unsigned i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		fprintf(out, "%s\n    {", i ? "," : "");
		print_member(out, "level", level_names[finding->level]);
		fprintf(out, ", ");
		print_member(out, "check", finding->check);
		fprintf(out, ", ");
		print_member(out, "text", finding->text);
		if (finding->cure) {
			fprintf(out, ", ");
			print_member(out, "cure", finding->cure);
		}
		fputc('}', out);
	}
	fprintf(out, "\n  ]\n}\n");
}
