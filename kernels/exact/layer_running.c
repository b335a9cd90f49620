/* SPDX-License-Identifier: MIT
 *
 * The backend "running": every sum is one running sum of floats, in the order of the specification.
 * It is the plainest way to compute in single precision. Its error is the measure for the errors of
 * the other backends. It is slow, so it is never chosen, but a plan may name it.
 */
#include "kernels/exact/reference.h"

#include <stdlib.h>

#define LAYER_REF vb_k_layer_running
#define LAYER_ARGS vb_k_args
#define REAL float
#define SUM float
#define POW powf
#include "kernels/exact/layer_ref.c" /* NOLINT(bugprone-suspicious-include) */

struct running {
    struct vb_k_shape s;
    enum vb_k_pass pass;
};

static bool running_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    return vb_k_has_pass(s->kind, pass);
}

static vb_status running_prepare(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                                 size_t *scratch_p)
{
    struct running *r = malloc(sizeof(*r));

    if (r == NULL)
        return vb_err_sys("malloc");
    *r = (struct running){*s, pass};
    *state_p = r;
    *scratch_p = 0;
    return VB_OK;
}

static void running_run(void *state, const struct vb_k_args *args)
{
    const struct running *r = state;

    vb_k_layer_running(&r->s, r->pass, args);
}

const struct vb_k_backend vb_k_backend_running = {.name = "running",
                                                  .use = VB_K_ONLY_NAMED,
                                                  .can = running_can,
                                                  .prepare = running_prepare,
                                                  .run = running_run,
                                                  .destroy = free};
