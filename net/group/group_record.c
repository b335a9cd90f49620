/* SPDX-License-Identifier: MIT
 *
 * Records and clocks of a group, which are the business of the control plane. A rank that is alone
 * has a control plane too, without a peer.
 */
#include "net/group/group_priv.h"

void vb_group_offer_folder(struct vb_group *g, const unsigned char token[VB_FOLDER_TOKEN])
{
    vb_control_offer_folder(g->control, token);
}

bool vb_group_folder(struct vb_group *g, unsigned char token_p[VB_FOLDER_TOKEN])
{
    return vb_control_take_folder(g->control, token_p);
}

void vb_group_sees_folder(struct vb_group *g, bool sees)
{
    vb_control_sees_folder(g->control, sees);
}

void vb_group_record_rate(struct vb_group *g, uint64_t bytes_per_s)
{
    vb_control_record_rate(g->control, bytes_per_s);
}

vb_status vb_group_send_record(struct vb_group *g, const char *file, bool first, const void *bytes,
                               size_t len_bytes)
{
    return vb_control_send_record(g->control, file, first, bytes, len_bytes);
}

vb_status vb_group_end_records(struct vb_group *g, uint64_t lost_bytes, uint64_t lost_rows,
                               uint64_t deadline)
{
    return vb_control_end_records(g->control, lost_bytes, lost_rows, deadline);
}

void vb_group_on_record(struct vb_group *g, vb_record_fn fn, void *arg)
{
    vb_control_on_record(g->control, fn, arg);
}

vb_status vb_group_wait_records(struct vb_group *g, uint64_t deadline)
{
    return vb_control_wait_records(g->control, deadline);
}

struct vb_record_stats vb_group_record_stats(struct vb_group *g)
{
    return vb_control_record_stats(g->control);
}

vb_status vb_group_compare_clocks(struct vb_group *g)
{
    return vb_control_compare_clocks(g->control);
}

void vb_group_compare_last(struct vb_group *g, uint64_t deadline)
{
    vb_control_compare_last(g->control, deadline);
}

int vb_group_exchanges(struct vb_group *g, int rank,
                       struct vb_clock_exchange out[VB_CLOCK_EXCHANGES])
{
    return vb_control_exchanges(g->control, rank, out);
}
