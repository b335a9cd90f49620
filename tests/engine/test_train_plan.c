/* SPDX-License-Identifier: MIT
 *
 * Tests engine/train/train_plan.c: all ranks get the plan of rank 0 unchanged, for any length.
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/ranks.h"

/* Makes a plan of `len` bytes. All lines of the plan are different. */
static char *make_text(size_t len)
{
    char *text = malloc(len + 64);
    size_t at = 0;
    int line;

    assert_non_null(text);
    for (line = 0; text != NULL && at < len; line++)
        at += (size_t)snprintf(text + at, 64, "layer%d forward blas\n", line);
    if (text != NULL)
        text[len] = '\0';
    return text;
}

static int told(struct vb_group *g, void *arg)
{
    const char *text = arg;
    char *got = NULL;
    int wrong;

    wrong = T_WRONG(vb_train_tell_plan(g, vb_group_rank(g) == 0 ? text : NULL, &got) == VB_OK);
    wrong += T_WRONG(got != NULL && strcmp(got, text) == 0);
    free(got);
    /* fails if a rank has made another number of group calls */
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    return wrong;
}

static void long_plans_arrive_complete(void **state)
{
    static const size_t lens[] = {
        0,    1,    VB_RECORD_MAX - 1,    VB_RECORD_MAX, VB_RECORD_MAX + 1,
        9999, 8192, VB_PLAN_BYTES_MAX - 1};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(lens); i++) {
        char *text = make_text(lens[i]);
        struct t_job job = {.transport = i % 2 == 0 ? VB_TRANSPORT_SHM : VB_TRANSPORT_TCP,
                            .world = 3,
                            .fn = told,
                            .arg = text};

        t_as_threads(&job);
        free(text);
    }
}

static int refused(struct vb_group *g, void *arg)
{
    char *got = NULL;
    int wrong;

    wrong =
        T_WRONG(vb_train_tell_plan(g, vb_group_rank(g) == 0 ? arg : NULL, &got) == VB_ERR_USAGE);
    return wrong + T_WRONG(got == NULL);
}

static void too_long_is_refused_on_all_ranks(void **state)
{
    char *text = make_text(VB_PLAN_BYTES_MAX);
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = 2, .fn = refused, .arg = text};

    (void)state;
    t_as_threads(&job);
    free(text);
}

/* A plan with the largest number of choices is longer than a record. Rank 1 must read the plan that
 * rank 0 wrote. */
static int parsed(struct vb_group *g, void *arg)
{
    static const char *const passes[] = {"forward", "backward-data", "backward-weights"};
    char why[VB_OPTS_WHY], text[VB_K_CHOICES_MAX * 64], *again, *got = NULL;
    struct vb_k_plan plan = {0};
    int i, wrong;
    size_t at = 0;

    (void)arg;
    for (i = 0; i < VB_K_CHOICES_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "a_layer_with_a_name_%d %s gemm\n",
                               i / 3, passes[i % 3]);
    wrong = T_WRONG(at > VB_RECORD_MAX);
    wrong += T_WRONG(vb_train_tell_plan(g, vb_group_rank(g) == 0 ? text : NULL, &got) == VB_OK);
    wrong += T_WRONG(got != NULL && vb_k_plan_parse(got, &plan, why) == VB_OK);
    wrong += T_WRONG(plan.n == VB_K_CHOICES_MAX);
    again = vb_k_plan_text(&plan);
    wrong += T_WRONG(again != NULL && strcmp(again, text) == 0);
    free(again);
    free(got);
    return wrong;
}

static void a_full_plan_is_more_than_a_record(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = 2, .fn = parsed};

    (void)state;
    t_as_threads(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_plans_arrive_complete),
        cmocka_unit_test(too_long_is_refused_on_all_ranks),
        cmocka_unit_test(a_full_plan_is_more_than_a_record),
    };

    return T_RUN(tests);
}
