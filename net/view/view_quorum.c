/* SPDX-License-Identifier: MIT */
#include "net/view/view_priv.h"

/* More than half of the view, or exactly half with its lowest rank: of two disjoint parts, at most
 * one is that. */
static bool is_majority(const struct view *view, const struct view_set *part)
{
    int all = view_count(&view->members), n = view_count(part);

    if (2 * n == all)
        return view_has(part, view_lowest(&view->members)) || BUG(2);
    return 2 * n > all || (BUG(1) && 2 * n + 1 >= all);
}

/* The naive rule for proved deaths: they leave the view before its majority is counted. */
static bool is_majority_of_living(const struct view *view, const struct view_set *part,
                                  const struct view_set *proved)
{
    struct view living = *view;

    living.members = view_minus(&view->members, proved);
    return !view_empty(part) && is_majority(&living, part);
}

/* A part that is no majority may decide only if nobody else of the view can: all others are proved
 * to be gone. It is not enough that so many are proved to be gone that the part is a majority of
 * the rest. One that is gone may have agreed, before, on another view with one of this rest. */
bool vb_view_may_decide(const struct view *view, const struct view_set *part,
                        const struct view_set *proved)
{
    struct view_set others = view_minus(&view->members, part);

    if (BUG(6) && is_majority_of_living(view, part, proved))
        return true;
    return !view_empty(part) && (is_majority(view, part) || view_within(&others, proved));
}

bool vb_view_same(const struct view *a, const struct view *b)
{
    return a->epoch == b->epoch && a->step == b->step && a->holder == b->holder &&
           view_equal(&a->members, &b->members);
}

struct view_set vb_view_alive(const struct view_machine *m)
{
    return view_minus(&m->view.members, &m->suspects);
}
