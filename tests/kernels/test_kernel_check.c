/* SPDX-License-Identifier: MIT
 *
 * Tests the check of backends against the reference, and its use in bench kernels. Correct backends
 * must pass on all shapes. A backend with one wrong or missing result must be found and named.
 *
 * Covers: kernels/choice/choice_check.c kernels/choice/tensors.c
 */
#include "bench/bench.h"
#include "kernels/blas/blas.h"
#include "kernels/choice/choice_priv.h"
#include "kernels/own/own.h"
#include "tests/support/fixtures/layers_fixture.h"

#include <math.h>

static void correct_backends_pass(void **state)
{
    struct vb_k_checked checked[VB_K_CANDIDATES_MAX];
    struct vb_k_shape s;
    char why[VB_OPTS_WHY];
    double most = 0;
    int pass, i, n;
    size_t k;

    (void)state;
    for (k = 0; k < VB_COUNT(t_shapes); k++) {
        s = t_shapes[k];
        assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
        for (pass = 0; pass < VB_K_PASSES; pass++) {
            if (!vb_k_has_pass(s.kind, pass))
                continue;
            assert_int_equal(vb_k_check_all(&s, pass, true, checked, &n), VB_OK);
            assert_true(n >= 1);
            for (i = 0; i < n; i++) {
                if (!(checked[i].off < VB_BENCH_OFF_MAX / 3))
                    fail_msg("shape %zu, pass %s, backend %s: the error %g is too large", k,
                             vb_k_pass_str(pass), checked[i].backend, checked[i].off);
                most = checked[i].off > most ? checked[i].off : most;
            }
            assert_int_equal(vb_bench_kernels_check("any", pass, checked, n), VB_OK);
        }
    }
    assert_true(most > 0); /* at least one backend must have a rounding error */
}

/* The fault of the backend "faulty", which is the backend gemm with one wrong result. */
enum fault { FAULT_ONE, FAULT_LEFT_OUT, FAULT_BIAS };

static struct {
    struct vb_k_shape s;
    enum vb_k_pass pass;
    enum fault fault;
} now;

static vb_status faulty_prepare(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                                size_t *scratch_p)
{
    now.s = *shape;
    now.pass = pass;
    return vb_k_backend_gemm.prepare(shape, pass, state_p, scratch_p);
}

static void faulty_run(void *state, const struct vb_k_args *args)
{
    float *out[VB_K_PASSES] = {args->y, args->dx, args->dw};
    size_t n[VB_K_PASSES] = {vb_k_shape_outputs(&now.s), vb_k_shape_inputs(&now.s),
                             vb_k_shape_weights(&now.s)};
    float *last = &out[now.pass][n[now.pass] - 1], before = *last;

    vb_k_backend_gemm.run(state, args);
    if (now.fault == FAULT_ONE)
        *last += 0.05f;
    else if (now.fault == FAULT_LEFT_OUT)
        *last = before;
    else
        args->db[0] += 0.5f;
}

static void faults_are_found(void **state)
{
    struct vb_k_backend faulty = vb_k_backend_gemm;
    const struct vb_k_backend *backends[] = {&vb_k_backend_blas, &faulty};
    struct vb_k_shape s = T_CONV(32, 3, 9, 8, 5, 3, 3, 1, 1, false);
    struct vb_k_checked checked[VB_K_CANDIDATES_MAX];
    char why[VB_OPTS_WHY], text[1024], want[128];
    struct t_stderr t;
    int pass, n;

    (void)state;
    faulty.name = "faulty";
    faulty.prepare = faulty_prepare;
    faulty.run = faulty_run;
    assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
    for (now.fault = FAULT_ONE; now.fault <= FAULT_BIAS; now.fault++) {
        for (pass = 0; pass < VB_K_PASSES; pass++) {
            if (now.fault == FAULT_BIAS && pass != VB_K_BACKWARD_WEIGHTS)
                continue;
            assert_int_equal(vb_k_check_these(backends, 2, &s, pass, checked, &n), VB_OK);
            assert_int_equal(n, 2);
            assert_int_equal(now.s.n, 4); /* the check must use a smaller batch */
            assert_true(checked[0].off < VB_BENCH_OFF_MAX / 3);
            t_stderr_catch(&t);
            assert_int_equal(vb_bench_kernels_check("conv7", pass, checked, n), VB_ERR_UNSUPPORTED);
            t_stderr_release(&t, text, sizeof(text));
            snprintf(want, sizeof(want),
                     "layer conv7, pass %s: backend faulty computes wrong results",
                     vb_k_pass_str(pass));
            assert_non_null(strstr(text, want));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(correct_backends_pass),
        cmocka_unit_test(faults_are_found),
    };

    return T_RUN(tests);
}
