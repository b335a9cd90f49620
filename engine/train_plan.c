/* SPDX-License-Identifier: MIT
 *
 * The plan of rank 0, told to all ranks: its length first, then as many small records as it takes.
 */
#include "engine/train_priv.h"

#include <stdlib.h>
#include <string.h>

static vb_status tell_records(struct vb_group *group, char *text, size_t len)
{
    vb_status st = VB_OK;
    size_t at, n;

    for (at = 0; at < len && st == VB_OK; at += n) {
        n = len - at < VB_RECORD_MAX ? len - at : VB_RECORD_MAX;
        st = vb_group_broadcast(group, 0, text + at, n);
    }
    return st;
}

vb_status vb_train_tell_plan(struct vb_group *group, const char *text, char **told_p)
{
    uint64_t len = text != NULL ? strlen(text) : 0;
    vb_status st = vb_group_broadcast(group, 0, &len, sizeof(len));
    char *told;

    if (st != VB_OK)
        return st;
    if (len >= VB_PLAN_BYTES_MAX) /* on all ranks */
        return vb_err(VB_ERR_USAGE, "the plan of rank 0 has %llu bytes: must be less than %d",
                      (unsigned long long)len, VB_PLAN_BYTES_MAX);
    told = calloc(1, len + 1);
    if (told == NULL)
        return vb_err_sys("calloc");
    if (vb_group_rank(group) == 0 && text != NULL)
        memcpy(told, text, len);
    st = tell_records(group, told, len);
    if (st != VB_OK) {
        free(told);
        return st;
    }
    *told_p = told;
    return VB_OK;
}
