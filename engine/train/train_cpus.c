/* SPDX-License-Identifier: MIT
 *
 * Whether a process computes the same bits as the ranks of the job that it wants to join. Kernels
 * are compiled for several levels of instructions, and libraries choose their own by the CPU; each
 * of them rounds in another order.
 */
#include "engine/train/trainer.h"

#include <string.h>

void vb_train_cpu_kind(const struct vb_trainer *t, char kind[VB_CPU_KIND])
{
    vb_k_cpu_kind(t->kernels.text, kind);
}

vb_status vb_train_fits_cpu(const struct vb_train_opts *o, const char *of_job, const char *own)
{
    vb_status st;

    if (strcmp(of_job, own) == 0)
        return VB_OK;
    if (o->mixed_cpus) {
        VB_LOG_WARN("this process computes with %s, the job with %s: from now on the bits of the "
                    "result depend on which rank computes which samples",
                    own, of_job);
        return VB_OK;
    }
    st = vb_err(VB_ERR_USAGE,
                "cannot join: this process computes with %s, but the job with %s, so the bits of "
                "the result would depend on which rank computes which samples",
                own, of_job);
    vb_log_fix("verbena train --join ... --mixed-cpus   # joins, and gives up the same bits");
    return st;
}
