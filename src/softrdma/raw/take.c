/* SPDX-License-Identifier: MIT */
#include "take.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../common/log.h"
#include "bpf.h"

bool take_is_possible(const struct raw_interface *iface)
{
	/* Of a version of IP that there is not: it takes nothing. */
	const struct raw_rule nothing = {.value.ip_version = 0xff, .mask.ip_version = 0xff};
	int program = bpf_load_filter(FILTER_TCX, &nothing, 1, -1), link = -1;

	if (program >= 0) {
		link = bpf_link(program, iface->index, FILTER_TCX, 0);
		close(program);
	}
	if (link >= 0)
		close(link);
	return link >= 0;
}

void take_init(struct raw_take *take)
{
	take->link = -1;
}

void take_fini(struct raw_take *take)
{
	if (take->link >= 0)
		close(take->link);
	take->link = -1;
}

static void explain(const struct raw_interface *iface, int error)
{
	static atomic_bool said;

	if (atomic_exchange(&said, true))
		return;
	if (error == -EPERM)
		log_warn("soft_%s: flow rules deliver copies, the kernel sees their packets too: "
			 "taking them away needs CAP_BPF and CAP_NET_ADMIN",
			 iface->name);
	else
		log_warn("soft_%s: flow rules deliver copies, the kernel sees their packets too: "
			 "it has no TCX (Linux 6.6 and newer): %s",
			 iface->name, strerror(-error));
}

static int drop(struct raw_take *take, const struct raw_interface *iface,
		const struct raw_rule *rules, unsigned num)
{
	int program = bpf_load_filter(FILTER_TCX, rules, num, -1);
	int result;

	if (program < 0)
		return program;
	if (take->link >= 0) {
		result = bpf_relink(take->link, program);
	} else {
		result = bpf_link(program, iface->index, FILTER_TCX, 0);
		if (result >= 0)
			take->link = result;
	}
	close(program);
	return result < 0 ? result : 0;
}

void take_set_rules(struct raw_take *take, const struct raw_interface *iface,
		    const struct raw_rules *rules)
{
	struct raw_rule *taken = calloc(rules->num + 1, sizeof(*taken));
	unsigned num = 0;
	int error;

	for (unsigned i = 0; taken && i < rules->num; i++)
		if (!rules->rules[i].copies)
			taken[num++] = rules->rules[i];
	error = !taken ? -ENOMEM : num ? drop(take, iface, taken, num) : 0;
	free(taken);
	if (error)
		explain(iface, error);
	/* Rules of old must not drop what nobody receives any more. */
	if (error || !num)
		take_fini(take);
}
