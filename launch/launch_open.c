/* SPDX-License-Identifier: MIT
 *
 * The steps by which a program of the library becomes a rank, in one call.
 */
#include "launch/launch_priv.h"
#include "net/net.h"

static void prove(void *group, int rank)
{
    vb_group_proved(group, rank);
}

static vb_status find_place(struct vb_launch *launch, const struct vb_group_opts *opts)
{
    struct vb_launch_opts others = {.root = opts->root, .timeout_ms = opts->timeout_ms};
    vb_status st = vb_launch_read(opts->timeout_ms, launch);

    if (st == VB_OK && !launch->supervised && opts->world == 1)
        st = vb_launch_find(&others, launch);
    return st;
}

vb_status vb_launch_open(struct vb_launch *launch, const struct vb_group_opts *opts,
                         struct vb_group **group_p)
{
    struct vb_group_opts own = *opts;
    unsigned char *secret = NULL;
    vb_status st = find_place(launch, opts);

    if (st == VB_OK)
        st = vb_launch_take_secret(launch, &secret);
    if (st != VB_OK)
        return st;
    vb_launch_group(launch, &own);
    if (launch->has_secret)
        own.secret = secret;
    launch->taken = secret;
    st = vb_group_open(&own, group_p);
    if (st != VB_OK)
        vb_launch_close(launch, NULL);
    else if (own.agrees)
        vb_launch_on_reaped(launch, prove, *group_p);
    return st;
}

void vb_launch_close(struct vb_launch *launch, struct vb_group *group)
{
    vb_launch_on_reaped(launch, NULL, NULL);
    if (group != NULL)
        vb_group_close(group);
    vb_secret_free(launch->taken);
    launch->taken = NULL;
}
