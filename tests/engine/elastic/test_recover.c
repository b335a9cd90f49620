/* SPDX-License-Identifier: MIT
 *
 * Tests how synchronous training goes on without ranks that have died. Ranks die at chosen moments:
 * before and after they commit a step, while the others agree, regroup or copy a step. A rank that
 * is slow to commit is one step behind, and copies it. Whatever happens, all steps are made, the
 * parameters are those of a job in which the same ranks died before the next step, recovering
 * allocates nothing, and opens no file. What was done after a step is not done once more.
 *
 * Covers: engine/elastic/recover.c engine/run/run.c engine/train/train_dense.c
 * Covers: engine/train/train_sparse.c engine/sums/buckets.c
 * Covers: engine/sums/shared_update.c engine/record/train_recovery.c
 */
#include "engine/run/run_stop.h"
#include "engine/train/train_room_priv.h"
#include "tests/support/alloc.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#include <sys/mman.h>
#include <time.h>

#define WORLD 4
#define STEPS 12
#define DEATH 6     /* the step at whose end something happens */
#define DIE_MS 150  /* enough for others to commit the same step */
#define SLOW_MS 500 /* much longer than others need to notice a death */

enum moment {
    NEVER,
    BEFORE_COMMIT,
    COMMITTED,
    BEFORE_STEP, /* the one after DEATH */
    AGREED,
    REGROUPED,
    COPYING, /* the holder, when it has sent something */
    EVALUATING,
    ENDING, /* after the last evaluation */
};

struct model {
    const char *name, *data, *rule;
    double clip;
    int64_t shared_min; /* 0: chosen */
};

static const struct model models[] = {
    {"softmax", "synth:203", "momentum", 0, 0},
    {"lenet", "synth:203", NULL, 0, 0},
    {"mlp", "synth:203", "momentum", 0, 0},
    {"mlp", "synth:203", "momentum", 0.1, 1000},
    {"sparse-lr", "synth:n=203,features=5000", NULL, 0, 0},
    {"sparse-lr", "synth:n=203,features=5000", "momentum", 0, 0},
};

struct plan {
    const struct model *model;
    enum moment dies[WORLD];
    int slow;        /* this rank commits the step DEATH too late; -1: none does */
    const char *dir; /* run folder; NULL: none */
};

/* What a rank tells the test, in memory that all processes share. */
struct told {
    bool ended, copied;
    int recoveries, lost;
    int64_t steps, allocations;
    int looks; /* steps that were shown */
    int fds;   /* that were opened while it recovered */
    char sha256[65];
};

static struct told *told;

/* What the wrappers know of the rank that runs in this process. */
static const struct plan *plan_of_rank;
static int own_rank = -1;
static bool recovering, ending;

bool __real_vb_group_commit(struct vb_group *group, int64_t step);
bool __wrap_vb_group_commit(struct vb_group *group, int64_t step);
vb_status __real_vb_group_agree(struct vb_group *group, struct vb_agreed *agreed);
vb_status __wrap_vb_group_agree(struct vb_group *group, struct vb_agreed *agreed);
vb_status __real_vb_group_regroup(struct vb_group *group, const int *members, int n,
                                  uint32_t number);
vb_status __wrap_vb_group_regroup(struct vb_group *group, const int *members, int n,
                                  uint32_t number);
vb_status __real_vb_train_recover(struct vb_trainer *t, vb_status st);
vb_status __wrap_vb_train_recover(struct vb_trainer *t, vb_status st);
vb_status __real_vb_group_broadcast(struct vb_group *group, int from, void *record, size_t len);
vb_status __wrap_vb_group_broadcast(struct vb_group *group, int from, void *record, size_t len);
vb_status __real_vb_run_stop_regroup(struct run_stop *stop);
vb_status __wrap_vb_run_stop_regroup(struct run_stop *stop);
vb_status __real_vb_train_evaluate(struct vb_trainer *t);
vb_status __wrap_vb_train_evaluate(struct vb_trainer *t);
vb_status __real_vb_broadcast_start(struct vb_coll *coll, int root, size_t at, size_t len,
                                    struct vb_req *req);
vb_status __wrap_vb_broadcast_start(struct vb_coll *coll, int root, size_t at, size_t len,
                                    struct vb_req *req);

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};

    nanosleep(&pause, NULL);
}

static void die_at(enum moment moment)
{
    if (own_rank < 0 || plan_of_rank->dies[own_rank] != moment)
        return;
    if (moment == COMMITTED || moment == BEFORE_COMMIT)
        pause_ms(DIE_MS);
    raise(SIGKILL);
}

bool __wrap_vb_group_commit(struct vb_group *group, int64_t step)
{
    bool fine;

    if (own_rank < 0 || step != DEATH)
        return __real_vb_group_commit(group, step);
    if (!recovering)
        die_at(BEFORE_COMMIT);
    if (!recovering && plan_of_rank->slow == own_rank)
        pause_ms(SLOW_MS);
    fine = __real_vb_group_commit(group, step);
    if (recovering && fine)
        told[own_rank].copied = true;
    if (fine && !recovering)
        die_at(COMMITTED);
    return fine;
}

vb_status __wrap_vb_group_agree(struct vb_group *group, struct vb_agreed *agreed)
{
    vb_status st = __real_vb_group_agree(group, agreed);

    die_at(AGREED);
    return st;
}

vb_status __wrap_vb_group_regroup(struct vb_group *group, const int *members, int n,
                                  uint32_t number)
{
    vb_status st = __real_vb_group_regroup(group, members, n, number);

    die_at(REGROUPED);
    return st;
}

vb_status __wrap_vb_group_broadcast(struct vb_group *group, int from, void *record, size_t len)
{
    vb_status st;

    if (ending && !recovering)
        die_at(ENDING);
    st = __real_vb_group_broadcast(group, from, record, len);
    if (recovering && vb_group_view_rank(group) == from)
        die_at(COPYING);
    return st;
}

vb_status __wrap_vb_train_evaluate(struct vb_trainer *t)
{
    vb_status st;

    if (t->step == DEATH)
        die_at(EVALUATING);
    st = __real_vb_train_evaluate(t);
    ending = t->step == STEPS;
    return st;
}

vb_status __wrap_vb_broadcast_start(struct vb_coll *coll, int root, size_t at, size_t len,
                                    struct vb_req *req)
{
    vb_status st = __real_vb_broadcast_start(coll, root, at, len, req);

    if (recovering)
        die_at(COPYING); /* the plan names the holder */
    return st;
}

/* Threads that record allocate nothing either. */
vb_status __wrap_vb_train_recover(struct vb_trainer *t, vb_status st)
{
    struct told *own = &told[t->number];
    int fds = t_count_fds();
    int64_t before = t_allocations;
    const struct vb_recovery *r;

    recovering = true;
    st = __real_vb_train_recover(t, st);
    recovering = false;
    own->allocations += t_allocations - before;
    fds = t_count_fds() - fds;
    own->fds = fds > own->fds ? fds : own->fds;
    r = vb_train_recovery(t, t->recoveries.n - 1);
    own->recoveries = t->recoveries.n;
    own->lost = r != NULL ? own->lost + r->n : own->lost;
    return st;
}

vb_status __wrap_vb_run_stop_regroup(struct run_stop *stop)
{
    int64_t before = t_allocations;
    vb_status st = __real_vb_run_stop_regroup(stop);

    told[own_rank].allocations += t_allocations - before;
    return st;
}

static void look(void *arg, int64_t step, const float *params, size_t n, bool failed)
{
    (void)arg;
    (void)params;
    (void)n;
    (void)failed;
    told[own_rank].looks++;
    if (step == DEATH)
        die_at(BEFORE_STEP);
}

static int train(struct vb_group *g, void *arg)
{
    const struct plan *plan = arg;
    struct vb_train_result result;
    struct vb_train_opts o;
    vb_status st;

    plan_of_rank = plan;
    own_rank = vb_group_rank(g);
    t_train_opts(plan->model->name, plan->model->data, g, &o);
    o.elastic = true;
    o.learn.rule = plan->model->rule;
    o.learn.lr = 0.01;
    if (plan->model->clip > 0)
        o.learn.clip = plan->model->clip;
    o.sums.shared_update_min = plan->model->shared_min;
    o.sums.check_replicas = 1;
    o.length.global_batch = 30;
    o.length.steps = STEPS;
    o.hooks.look = look;
    o.run.dir = plan->dir;
    if (plan->dir != NULL)
        o.eval_every = DEATH;
    st = vb_train(&o, &result);
    told[own_rank].ended = st == VB_OK;
    if (st == VB_OK) {
        told[own_rank].steps = result.steps;
        snprintf(told[own_rank].sha256, sizeof(told->sha256), "%s", result.params_sha256);
        vb_train_result_fini(&result);
    }
    return T_WRONG(st == VB_OK);
}

/* Runs a job. Returns the digest of its parameters. */
static const char *run(struct plan *plan, enum vb_transport_choice transport)
{
    struct t_job job = {
        .transport = transport, .world = WORLD, .agrees = true, .fn = train, .arg = plan};
    const char *sha256 = NULL;
    unsigned mortals = 0;
    int r;

    for (r = 0; r < WORLD; r++)
        mortals |= plan->dies[r] != NEVER ? 1u << r : 0;
    memset(told, 0, WORLD * sizeof(*told));
    t_as_mortals(&job, mortals);
    for (r = 0; r < WORLD; r++) {
        assert_true(told[r].ended == (plan->dies[r] == NEVER));
        if (!told[r].ended)
            continue;
        assert_int_equal(told[r].steps, STEPS);
        assert_int_equal(told[r].looks, STEPS);
        assert_true(mortals == 0 || told[r].recoveries > 0);
        if (plan->dir == NULL) { /* otherwise the recorder's thread writes events */
            assert_int_equal(told[r].allocations, 0);
            assert_int_equal(told[r].fds, 0);
        }
        assert_true(sha256 == NULL || told[r].sha256[0] == '\0' ||
                    strcmp(sha256, told[r].sha256) == 0);
        sha256 = told[r].sha256[0] != '\0' ? told[r].sha256 : sha256;
    }
    assert_non_null(sha256);
    return sha256;
}

static const enum vb_transport_choice ways[] = {VB_TRANSPORT_SHM, VB_TRANSPORT_TCP};

/* The same ranks die between two steps: this is what the parameters must be. */
static void run_plain(const struct plan *plan, enum vb_transport_choice transport, char sha256[65])
{
    struct plan plain = *plan;
    int r;

    plain.slow = -1;
    for (r = 0; r < WORLD; r++)
        if (plain.dies[r] != NEVER)
            plain.dies[r] = BEFORE_STEP;
    snprintf(sha256, 65, "%s", run(&plain, transport));
}

static unsigned stride; /* one of so many cases is run */

static void check(const struct plan *wanted, bool copies)
{
    static size_t n;
    struct plan plan = *wanted;
    char sha256[65];
    size_t m, w;

    n++;

    for (m = 0; m < VB_COUNT(models); m++)
        for (w = 0; w < VB_COUNT(ways); w++) {
            if ((m + w + n) % stride != 0)
                continue;
            plan.model = &models[m];
            run_plain(&plan, ways[w], sha256);
            assert_string_equal(run(&plan, ways[w]), sha256);
            if (copies)
                assert_true(told[plan.slow].copied);
        }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_step_that_others_have_is_copied(void **state)
{
    struct plan plan = {.dies = {[2] = COMMITTED}, .slow = 1};

    (void)state;
    check(&plan, true);
    plan = (struct plan){.dies = {[0] = COMMITTED}, .slow = 1};
    check(&plan, true);
}

/* The step is lost with the ranks that have committed it, and made again. */
static void a_step_of_the_dead_is_made_again(void **state)
{
    struct plan plan = {.dies = {[1] = BEFORE_COMMIT}, .slow = -1};

    (void)state;
    check(&plan, false);
}

static void ranks_die_while_others_recover(void **state)
{
    static const enum moment moments[] = {AGREED, REGROUPED, COPYING};
    struct plan plan;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(moments); i++) {
        plan = (struct plan){.dies = {[0] = moments[i], [2] = COMMITTED}, .slow = 3};
        check(&plan, false);
    }
}

static void a_single_rank_is_left(void **state)
{
    struct plan plan = {.dies = {[0] = BEFORE_STEP, [1] = AGREED, [3] = BEFORE_STEP}, .slow = -1};

    (void)state;
    check(&plan, false);
}

/* Counts lines with this text. */
static int lines_with(const char *path, const char *text)
{
    FILE *in = fopen(path, "r");
    char line[1024];
    int n = 0;

    while (in != NULL && fgets(line, sizeof(line), in) != NULL)
        n += strstr(line, text) != NULL;
    if (in != NULL)
        fclose(in);
    return n;
}

/* A rank dies while all evaluate after a step, or when the last evaluation has been recorded: each
 * evaluation is recorded once. */
static void an_evaluation_is_recorded_once(void **state)
{
    static const enum moment moments[] = {EVALUATING, ENDING};
    char dir[] = "/tmp/verbena-test-XXXXXX", path[160];
    struct plan plan;
    struct vb_series *series;
    size_t i;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (i = 0; i < VB_COUNT(moments); i++) {
        snprintf(path, sizeof(path), "%s/%zu", dir, i);
        plan = (struct plan){
            .model = &models[0], .dies = {[2] = moments[i]}, .slow = -1, .dir = strdup(path)};
        run(&plan, VB_TRANSPORT_SHM);
        snprintf(path, sizeof(path), "%s/evals.bin", plan.dir);
        assert_int_equal(vb_series_open(path, &series), VB_OK);
        assert_int_equal(vb_series_rows(series), 2);
        vb_series_close(series);
        snprintf(path, sizeof(path), "%s/events.jsonl", plan.dir);
        assert_int_equal(lines_with(path, "\"evaluated\""), 2);
        free((void *)plan.dir);
    }
    assert_int_equal(t_folder_remove(dir), 0);
}

/* Entries of the list are used again after very many recoveries. The recorder's thread may read
 * what was told much later. */
static void what_was_told_stays(void **state)
{
    struct vb_train_event events[VB_EVENTS_MAX];
    struct vb_recovery list[VB_RECOVERIES] = {{.step = 0}}, *r = &list[VB_RECOVERIES - 1];
    struct vb_trainer t = {.leads = true, .recoveries = {.list = list, .n = VB_RECOVERIES}};
    int i;

    (void)state;
    t.record.events = events;
    t.record.has_lock = true;
    pthread_mutex_init(&t.record.lock, NULL);
    for (i = 0; i < 3; i++) {
        *r = (struct vb_recovery){.step = 70 + i, .n = 1, .left = 9 - i};
        r->lost[0].rank = i;
        vb_train_tell_recovery(&t, r);
        t.recoveries.n++;
    }
    assert_int_equal(t.record.n_events, 3);
    assert_int_equal(t.record.heir.n_lost, 3);
    for (i = 0; i < 3; i++) {
        assert_int_equal(t.record.heir.lost[i], i);
        assert_int_equal(events[i].fault.rank, i);
        assert_int_equal(events[i].fault.left, 9 - i);
    }
    pthread_mutex_destroy(&t.record.lock);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_others_have_is_copied),
        cmocka_unit_test(a_step_of_the_dead_is_made_again),
        cmocka_unit_test(ranks_die_while_others_recover),
        cmocka_unit_test(a_single_rank_is_left),
        cmocka_unit_test(an_evaluation_is_recorded_once),
        cmocka_unit_test(what_was_told_stays),
    };

    stride = t_stride(argc, argv);
    told = mmap(NULL, WORLD * sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0);
    return told != MAP_FAILED ? T_RUN(tests) : 1;
}
