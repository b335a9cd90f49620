/* SPDX-License-Identifier: MIT
 *
 * Reads the variables of torchrun and other launchers of PyTorch jobs. Scripts may set some of them
 * long before, so a rank has both RANK and WORLD_SIZE. torchrun's own store listens at MASTER_PORT,
 * so rank 0 listens at another port computed from it.
 */
#include "launch/launch_priv.h"

#include <string.h>

static const char *or_dash(const char *text)
{
    return text != NULL ? text : "-";
}

/* A user who sets variables by hand may leave these two out; then the ranks may be on any hosts. */
static vb_status read_local(struct launch_found *found)
{
    vb_status st;

    if (vb_launch_variable("LOCAL_WORLD_SIZE") == NULL || vb_launch_variable("LOCAL_RANK") == NULL)
        return VB_OK;
    st = vb_launch_place("LOCAL_WORLD_SIZE", "LOCAL_RANK", found->world, &found->local_ranks,
                         &found->local_rank);
    found->one_host = found->local_ranks == found->world;
    return st;
}

static vb_status read_master(struct launch_found *found)
{
    const char *host = vb_launch_variable("MASTER_ADDR");
    int64_t port = 0;
    vb_status st;

    if (host == NULL || strlen(host) >= sizeof(found->host) || strpbrk(host, " []/") != NULL)
        return vb_err(VB_ERR_USAGE, "MASTER_ADDR %.64s: must be the host of rank 0" LAUNCH_ALONE,
                      host != NULL ? host : "is not set");
    st = vb_launch_number("MASTER_PORT", 1, 65535, &port);
    if (st != VB_OK)
        return st;
    snprintf(found->host, sizeof(found->host), "%s", host);
    found->port = vb_launch_port((uint64_t)port);
    /* Neither the host, which may have several names, nor the number of restarts, which each agent
     * counts by itself, is the same everywhere. */
    snprintf(found->run, sizeof(found->run), "torch %d %.64s", (int)port,
             or_dash(vb_launch_variable("TORCHELASTIC_RUN_ID")));
    snprintf(found->job, sizeof(found->job), "torch %.64s:%d %.64s %.16s", host, (int)port,
             or_dash(vb_launch_variable("TORCHELASTIC_RUN_ID")),
             or_dash(vb_launch_variable("TORCHELASTIC_RESTART_COUNT")));
    return VB_OK;
}

vb_status vb_launch_find_torch(struct launch_found *found)
{
    vb_status st;

    if (vb_launch_variable("RANK") == NULL || vb_launch_variable("WORLD_SIZE") == NULL)
        return VB_OK;
    st = vb_launch_place("WORLD_SIZE", "RANK", VB_WORLD_MAX, &found->world, &found->rank);
    if (st == VB_OK)
        st = read_local(found);
    if (st == VB_OK && found->world > 1)
        st = read_master(found);
    if (st == VB_OK)
        found->by = LAUNCH_BY_TORCHRUN;
    return st;
}
