/* SPDX-License-Identifier: MIT */
/* What the checks found: one line each, and a cure for each problem. */
#ifndef DOCTOR_REPORT_H
#define DOCTOR_REPORT_H

#include <stdbool.h>
#include <stdio.h>

enum level { LEVEL_OK, LEVEL_NOTE, LEVEL_PROBLEM };

struct finding {
	enum level level;
	const char *check; /* the name of the check that found it */
	char *text;
	char *cure; /* of a problem: a command */
};

struct report {
	const char *check; /* that is under way */
	struct finding *findings;
	unsigned count, problems;
};

void report_fini(struct report *report);

void report_ok(struct report *report, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void report_note(struct report *report, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Each is followed by its cure. */
void report_problem(struct report *report, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void report_cure(struct report *report, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

void report_print_text(const struct report *report, FILE *out, bool problems_only);
void report_print_json(const struct report *report, FILE *out, const char *version);

#endif
