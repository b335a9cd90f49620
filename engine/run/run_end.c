/* SPDX-License-Identifier: MIT */
#include "engine/run/run_end.h"

#include <time.h>

#define PAUSE_NS 1000000

vb_status vb_run_tell(const struct vb_trainer *t, struct vb_train_result *result)
{
    result->wall_s = (double)(vb_clock_ns() - t->opened_ns) / 1e9;
    if (result->per_rank != NULL && result->per_rank[0].rank == t->id) /* what it knows by now */
        result->per_rank[0].records_lost = (int64_t)vb_train_record_lost(t);
    if (!result->reports || t->o->hooks.report == NULL)
        return VB_OK;
    return t->o->hooks.report(t->o->hooks.report_arg, result);
}

/* A rank was lost while this one waited for the report. The lead does not recover any more: it says
 * goodbye when it has reported, unless it is the one that was lost. */
static vb_status wait_for_lead(struct vb_trainer *t)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    int lead = vb_group_view_member(t->place.group, 0);
    int timeout_ms = t->o->group.timeout_ms > 0 ? t->o->group.timeout_ms : VB_GROUP_TIMEOUT_MS;
    uint64_t end_ns = vb_clock_ns() + (uint64_t)timeout_ms * 1000000;

    while (!vb_group_gone(t->place.group, lead) && vb_clock_ns() < end_ns) {
        (void)vb_progress(t->place.group);
        nanosleep(&pause, NULL);
    }
    return vb_train_is_over(t) ? VB_OK : VB_ERR_PEER;
}

/* What is recorded has an end before the report, because the lead waits for the last records of
 * others. */
static vb_status report(struct vb_trainer *t, struct vb_train_result *result)
{
    vb_status st, told;

    vb_train_record_done(t);
    vb_train_event_say(t, t->stopped != 0 ? "stopped" : "ended", t->step, "");
    vb_train_record_close(t);
    vb_train_record_result(t, result);
    told = vb_run_tell(t, result);
    st = vb_group_barrier(t->place.group);
    if (t->leads)
        return told;
    return st == VB_ERR_PEER ? wait_for_lead(t) : st;
}

vb_status vb_run_end(struct vb_trainer *t, struct vb_train_result *result)
{
    vb_status st;

    if (vb_train_is_over(t)) {
        result->reports = false;
        result->stopped = t->stopped;
        return VB_OK;
    }
    st = vb_train_collect(t, result);
    if (st == VB_OK)
        st = vb_train_warn(t, result);
    if (st == VB_OK && vb_train_is_elastic(t->o))
        st = report(t, result);
    return st;
}
