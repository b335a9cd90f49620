/* SPDX-License-Identifier: MIT
 *
 * A list of ops that have ended but that poll has not reported yet, in the order of their ends.
 */
#ifndef VB_NET_DONE_LIST_H
#define VB_NET_DONE_LIST_H

#include "net/transport.h"

struct done_list {
    struct vb_op *first, **end;
};

static inline void done_list_init(struct done_list *list)
{
    list->first = NULL;
    list->end = &list->first;
}

static inline bool done_list_empty(const struct done_list *list)
{
    return list->first == NULL;
}

static inline void done_list_add(struct done_list *list, struct vb_op *op, vb_status st)
{
    op->status = st;
    op->next = NULL;
    *list->end = op;
    list->end = &op->next;
}

/* Empties the list and returns its first op. The others follow through next. */
static inline struct vb_op *done_list_take(struct done_list *list)
{
    struct vb_op *ops = list->first;

    done_list_init(list);
    return ops;
}

/* Moves up to max ops into ev, as events VB_RAW_OP_DONE, and returns their number. */
static inline int done_list_report(struct done_list *list, int rank, struct vb_raw_event *ev,
                                   int max)
{
    int n = 0;

    for (; n < max && list->first != NULL; list->first = list->first->next)
        ev[n++] = (struct vb_raw_event){
            .type = VB_RAW_OP_DONE, .rank = rank, .op = list->first, .status = list->first->status};
    if (list->first == NULL)
        list->end = &list->first;
    return n;
}

#endif
