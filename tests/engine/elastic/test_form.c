/* SPDX-License-Identifier: MIT
 *
 * Tests that the members of a job form a new group between two steps: the bits are those of a job
 * that did not, also if ranks die at any moment meanwhile.
 *
 * Covers: engine/elastic/form.c engine/run/run_form.c engine/run/run_stop.c net/group/form.c
 */
#include "engine/train/train_dense_priv.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/fixtures/told_fixture.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#define STEPS 40
#define FORM 12

struct plan {
    const char *model, *data, *rule;
    unsigned dies; /* bit r: rank r */
    int64_t after; /* a group is formed after this step; 0: none */
    bool often;    /* and again and again */
    int delay_us;  /* a rank that dies does so this long after it was asked whether to form */
};

struct life {
    const struct plan *plan;
    int rank;
    pthread_t killer;
};

static void *kill_later(void *arg)
{
    const struct life *l = arg;

    usleep((useconds_t)l->plan->delay_us);
    raise(SIGKILL);
    return NULL;
}

static void look(void *arg, int64_t step, const float *params, size_t n, bool failed)
{
    struct life *l = arg;

    (void)params;
    (void)n;
    (void)failed;
    told[l->rank].step = step;
    if (step == l->plan->after && (l->plan->dies >> l->rank & 1) != 0)
        (void)pthread_create(&l->killer, NULL, kill_later, l);
}

static bool form(void *arg, int64_t step)
{
    const struct life *l = arg;

    return l->plan->after > 0 &&
           (step == l->plan->after - 2 || (l->plan->often && step >= l->plan->after));
}

static vb_status report(void *arg, const struct vb_train_result *result)
{
    struct life *l = arg;
    t_told_report(&told[l->rank], result);
    return VB_OK;
}

static int train(struct vb_group *g, void *arg)
{
    const struct plan *plan = arg;
    struct life life = {.plan = plan, .rank = vb_group_rank(g)};
    struct vb_train_opts o;

    t_train_opts(plan->model, plan->data, g, &o);
    o.elastic = true;
    o.learn.rule = plan->rule;
    o.length.global_batch = 30;
    o.length.steps = STEPS;
    o.eval_every = 10;
    o.sums.check_replicas = 7;
    o.hooks.look = look;
    o.hooks.look_arg = &life;
    o.hooks.form = form;
    o.hooks.form_arg = &life;
    o.hooks.report = report;
    o.hooks.report_arg = &life;
    return t_told_train(&told[life.rank], &o);
}

/* Runs a job of three ranks. Returns what the one that has reported told. */
static const struct t_told *run(struct plan *plan, enum vb_transport_choice transport)
{
    struct t_job job = {
        .transport = transport, .world = 3, .agrees = true, .fn = train, .arg = plan};

    return t_told_run(&job, plan->dies);
}

static const enum vb_transport_choice ways[] = {VB_TRANSPORT_SHM, VB_TRANSPORT_TCP};

static const struct plan models[] = {
    {.model = "softmax", .data = "synth:600", .rule = "momentum"},
    {.model = "mlp", .data = "synth:600", .rule = "adam"},
    {.model = "sparse-lr", .data = "synth:n=600,features=5000", .rule = "adagrad"},
};

static void the_bits_stay_the_same(void **state)
{
    struct plan plan;
    char sha256[65];
    size_t m, w;

    (void)state;
    for (m = 0; m < VB_COUNT(models); m++)
        for (w = 0; w < VB_COUNT(ways); w++) {
            plan = models[m];
            memcpy(sha256, run(&plan, ways[w])->result.params_sha256, sizeof(sha256));
            plan.after = FORM;
            assert_string_equal(run(&plan, ways[w])->result.params_sha256, sha256);
            plan.often = true;
            assert_string_equal(run(&plan, ways[w])->result.params_sha256, sha256);
            assert_int_equal(told[0].result.workers, 3);
            assert_int_equal(told[0].result.n_lost, 0);
        }
}

/* Not all members may have begun to make things anew. */
static int form_and_stay(struct vb_group *g, void *arg)
{
    struct vb_train_opts o;
    struct vb_trainer t;
    uint32_t before;
    size_t n;
    const float *params;
    int wrong;

    (void)arg;
    t_train_opts("mlp", "synth:600", g, &o);
    o.length.global_batch = 30;
    o.length.steps = STEPS;
    o.learn.clip = 0.001; /* all gradients are clipped */
    wrong = T_WRONG(vb_trainer_open(&t, &o, NULL) == VB_OK);
    while (wrong == 0 && t.step < FORM)
        wrong = T_WRONG(vb_trainer_step(&t) == VB_OK);
    if (wrong == 0) {
        params = t.ops->params(&t, &n);
        before = vb_crc32c(0, params, n * sizeof(*params));
        wrong += T_WRONG(dense_of(&t)->clip.last);
        wrong += T_WRONG(t.ops->form(&t) == VB_OK);
        t.ops->formed(&t, false);
        wrong += T_WRONG(dense_of(&t)->clip.last);
        params = t.ops->params(&t, &n);
        wrong += T_WRONG(vb_crc32c(0, params, n * sizeof(*params)) == before);
    }
    while (wrong == 0 && t.step < STEPS)
        wrong = T_WRONG(vb_trainer_step(&t) == VB_OK);
    vb_trainer_close(&t);
    return wrong;
}

static void who_stays_goes_on_as_before(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = 2, .fn = form_and_stay};

    (void)state;
    t_as_processes(&job);
}

static _Atomic int losses_told, last_told;

static void count_loss(void *arg, int rank, const char *why)
{
    (void)arg;
    (void)why;
    losses_told++;
    last_told = rank;
}

/* Rank 2 gives the new group up. Only rank 0 goes on in it. */
static int lose_while_forming(struct vb_group *g, void *arg)
{
    static const int ids[] = {10, 11, 12};
    struct vb_meeting m = {.root_fd = -1, .rank = vb_group_rank(g), .world = 3};
    struct vb_group *new;
    int wrong = 0;

    (void)arg;
    if (m.rank == 0)
        wrong += T_WRONG(vb_group_meet(g, m.root, &m.root_fd) == VB_OK);
    wrong += T_WRONG(vb_group_broadcast(g, 0, m.root, sizeof(m.root)) == VB_OK);
    if (wrong > 0 || vb_group_form(g, &m, &new) != VB_OK)
        return wrong + 1;
    vb_group_begin_at(new, 1);
    wrong += T_WRONG(vb_group_set_ids(new, ids) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (m.rank == 2)
        vb_group_abort(new, "a test");
    else
        wrong += T_WRONG(vb_group_barrier(new) != VB_OK && vb_group_end(new, 2) == VB_END_GAVE_UP);
    wrong += T_WRONG(losses_told == 0);
    if (m.rank == 0) {
        vb_group_tell_losses(new);
        wrong += T_WRONG(losses_told == 1 && last_told == 12);
    }
    vb_group_close(new);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(losses_told == (m.rank == 0));
    return wrong;
}

static void what_a_new_group_loses_is_told_when_it_is_used(void **state)
{
    struct t_job job = {.world = 3, .agrees = true, .lost = count_loss, .fn = lose_while_forming};
    size_t w;

    (void)state;
    for (w = 0; w < VB_COUNT(ways); w++) {
        job.transport = ways[w];
        t_as_processes(&job);
    }
}

static bool all; /* not only some of the cases */

static void ranks_die_meanwhile(void **state)
{
    static const unsigned dead[] = {1, 2, 4, 3, 6};
    static const int delays[] = {0, 1000, 3000, 6000, 10000, 20000, 40000};
    const struct t_told *t;
    struct plan plan;
    size_t d, i;
    int n, r, late;

    (void)state;
    for (d = 0; d < VB_COUNT(dead); d++)
        for (i = 0; i < VB_COUNT(delays); i += all ? 1 : 3) {
            plan = models[(d + i) % VB_COUNT(models)];
            plan.after = FORM;
            plan.often = i % 2 != 0;
            plan.dies = dead[d];
            plan.delay_us = delays[i];
            t = run(&plan, ways[(d + i) % 2]);
            for (r = n = late = 0; r < 3; r++) {
                n += plan.dies >> r & 1 && !told[r].ended;
                late += plan.dies >> r & 1 && !told[r].ended && told[r].step == STEPS;
            }
            /* The others may have ended with a rank that died after its last step. */
            assert_in_range(t->result.n_lost, n - late, n);
            assert_int_equal(t->result.workers, 3 - t->result.n_lost);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_stay_the_same),
        cmocka_unit_test(who_stays_goes_on_as_before),
        cmocka_unit_test(what_a_new_group_loses_is_told_when_it_is_used),
        cmocka_unit_test(ranks_die_meanwhile),
    };

    all = argc > 1 && strcmp(argv[1], "all") == 0;
    return t_told_open() ? T_RUN(tests) : 1;
}
