/* SPDX-License-Identifier: MIT */
#include "counters.h"

#include <errno.h>

#include "../../common/uncancel.h"
#include "../verbs/verbs.h"

__attribute__((visibility("default"))) int
softrdma_raw_counters(struct ibv_qp *qp, struct softrdma_raw_counters *counters)
{
	if (!is_soft_context(qp->context))
		return EOPNOTSUPP;
	UNCANCELLABLE_CALL;
	return soft_raw_counters(qp, &counters->received, &counters->dropped, &counters->no_buffer);
}
