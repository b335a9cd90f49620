/* SPDX-License-Identifier: MIT
 *
 * What is told of a recovery, and what a rank takes over that speaks for the job from now on.
 */
#include "engine/train/trainer.h"

void vb_train_tell_recovery(struct vb_trainer *t, const struct vb_recovery *r)
{
    int i;

    if (!t->leads)
        return;
    for (i = 0; i < r->n && i < VB_RECOVERY_LOST; i++)
        VB_LOG_WARN("rank %d (host %s) was lost in step %lld: %s", r->lost[i].rank, r->lost[i].host,
                    (long long)r->again, r->lost[i].why);
    VB_LOG_WARN("%d rank%s on after %.3f s", r->left, r->left == 1 ? " goes" : "s go",
                r->recovered_s);
}

void vb_train_record_lead(struct vb_trainer *t)
{
    (void)t;
}
