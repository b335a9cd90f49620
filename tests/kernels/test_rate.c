/* SPDX-License-Identifier: MIT
 *
 * Tests learning rates at the first step, at the last step, and at steps where the schedule
 * changes.
 */
#include "kernels/kernels.h"
#include "tests/support/test.h"

#include <math.h>

static void near(float got, double want)
{
    if (!(fabs((double)got - want) <= 1e-7 * fabs(want)))
        fail_msg("%.9g, expected %.9g", (double)got, want);
}

static void constant(void **state)
{
    const struct vb_k_schedule s = {.kind = VB_K_RATE_CONSTANT, .base = 0.1};

    (void)state;
    near(vb_k_rate(&s, 0), 0.1);
    near(vb_k_rate(&s, INT64_MAX), 0.1);
}

static void warm_up_rises_to_the_base(void **state)
{
    const struct vb_k_schedule s = {.kind = VB_K_RATE_CONSTANT, .base = 0.8, .warmup = 4};

    (void)state;
    near(vb_k_rate(&s, 0), 0.2);
    near(vb_k_rate(&s, 2), 0.6);
    near(vb_k_rate(&s, 3), 0.8);
    near(vb_k_rate(&s, 4), 0.8);
}

static void step_schedule_decays(void **state)
{
    const struct vb_k_schedule s = {.kind = VB_K_RATE_STEP, .base = 1, .period = 10, .factor = 0.1};
    const struct vb_k_schedule never = {.kind = VB_K_RATE_STEP, .base = 1, .factor = 0.1};

    (void)state;
    near(vb_k_rate(&s, 9), 1);
    near(vb_k_rate(&s, 10), 0.1);
    near(vb_k_rate(&s, 29), 0.01);
    near(vb_k_rate(&s, 30), 0.001);
    near(vb_k_rate(&never, 1000), 1); /* a period of 0 must not cause a division by 0 */
}

static void cosine_falls_to_its_final_rate(void **state)
{
    struct vb_k_schedule s = {
        .kind = VB_K_RATE_COSINE, .base = 2, .warmup = 10, .period = 110, .factor = 0.5};
    int64_t i;

    (void)state;
    near(vb_k_rate(&s, 9), 2);
    near(vb_k_rate(&s, 10), 2);
    near(vb_k_rate(&s, 35), 1.5 + 0.5 * cos(acos(-1) / 4));
    near(vb_k_rate(&s, 60), 1.5);
    near(vb_k_rate(&s, 110), 1);
    near(vb_k_rate(&s, 1000000), 1);
    for (i = 11; i < 110; i++)
        assert_true(vb_k_rate(&s, i) < vb_k_rate(&s, i - 1));
    s.period = 5; /* so that all steps are warm-up */
    near(vb_k_rate(&s, 10), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant),
        cmocka_unit_test(warm_up_rises_to_the_base),
        cmocka_unit_test(step_schedule_decays),
        cmocka_unit_test(cosine_falls_to_its_final_rate),
    };

    return T_RUN(tests);
}
