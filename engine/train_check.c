/* SPDX-License-Identifier: MIT
 *
 * Whether a job can be run as asked for: what one rank can tell, and what only all can.
 */
#include "engine/train_priv.h"

#include <stdlib.h>
#include <string.h>

/* What decides the result, and so must be the same on all ranks. */
enum { MODE, TRAIN, TEST, BATCH, STEPS, SEED, RATE, N_SETTINGS };

static const char *const names[N_SETTINGS] = {
    [MODE] = "mode",          [TRAIN] = "data to train on", [TEST] = "data to test with",
    [BATCH] = "global batch", [STEPS] = "number of steps",  [SEED] = "seed",
    [RATE] = "learning rate",
};

static void fill(const struct vb_train_opts *o, uint64_t settings[N_SETTINGS])
{
    settings[MODE] = (uint64_t)o->mode;
    settings[TRAIN] = (uint64_t)o->data.n_train;
    settings[TEST] = (uint64_t)o->data.n_test;
    settings[BATCH] = (uint64_t)o->global_batch;
    settings[STEPS] = (uint64_t)o->steps;
    settings[SEED] = o->seed;
    memcpy(&settings[RATE], &o->lr, sizeof(settings[RATE])); /* to the last bit */
}

static vb_status compare(uint64_t (*all)[N_SETTINGS], int n)
{
    int r, s;

    for (r = 1; r < n; r++)
        for (s = 0; s < N_SETTINGS; s++)
            if (all[r][s] != all[0][s])
                return vb_err(VB_ERR_USAGE, "rank %d was started with another %s than rank 0", r,
                              names[s]);
    return VB_OK;
}

vb_status vb_train_agree(const struct vb_train_opts *o, struct vb_group *group)
{
    uint64_t own[N_SETTINGS], (*all)[N_SETTINGS];
    vb_status st;

    all = calloc((size_t)o->group.world, sizeof(*all));
    if (all == NULL)
        return vb_err_sys("calloc");
    fill(o, own);
    st = vb_group_gather(group, own, sizeof(own), all);
    if (st == VB_OK)
        st = compare(all, o->group.world);
    free(all);
    return st;
}

vb_status vb_train_check(const struct vb_train_opts *o)
{
    if (o->group.world < 1 || o->group.rank < 0 || o->group.rank >= o->group.world)
        return vb_err(VB_ERR_USAGE, "rank %d of %d: there is no such rank", o->group.rank,
                      o->group.world);
    if (o->mode == VB_MODE_SINGLE && o->group.world != 1)
        return vb_err(VB_ERR_USAGE, "mode single has one rank, not %d", o->group.world);
    if (o->global_batch < o->group.world || o->global_batch > o->data.n_train)
        return vb_err(VB_ERR_USAGE, "a global batch of %d: must be from %d to %d", o->global_batch,
                      o->group.world, o->data.n_train);
    return VB_OK;
}
