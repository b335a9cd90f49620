/* SPDX-License-Identifier: MIT
 *
 * Tests jobs whose lead dies. The next rank saves, shows, warns and reports: its result is
 * complete, its checkpoint is that of the last step, and a wish to stop that came before is
 * honoured. Also tests what members do again in a new view, without a death: they take the
 * evaluation that one of them has completed, and collect the result twice.
 *
 * Covers: engine/elastic/lead.c engine/train/train_save.c engine/train/train_result.c
 * Covers: engine/run/run_end.c engine/run/run_stop.c engine/checkpoint/checkpoint_dir.c
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/fixtures/told_fixture.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#define STEPS 40
#define EVERY 10
#define DEATH 25

enum moment { NEVER, AFTER_STEP, SHOWING, STOPPING, REPORTING };

struct plan {
    unsigned dies; /* bit r: rank r */
    enum moment moment;
    int64_t step;
    int stops; /* this rank wants to stop at that moment; -1: none */
    bool until;
    char dir[64]; /* for checkpoints; "": none */
};

struct life {
    const struct plan *plan;
    int rank;
    int64_t step;
};

static void die_at(const struct life *l, enum moment moment)
{
    const struct plan *p = l->plan;

    if (p->moment == moment && (p->dies >> l->rank & 1) != 0 && l->step >= p->step)
        raise(SIGKILL);
}

static void look(void *arg, int64_t step, const float *params, size_t n, bool failed)
{
    struct life *l = arg;

    (void)params;
    (void)n;
    (void)failed;
    l->step = step;
    die_at(l, AFTER_STEP);
}

static int stop(void *arg)
{
    struct life *l = arg;
    int number = l->plan->stops == l->rank && l->step >= l->plan->step ? SIGINT : 0;

    if (l->plan->stops >= 0)
        die_at(l, STOPPING);
    return number;
}

static void watch(void *arg, const struct vb_train_news *news)
{
    struct life *l = arg;

    told[l->rank].shown++;
    if (news->evaluated)
        die_at(l, SHOWING);
}

static vb_status report(void *arg, const struct vb_train_result *result)
{
    struct life *l = arg;
    struct t_told *own = &told[l->rank];

    die_at(l, REPORTING);
    t_told_report(own, result);
    return VB_OK;
}

static int train(struct vb_group *g, void *arg)
{
    const struct plan *plan = arg;
    struct life life = {.plan = plan, .rank = vb_group_rank(g)};
    struct vb_train_opts o;

    t_train_opts("softmax", "synth:600", g, &o);
    o.elastic = true;
    o.learn.rule = "momentum";
    o.length.global_batch = 30;
    o.length.steps = STEPS;
    o.eval_every = EVERY;
    o.save.dir = plan->dir[0] != '\0' ? plan->dir : NULL;
    o.save.every = o.save.dir != NULL ? EVERY : 0;
    if (plan->until)
        o.until = (struct vb_train_until_opts){.list = {{VB_UNTIL_PLATEAU, 0, 100}}, .n = 1};
    o.hooks.look = look;
    o.hooks.look_arg = &life;
    o.hooks.stop = plan->stops >= 0 ? stop : NULL;
    o.hooks.stop_arg = &life;
    o.hooks.watch = watch;
    o.hooks.watch_arg = &life;
    o.hooks.report = report;
    o.hooks.report_arg = &life;
    return t_told_train(&told[life.rank], &o);
}

/* Runs a job of three ranks. Returns what the one that has reported told. */
static const struct t_told *run(struct plan *plan, enum vb_transport_choice transport)
{
    struct t_job job = {
        .transport = transport, .world = 3, .agrees = true, .fn = train, .arg = plan};
    const struct t_told *reporter = t_told_run(&job, plan->dies);
    int r;

    for (r = 0; r < job.world; r++)
        assert_true(told[r].ended == ((plan->dies >> r & 1) == 0));
    return reporter;
}

static void make_folder(struct plan *plan)
{
    snprintf(plan->dir, sizeof(plan->dir), "/tmp/verbena-test-XXXXXX");
    assert_non_null(mkdtemp(plan->dir));
}

/* The checkpoint has this step, and the parameters that the job has ended with. */
static void check_saved(const struct plan *plan, const struct vb_train_result *r, int64_t step)
{
    struct vb_checkpoint *cp = NULL;
    const struct vb_checkpoint_array *w, *b;
    char path[128], digest[65];
    size_t n_w, n_b;
    float *all;

    snprintf(path, sizeof(path), "%s/checkpoint-%lld.vbc", plan->dir, (long long)step);
    assert_string_equal(r->checkpoint, path);
    assert_int_equal(vb_checkpoint_read(path, &cp), VB_OK);
    w = &cp->arrays[0];
    b = &cp->arrays[1];
    n_w = (size_t)w->rows * (size_t)w->cols;
    n_b = (size_t)b->rows * (size_t)b->cols;
    assert_int_equal(n_w + n_b, r->params);
    all = malloc((n_w + n_b) * sizeof(*all));
    assert_non_null(all);
    memcpy(all, w->data, n_w * sizeof(*all));
    memcpy(all + n_w, b->data, n_b * sizeof(*all));
    vb_sha256(all, (n_w + n_b) * sizeof(*all), digest);
    assert_string_equal(digest, r->params_sha256);
    free(all);
    vb_checkpoint_free(cp);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static const enum vb_transport_choice ways[] = {VB_TRANSPORT_SHM, VB_TRANSPORT_TCP};

static void the_next_rank_leads(void **state)
{
    struct plan plan = {.dies = 1, .moment = AFTER_STEP, .step = DEATH, .stops = -1, .until = true};
    const struct t_told *t;
    size_t w;
    int i;

    (void)state;
    for (w = 0; w < VB_COUNT(ways); w++) {
        make_folder(&plan);
        t = run(&plan, ways[w]);
        assert_ptr_equal(t, &told[1]);
        assert_int_equal(t->result.ranks, 3);
        assert_int_equal(t->result.workers, 2);
        assert_int_equal(t->result.rows, 2);
        assert_int_equal(t->result.n_lost, 1);
        assert_int_equal(t->lost[0], 0);
        assert_int_equal(t->result.steps, STEPS);
        assert_int_equal(t->result.stopped, 0);
        assert_int_equal(t->result.samples, (int64_t)STEPS * 30);
        assert_int_equal(t->result.n_evals, STEPS / EVERY);
        for (i = 0; i < t->result.n_evals; i++)
            assert_int_equal(t->evals[i].step, (i + 1) * EVERY);
        assert_true(t->shown > 0 && told[2].shown == 0);
        check_saved(&plan, &t->result, STEPS);
        assert_int_equal(t_folder_remove(plan.dir), 0);
    }
}

static void two_leads_die(void **state)
{
    struct plan plan = {.dies = 3, .moment = SHOWING, .step = EVERY, .stops = -1};
    const struct t_told *t;

    (void)state;
    make_folder(&plan);
    t = run(&plan, VB_TRANSPORT_SHM);
    assert_ptr_equal(t, &told[2]);
    assert_int_equal(t->result.workers, 1);
    assert_int_equal(t->result.n_lost, 2);
    assert_true(t->lost[0] == 0 && t->lost[1] == 1);
    assert_int_equal(t->result.n_evals, STEPS / EVERY - 1);
    check_saved(&plan, &t->result, STEPS);
    assert_int_equal(t_folder_remove(plan.dir), 0);
}

static void the_result_is_reported_once(void **state)
{
    struct plan plan = {.dies = 1, .moment = REPORTING, .step = STEPS, .stops = -1};
    const struct t_told *t;
    size_t w;

    (void)state;
    for (w = 0; w < VB_COUNT(ways); w++) {
        t = run(&plan, ways[w]);
        assert_ptr_equal(t, &told[1]);
        assert_int_equal(t->result.steps, STEPS);
        assert_int_equal(t->result.n_lost, 1);
        assert_true(t->result.accuracy >= 0);
    }
    plan.dies = 3;
    t = run(&plan, VB_TRANSPORT_SHM);
    assert_ptr_equal(t, &told[2]);
    assert_int_equal(t->result.n_lost, 2);
}

/* A rank asks the lead, which dies before it has told all. */
static void a_wish_to_stop_outlives_the_lead(void **state)
{
    struct plan plan = {.dies = 1, .moment = AFTER_STEP, .step = DEATH, .stops = 2};
    const struct t_told *t;
    size_t w;

    (void)state;
    for (plan.step = DEATH; plan.step < DEATH + 2; plan.step++)
        for (w = 0; w < VB_COUNT(ways); w++) {
            make_folder(&plan);
            t = run(&plan, ways[w]);
            assert_ptr_equal(t, &told[1]);
            assert_int_equal(t->result.stopped, SIGINT);
            assert_true(t->result.steps >= DEATH - 1 && t->result.steps < STEPS);
            check_saved(&plan, &t->result, t->result.steps);
            assert_int_equal(t_folder_remove(plan.dir), 0);
        }
    /* the lead wants it, and a rank that must confirm dies */
    plan = (struct plan){.dies = 4, .moment = STOPPING, .step = DEATH, .stops = 0};
    t = run(&plan, VB_TRANSPORT_TCP);
    assert_ptr_equal(t, &told[0]);
    assert_int_equal(t->result.stopped, SIGINT);
}

/* ---- done again ------------------------------------------------------------------------------ */

static int evaluate_again(struct vb_trainer *t)
{
    double accuracy;
    int wrong = T_WRONG(vb_train_evaluate(t) == VB_OK);

    vb_train_keep_eval(t, t->step);
    accuracy = t->evals.accuracy;
    t->view = 1;
    if (t->rank == 0) /* it has not heard of the result */
        t->evals.sum_step = -1;
    else
        t->evals.sum.correct++;
    wrong += T_WRONG(vb_train_evaluate(t) == VB_OK);
    vb_train_keep_eval(t, t->step);
    wrong += T_WRONG(t->evals.accuracy * t->data.n_test > accuracy * t->data.n_test + 0.5);
    wrong += T_WRONG(t->evals.n == 1);
    /* the next one in this view is computed */
    wrong += T_WRONG(vb_train_evaluate(t) == VB_OK) + T_WRONG(t->evals.accuracy == accuracy);
    /* nobody has it */
    t->view = 2;
    t->evals.sum_step = -1;
    return wrong + T_WRONG(vb_train_evaluate(t) == VB_OK) + T_WRONG(t->evals.accuracy == accuracy);
}

static int collect_again(struct vb_trainer *t)
{
    struct vb_train_result r = {0};
    char digest[65];
    int i, wrong = 0;

    for (i = 0; i < 3; i++) {
        wrong += T_WRONG(vb_train_collect(t, &r) == VB_OK);
        wrong += T_WRONG(r.rows == 3 && r.n_lost == 0 && r.n_evals == 1 && r.evals != NULL);
        wrong += T_WRONG(r.per_rank[2].rank == 2 && r.reports == (t->number == 0));
        if (i > 0)
            wrong += T_WRONG(strcmp(digest, r.params_sha256) == 0);
        memcpy(digest, r.params_sha256, sizeof(digest));
    }
    vb_train_result_fini(&r);
    return wrong;
}

/* A lead that has begun a checkpoint does not begin it again; a new one finds it in the folder. */
static int save_again(struct vb_trainer *t)
{
    char path[4096];
    int wrong = T_WRONG(vb_train_save(t, t->step, true) == VB_OK);

    wrong += T_WRONG(vb_train_save(t, t->step, true) == VB_OK);
    wrong += T_WRONG(vb_train_saves_end(t) == VB_OK) + T_WRONG(vb_train_saves_end(t) == VB_OK);
    wrong += T_WRONG(vb_train_last_checkpoint(t, path, sizeof(path)));
    if (t->number != 1)
        return wrong;
    t->leads = true;
    vb_train_members_changed(t);
    wrong += T_WRONG(t->shows && t->saved.step == t->step);
    wrong += T_WRONG(strcmp(t->saved.path, path) == 0);
    return wrong + T_WRONG(vb_train_save(t, t->step, true) == VB_OK) +
           T_WRONG(t->saved.writer == NULL);
}

static int do_again(struct vb_group *g, void *arg)
{
    struct vb_train_opts o;
    struct vb_trainer t;
    int i, wrong;

    t_train_opts("softmax", "synth:600", g, &o);
    o.elastic = true;
    o.length.global_batch = 30;
    o.length.steps = STEPS;
    o.eval_every = 3;
    o.save.dir = arg;
    o.data.test_limit = 100;
    wrong = T_WRONG(vb_trainer_open(&t, &o, NULL) == VB_OK);
    for (i = 0; i < 3 && wrong == 0; i++)
        wrong = T_WRONG(vb_trainer_step(&t) == VB_OK);
    if (wrong == 0)
        wrong = evaluate_again(&t) + collect_again(&t) + save_again(&t);
    vb_trainer_close(&t);
    return wrong;
}

static void members_do_it_again(void **state)
{
    char dir[] = "/tmp/verbena-test-XXXXXX";
    struct t_job job = {
        .transport = VB_TRANSPORT_SHM, .world = 3, .agrees = true, .fn = do_again, .arg = dir};

    (void)state;
    assert_non_null(mkdtemp(dir));
    t_as_processes(&job);
    assert_int_equal(t_folder_remove(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_do_it_again),
        cmocka_unit_test(the_next_rank_leads),
        cmocka_unit_test(two_leads_die),
        cmocka_unit_test(the_result_is_reported_once),
        cmocka_unit_test(a_wish_to_stop_outlives_the_lead),
    };

    return t_told_open() ? T_RUN(tests) : 1;
}
