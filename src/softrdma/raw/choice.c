/* SPDX-License-Identifier: MIT */
/* Which back end receives: the best that the interface and the process's rights allow. */
#include <errno.h>
#include <string.h>

#include "../../common/log.h"
#include "../settings.h"
#include "internal.h"
#include "take.h"

#define NUM_BACK_ENDS 3

typedef const struct raw_rx_ops *const ranking[NUM_BACK_ENDS];

/* The best first. */
static ranking for_hardware = {&raw_rx_xdp, &raw_rx_ring, &raw_rx_socket};
/*
 * Frames that are the kernel's buffers from the start are copied once more for XDP, which wants
 * more room ahead of them: a ring has them sooner.
 */
static ranking for_virtual = {&raw_rx_ring, &raw_rx_xdp, &raw_rx_socket};

/* A ring that could not take frames away would only copy them. */
static const struct raw_rx_ops *const *rank(const struct raw_interface *iface)
{
	return iface->is_virtual && take_is_possible(iface) ? for_virtual : for_hardware;
}

bool raw_suits_xdp(const struct raw_interface *iface, const struct raw_rules *rules)
{
	bool tags = false;

	for (unsigned i = 0; i < rules->num; i++) {
		if (rules->rules[i].copies)
			return false;
		tags |= rules->rules[i].mask.is_tagged != 0;
	}
	return !tags || !iface->strips_tags;
}

/* The back end that the user asks for; NULL: the best. */
static const struct raw_rx_ops *wish_of_user(void)
{
	switch (settings()->raw) {
	case SETTINGS_RAW_XDP:
		return &raw_rx_xdp;
	case SETTINGS_RAW_RING:
		return &raw_rx_ring;
	case SETTINGS_RAW_SOCKET:
		return &raw_rx_socket;
	default:
		return NULL;
	}
}

int raw_choose_rx(struct raw_qp *raw, const struct raw_rules *rules, bool alone, struct raw_rx **rx)
{
	bool may_use_xdp = alone && raw_suits_xdp(&raw->iface, rules);
	const struct raw_rx_ops *wish = wish_of_user();
	const struct raw_rx_ops *const *back_ends;
	int error = -EINVAL;

	/* The order means nothing to a wish, and costs some milliseconds. */
	back_ends = wish ? for_hardware : rank(&raw->iface);
	/* What XDP cannot do by its nature does not fail for the wish. */
	if (wish == &raw_rx_xdp && !may_use_xdp)
		wish = &raw_rx_ring;
	for (unsigned i = 0; i < NUM_BACK_ENDS; i++) {
		const struct raw_rx_ops *ops = back_ends[i];

		if (wish ? ops != wish : ops == &raw_rx_xdp && !may_use_xdp)
			continue;
		error = ops->open(rx, raw, rules);
		if (!error)
			return 0;
		if (wish)
			log_error("soft_%s: cannot receive by %s: %s", raw->iface.name, ops->name,
				  strerror(-error));
		else
			log_info("soft_%s: cannot receive by %s: %s", raw->iface.name, ops->name,
				 strerror(-error));
	}
	return error;
}
