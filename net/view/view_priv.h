/* SPDX-License-Identifier: MIT */
#ifndef VB_NET_VIEW_VIEW_PRIV_H
#define VB_NET_VIEW_VIEW_PRIV_H

#include "net/view/view.h"

/* The explorer of tests/net/view builds this room once more, with mistakes that a variable turns
 * on, and must find each of them. In the engine this is always false. */
#ifdef VB_VIEW_BUGS
extern int VB_VIEW_BUGS;
#define BUG(n) (VB_VIEW_BUGS == (n))
#else
#define BUG(n) false
#endif

#define TERM_MAX (UINT64_MAX / 4) /* a term or step above it is no honest number */

/* Whether `part` of a view may decide for all of it (docs/views.md, "Who may decide"). */
bool vb_view_may_decide(const struct view *view, const struct view_set *part,
                        const struct view_set *proved);

/* Whether two views are the same. The term may differ: a proposal can be made again. */
bool vb_view_same(const struct view *a, const struct view *b);

/* Members of the installed view that are not suspected. */
struct view_set vb_view_alive(const struct view_machine *m);

/* view.c */
void vb_view_send(struct view_machine *m, enum view_kind kind, const struct view_set *to,
                  struct view_out *out);
void vb_view_stop(struct view_machine *m, struct view_out *out);
void vb_view_install(struct view_machine *m, const struct view *next, struct view_out *out);

/* view_coordinate.c: what the coordinator does now, if this rank is it. */
void vb_view_begin(struct view_machine *m, struct view_out *out);
void vb_view_promised(struct view_machine *m, int from, const struct view_message *message);
bool vb_view_progress(struct view_machine *m, struct view_out *out);
void vb_view_repeat(struct view_machine *m, struct view_out *out);

#endif
