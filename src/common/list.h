/* SPDX-License-Identifier: MIT */
/* A doubly linked list whose links live in the elements. */
#ifndef IBMSG_COMMON_LIST_H
#define IBMSG_COMMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *head)
{
	head->next = head->prev = head;
}

static inline bool list_is_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_insert_before(struct list *where, struct list *item)
{
	item->prev = where->prev;
	item->next = where;
	where->prev->next = item;
	where->prev = item;
}

static inline void list_add_tail(struct list *head, struct list *item)
{
	list_insert_before(head, item);
}

static inline void list_add_head(struct list *head, struct list *item)
{
	list_insert_before(head->next, item);
}

/* The item is left empty, so that removing it again is harmless. */
static inline void list_del(struct list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	list_init(item);
}

#define list_first(head, type, member) container_of((head)->next, type, member)

#define list_for_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)

/* The element at hand may be removed. */
#define list_for_each_safe(pos, tmp, head)                                                         \
	for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head);                           \
	     (pos) = (tmp), (tmp) = (pos)->next)

#endif
