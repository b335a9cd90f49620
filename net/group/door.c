/* SPDX-License-Identifier: MIT */
#include "net/group/group_door.h"

vb_status vb_group_let_in(struct vb_group *g, const void *job, size_t len_bytes, int most)
{
    (void)g, (void)job, (void)len_bytes, (void)most;
    return VB_OK;
}

int vb_group_callers(const struct vb_group *g)
{
    (void)g;
    return 0;
}

vb_status vb_group_invite(struct vb_group *g, const struct vb_invitation *inv)
{
    (void)g, (void)inv;
    return VB_AGAIN;
}

vb_status vb_group_turn_away(struct vb_group *g, const char *why)
{
    (void)g, (void)why;
    return VB_AGAIN;
}

void vb_group_doors(struct vb_group *g, char out[VB_DOORS_TEXT])
{
    (void)g;
    out[0] = '\0';
}

vb_status vb_group_call(const struct vb_group_opts *opts, struct vb_caller **caller_p)
{
    (void)opts, (void)caller_p;
    return VB_ERR_UNSUPPORTED;
}

bool vb_caller_has_slot(const struct vb_caller *caller)
{
    (void)caller;
    return false;
}

vb_status vb_group_join_called(const struct vb_group_opts *opts, struct vb_caller *caller,
                               struct vb_group **group_p)
{
    (void)opts, (void)caller, (void)group_p;
    return VB_ERR_UNSUPPORTED;
}

const void *vb_caller_job(const struct vb_caller *caller, size_t *len_p)
{
    (void)caller;
    *len_p = 0;
    return NULL;
}

vb_status vb_caller_wait(struct vb_caller *caller, int wait_ms, struct vb_invitation *inv_p)
{
    (void)caller, (void)wait_ms, (void)inv_p;
    return VB_ERR_UNSUPPORTED;
}

void vb_caller_close(struct vb_caller *caller)
{
    (void)caller;
}

vb_status vb_group_ask(const struct vb_group_opts *opts, struct vb_invitation *inv_p)
{
    (void)opts, (void)inv_p;
    return VB_ERR_UNSUPPORTED;
}
