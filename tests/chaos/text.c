/* SPDX-License-Identifier: MIT */
/*
 * The text form of a program: a line for each thing, made of a keyword, its number and fields that
 * differ from 0. Tables of fields serve both printing and parsing.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

const char *const op_names[OP_KINDS] = {"send",      "send_imm", "send_inv", "write",
					"write_imm", "read",     "cmp_swp",  "fetch_add"};
static const char *const wait_names[WAIT_KINDS] = {"poll", "event", "epoll", "lazy", "none"};
const char *const fault_names[FAULT_KINDS] = {"none",    "disconnect", "err",
					      "destroy", "kill",       "stop"};

struct field {
	const char *name;
	size_t offset;
	const char *const *names; /* of its values, if they have any */
	int num_names;
};

#define FIELD(type, member)                                                                        \
	{                                                                                          \
		.name = #member, .offset = offsetof(struct type, member)                           \
	}
#define NAMED(type, member, list)                                                                  \
	{                                                                                          \
		.name = #member, .offset = offsetof(struct type, member), .names = (list),         \
		.num_names = sizeof(list) / sizeof(*(list))                                        \
	}
#define LAST                                                                                       \
	{                                                                                          \
		.name = NULL                                                                       \
	}

static const struct field op_fields[] = {
	NAMED(op, kind, op_names), FIELD(op, len),   FIELD(op, sge),
	FIELD(op, offset),         FIELD(op, word),  FIELD(op, operand),
	FIELD(op, signaled),       FIELD(op, fence), FIELD(op, solicited),
	FIELD(op, inlined),        FIELD(op, chain), FIELD(op, pause),
	FIELD(op, await),          FIELD(op, drain), LAST};
static const struct field side_fields[] = {
	FIELD(side, end),      FIELD(side, thread),     FIELD(side, send_cq),  FIELD(side, recv_cq),
	FIELD(side, srq),      FIELD(side, sq_depth),   FIELD(side, rq_depth), FIELD(side, max_sge),
	FIELD(side, sig_all),  FIELD(side, modern),     FIELD(side, late),     FIELD(side, batch),
	FIELD(side, recv_sge), FIELD(side, recv_slack), FIELD(side, spare),    LAST};
static const struct field qp_fields[] = {FIELD(qp, ord), FIELD(qp, ird), FIELD(qp, number), LAST};
static const struct field cq_fields[] = {FIELD(cq, end), FIELD(cq, thread), FIELD(cq, extra),
					 FIELD(cq, solicited), LAST};
static const struct field srq_fields[] = {FIELD(srq, end),  FIELD(srq, depth),    FIELD(srq, batch),
					  FIELD(srq, late), FIELD(srq, recv_sge), LAST};
static const struct field thread_fields[] = {NAMED(thread, wait, wait_names),
					     FIELD(thread, arm_early), FIELD(thread, batch), LAST};
static const struct field end_fields[] = {FIELD(end, tidy), LAST};
static const struct field fault_fields[] = {NAMED(fault, kind, fault_names),
					    FIELD(fault, end),
					    FIELD(fault, qp),
					    FIELD(fault, after),
					    FIELD(fault, duration),
					    LAST};

static int *field_of(void *object, const struct field *field)
{
	return (int *)((char *)object + field->offset);
}

static void print_fields(const void *object, const struct field *field, FILE *file)
{
	for (; field->name; field++) {
		int value = *(const int *)((const char *)object + field->offset);

		if (field->names)
			fprintf(file, " %s=%s", field->name, field->names[value]);
		else if (value)
			fprintf(file, " %s=%d", field->name, value);
	}
	fputc('\n', file);
}

static void print_side(const struct side *side, int q, int s, FILE *file)
{
	fprintf(file, "side %d.%d", q, s);
	print_fields(side, side_fields, file);
	for (int i = 0; i < side->num_ops; i++) {
		fprintf(file, "op %d.%d", q, s);
		print_fields(&side->ops[i], op_fields, file);
	}
}

void text_print(const struct program *program, FILE *file)
{
	fprintf(file, "program %llu\n", (unsigned long long)program->seed);
	for (int e = 0; e < program->num_ends; e++) {
		fprintf(file, "end %d", e);
		print_fields(&program->ends[e], end_fields, file);
		for (int t = 0; t < program->ends[e].num_threads; t++) {
			fprintf(file, "thread %d.%d", e, t);
			print_fields(&program->ends[e].threads[t], thread_fields, file);
		}
	}
	for (int c = 0; c < program->num_cqs; c++) {
		fprintf(file, "cq %d", c);
		print_fields(&program->cqs[c], cq_fields, file);
	}
	for (int i = 0; i < program->num_srqs; i++) {
		fprintf(file, "srq %d", i);
		print_fields(&program->srqs[i], srq_fields, file);
	}
	for (int q = 0; q < program->num_qps; q++) {
		fprintf(file, "qp %d", q);
		print_fields(&program->qps[q], qp_fields, file);
		for (int s = 0; s < 2; s++)
			print_side(&program->qps[q].sides[s], q, s, file);
	}
	if (program->fault.kind != FAULT_NONE) {
		fputs("fault", file);
		print_fields(&program->fault, fault_fields, file);
	}
}

/* ---- parsing ---- */

static bool parse_value(const struct field *field, const char *text, int *value)
{
	char *rest;

	for (int i = 0; i < field->num_names; i++)
		if (!strcmp(field->names[i], text)) {
			*value = i;
			return true;
		}
	if (field->names)
		return false;
	*value = (int)strtol(text, &rest, 10);
	return rest != text && !*rest;
}

/* The rest of a line: name=value ... */
static bool parse_fields(void *object, const struct field *fields, char **rest)
{
	char *word;

	while ((word = strtok_r(NULL, " \t\n", rest))) {
		char *value = strchr(word, '=');
		const struct field *field = fields;

		if (!value)
			return false;
		*value++ = '\0';
		while (field->name && strcmp(field->name, word) != 0)
			field++;
		if (!field->name || !parse_value(field, value, field_of(object, field)))
			return false;
	}
	return true;
}

/* "3" or "3.1", each below its limit. */
static bool parse_number(char **rest, int *first, int max_first, int *second, int max_second)
{
	char *word = strtok_r(NULL, " \t\n", rest);
	int length = 0;

	*first = *second = 0;
	if (!word)
		return false;
	if (max_second) {
		if (sscanf(word, "%d.%d%n", first, second, &length) != 2)
			return false;
	} else if (sscanf(word, "%d%n", first, &length) != 1) {
		return false;
	}
	return !word[length] && *first >= 0 && *first < max_first && *second >= 0 &&
	       *second <= max_second;
}

static bool parse_op(struct program *program, char **rest)
{
	struct side *side;
	int q, s;

	if (!parse_number(rest, &q, MAX_QPS, &s, 1))
		return false;
	side = &program->qps[q].sides[s];
	return side->num_ops < MAX_OPS &&
	       parse_fields(&side->ops[side->num_ops++], op_fields, rest);
}

static void count(int *number, int index)
{
	if (*number <= index)
		*number = index + 1;
}

static bool parse_line(struct program *program, char *line)
{
	char *rest, *word = strtok_r(line, " \t\n", &rest);
	int i, j;

	if (!word || *word == '#')
		return true;
	if (!strcmp(word, "program")) {
		word = strtok_r(NULL, " \t\n", &rest);
		program->seed = word ? strtoull(word, NULL, 10) : 0;
		return word != NULL;
	}
	if (!strcmp(word, "op"))
		return parse_op(program, &rest);
	if (!strcmp(word, "fault"))
		return parse_fields(&program->fault, fault_fields, &rest);
	if (!strcmp(word, "thread")) {
		if (!parse_number(&rest, &i, MAX_ENDS, &j, MAX_THREADS - 1))
			return false;
		count(&program->ends[i].num_threads, j);
		return parse_fields(&program->ends[i].threads[j], thread_fields, &rest);
	}
	if (!strcmp(word, "side"))
		return parse_number(&rest, &i, MAX_QPS, &j, 1) &&
		       parse_fields(&program->qps[i].sides[j], side_fields, &rest);
	if (!strcmp(word, "end") && parse_number(&rest, &i, MAX_ENDS, &j, 0)) {
		count(&program->num_ends, i);
		return parse_fields(&program->ends[i], end_fields, &rest);
	}
	if (!strcmp(word, "cq") && parse_number(&rest, &i, MAX_CQS, &j, 0)) {
		count(&program->num_cqs, i);
		return parse_fields(&program->cqs[i], cq_fields, &rest);
	}
	if (!strcmp(word, "srq") && parse_number(&rest, &i, MAX_SRQS, &j, 0)) {
		count(&program->num_srqs, i);
		return parse_fields(&program->srqs[i], srq_fields, &rest);
	}
	if (!strcmp(word, "qp") && parse_number(&rest, &i, MAX_QPS, &j, 0)) {
		count(&program->num_qps, i);
		return parse_fields(&program->qps[i], qp_fields, &rest);
	}
	return false;
}

int text_parse(struct program *program, FILE *file)
{
	char *line = NULL;
	size_t size = 0;
	int number = 0;
	bool good = true;

	*program = (struct program){.seed = 0};
	while (good && getline(&line, &size, file) > 0) {
		number++;
		good = parse_line(program, line);
	}
	free(line);
	return good ? 0 : number;
}
