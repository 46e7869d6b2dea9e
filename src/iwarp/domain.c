/* SPDX-License-Identifier: MIT */
/* Protection domains: each stays until the last context and the last region in it are gone. */
#include <stdlib.h>

#include "../common/fork.h"
#include "internal.h"

/* Guards the list and the references. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list domains = {&domains, &domains};

FORK_MUTEX(0, &lock, NULL);

static struct domain *find(const struct ibv_pd *pd)
{
	struct list *pos;

	list_for_each (pos, &domains) {
		struct domain *domain = container_of(pos, struct domain, link);

		if (domain->pd == pd)
			return domain;
	}
	return NULL;
}

/* With the list locked. @pd NULL: one of our own. */
static int domain_new(struct ibv_context *verbs, struct ibv_pd *pd, struct domain **out)
{
	struct domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return error_of(ENOMEM, "a protection domain");
	domain->is_ours = !pd;
	domain->pd = pd ? pd : ibv_alloc_pd(verbs);
	if (!domain->pd) {
		int error = errno;

		free(domain);
		return error_of(error, "cannot allocate a protection domain");
	}
	pthread_mutex_init(&domain->sink_lock, NULL);
	list_add_tail(&domains, &domain->link);
	*out = domain;
	return 0;
}

int domain_get(struct ibv_context *verbs, struct ibv_pd *shared, struct domain **out)
{
	struct domain *domain;
	int error = 0;

	if (shared && shared->context != verbs)
		return error_say(EXDEV, "the shared protection domain is of another device, not %s",
				 ibv_get_device_name(verbs->device));
	pthread_mutex_lock(&lock);
	domain = shared ? find(shared) : NULL;
	if (!domain)
		error = domain_new(verbs, shared, &domain);
	if (!error) {
		domain->refs++;
		*out = domain;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

void domain_hold(struct domain *domain)
{
	pthread_mutex_lock(&lock);
	domain->refs++;
	pthread_mutex_unlock(&lock);
}

void domain_put(struct domain *domain)
{
	bool is_last;

	pthread_mutex_lock(&lock);
	is_last = !--domain->refs;
	if (is_last)
		list_del(&domain->link);
	pthread_mutex_unlock(&lock);
	if (!is_last)
		return;
	if (domain->is_ours)
		ibv_dealloc_pd(domain->pd);
	pthread_mutex_destroy(&domain->sink_lock);
	free(domain);
}
