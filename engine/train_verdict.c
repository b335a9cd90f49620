/* SPDX-License-Identifier: MIT
 *
 * What took the most time, said in a sentence with the figures that show it.
 */
#include "engine/train_priv.h"

const char *vb_resource_str(enum vb_resource resource)
{
    static const char *const names[] = {[VB_COMPUTE] = "compute",
                                        [VB_NETWORK] = "network",
                                        [VB_STRAGGLER] = "straggler",
                                        [VB_INPUT] = "input",
                                        [VB_DISK] = "disk"};

    return names[resource];
}

static double seconds_of(const double phase_s[VB_PHASES], enum vb_resource resource)
{
    switch (resource) {
    case VB_COMPUTE:
        return phase_s[VB_PHASE_FORWARD] + phase_s[VB_PHASE_BACKWARD] + phase_s[VB_PHASE_UPDATE];
    case VB_NETWORK:
        return phase_s[VB_PHASE_COMM];
    case VB_STRAGGLER:
        break;
    case VB_INPUT:
        return phase_s[VB_PHASE_DATA];
    case VB_DISK:
        return phase_s[VB_PHASE_CHECKPOINT];
    }
    return 0;
}

static const struct vb_rank_result *latest(const struct vb_train_result *r)
{
    const struct vb_rank_result *late = &r->per_rank[0];
    int i;

    for (i = 1; i < r->workers; i++)
        if (r->per_rank[i].late_s > late->late_s)
            late = &r->per_rank[i];
    return late;
}

/* Steps that one rank has made, or would have if all were alike. */
static double steps_of_one(const struct vb_train_result *r)
{
    return (double)(r->steps - r->resumed) / (r->apart ? r->workers : 1);
}

static void say_why(const struct vb_train_result *r, double step_ms, struct vb_bottleneck *b)
{
    const struct vb_rank_result *late = latest(r);
    double steps = steps_of_one(r);

    switch (b->resource) {
    case VB_COMPUTE:
        snprintf(b->why, sizeof(b->why), "%.4g ms of a step are spent computing", step_ms);
        break;
    case VB_NETWORK:
        snprintf(b->why, sizeof(b->why),
                 "%.4g ms of a step are transfer over %s that no computing "
                 "hides",
                 step_ms, r->transport);
        break;
    case VB_STRAGGLER:
        snprintf(
            b->why, sizeof(b->why),
            "rank %d (%s) made others wait %lld times in %.0f steps, %.4g ms a step and at most "
            "%.4g ms",
            late->rank, late->host, (long long)late->late_n, steps, 1e3 * late->late_s / steps,
            1e3 * late->late_max_s);
        break;
    case VB_INPUT:
        snprintf(b->why, sizeof(b->why), "%.4g ms of a step are spent waiting for data", step_ms);
        break;
    case VB_DISK:
        snprintf(b->why, sizeof(b->why), "checkpoints held up training for up to %.4g ms",
                 1e3 * r->pause_s);
        break;
    }
}

/* Waiting is time of those who are not late: it counts as it was for the one who waited most, as
 * far as somebody was late. (Asynchronous workers also wait for the end of all.) */
static double waited(const struct vb_train_result *r)
{
    double most = 0, late = 0;
    int i;

    for (i = 0; i < r->workers; i++) {
        late += r->per_rank[i].late_s;
        if (r->per_rank[i].phase_s[VB_PHASE_WAIT] > most)
            most = r->per_rank[i].phase_s[VB_PHASE_WAIT];
    }
    return most < late ? most : late;
}

void vb_train_judge(struct vb_train_result *r)
{
    double all = r->train_s - r->phase_s[VB_PHASE_EVAL], most = 0, s;
    struct vb_bottleneck *b = &r->bottleneck;
    int i;

    if (r->steps <= r->resumed || all <= 0)
        return;
    for (i = VB_COMPUTE; i <= VB_DISK; i++) {
        s = i == VB_STRAGGLER ? waited(r) : seconds_of(r->phase_s, (enum vb_resource)i);
        if (s <= most)
            continue;
        most = s;
        b->resource = (enum vb_resource)i;
    }
    b->share = most < all ? most / all : 1; /* most may be of one rank, all is a mean */
    say_why(r, 1e3 * most / steps_of_one(r), b);
}
