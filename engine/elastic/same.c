/* SPDX-License-Identifier: MIT
 *
 * Whether a process may join a job: it runs the same program, and computes the same bits. Kernels
 * are compiled for several levels of instructions, and libraries choose their own by the CPU; each
 * of them rounds in another order.
 */
#include "engine/train/trainer.h"

#include <inttypes.h>
#include <string.h>

vb_status vb_train_fits_program(uint64_t of_job)
{
    uint64_t own;
    vb_status st = vb_process_program(&own);

    if (st != VB_OK || own == of_job)
        return st;
    return vb_err(VB_ERR_USAGE,
                  "cannot join: the job runs a different program (its hash is %016" PRIx64
                  ", that of this one %016" PRIx64 ")",
                  of_job, own);
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
