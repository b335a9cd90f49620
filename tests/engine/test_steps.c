/* SPDX-License-Identifier: MIT
 *
 * Tests synchronous steps of several ranks. After a failure at any moment, every surviving rank has
 * finished a whole number of steps, and has the parameters of an undisturbed run at that step. A
 * rank whose replica differs is named.
 *
 * Covers: engine/sums/buckets.c engine/train/train_check.c engine/train/train_dense.c
 * Covers: engine/sums/shared_update.c engine/train/train_sparse.c
 */
#include "engine/train/trainer.h"
#include "tests/support/ranks.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#define WORLD 3
#define CULPRIT 2
#define STEPS 30
#define KILLS 6 /* number of runs with a kill, for each model and transport */
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#undef KILLS
#define KILLS 2 /* ThreadSanitizer makes them ten times as slow */
#endif
#endif

struct run {
    const char *model, *data, *rule;
    int64_t check_replicas, defer_bytes, eval_every;
    int64_t shared_update_min; /* 0: the ranks do not share the update */
    double clip;
    uint64_t kill_us; /* time in us after which the culprit is killed; 0: never */
    uint32_t after[STEPS + 1];
    bool spoils; /* rank 1 changes a parameter after step SPOILT */
    bool in_one; /* all gradients are summed in one operation */
};

#define SPOILT 7

/* Records of the ranks, in memory that all ranks share. */
struct seen {
    uint32_t after[STEPS + 1]; /* checksum of the parameters after each step, written by rank 0 */
    int64_t step[WORLD];       /* the last step of each rank */
    uint32_t mark[WORLD];
    bool failed[WORLD];
    uint64_t took_us; /* time from the first step to the last */
};

static struct seen *seen;

static void share_memory(void)
{
    if (seen == NULL)
        seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(seen != MAP_FAILED);
    memset(seen, 0, sizeof(*seen));
}

static void fill_opts(const struct run *run, struct vb_group *g, struct vb_train_opts *o)
{
    t_train_opts(run->model, run->data, g, o);
    o->learn.rule = run->rule;
    o->length.global_batch = 30;
    o->length.steps = STEPS;
    o->sums.check_replicas = run->check_replicas;
    o->eval_every = run->eval_every;
    o->learn.clip = run->clip > 0 ? run->clip : -1;
    if (strcmp(run->model, "sparse-lr") == 0)
        return; /* the options below are only for dense models */
    o->sums.defer_bytes = run->defer_bytes;
    o->sums.shared_update_min = run->shared_update_min > 0 ? run->shared_update_min : INT64_MAX;
    o->sums.bucket_bytes = run->in_one ? 1 << 30 : 1 << 16;
}

struct watcher {
    struct run *run;
    int rank;
    uint64_t begin_ns; /* time at the end of the first step */
};

static void *kill_later(void *arg)
{
    const struct run *run = arg;
    struct timespec ts = {.tv_sec = (time_t)(run->kill_us / 1000000),
                          .tv_nsec = (long)(run->kill_us % 1000000 * 1000)};

    nanosleep(&ts, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void start_the_clock(struct watcher *w)
{
    pthread_t killer;

    w->begin_ns = vb_clock_ns();
    if (w->rank == CULPRIT && w->run->kill_us > 0 &&
        pthread_create(&killer, NULL, kill_later, w->run) != 0)
        abort();
}

static void record_step(void *arg, int64_t step, const float *params, size_t n, bool failed)
{
    struct watcher *w = arg;
    uint32_t mark = vb_crc32c(0, params, n * sizeof(*params));

    seen->step[w->rank] = step;
    seen->mark[w->rank] = mark;
    seen->failed[w->rank] = failed;
    if (step == 1 && !failed)
        start_the_clock(w);
    if (w->rank == 0 && !failed) {
        seen->after[step] = mark;
        seen->took_us = 1 + (vb_clock_ns() - w->begin_ns) / 1000;
    }
    if (w->run->spoils && w->rank == 1 && step == SPOILT)
        ((float *)params)[3] += 1; /* deliberately writes to parameters, which are read-only */
}

static vb_status train(struct vb_group *g, struct run *run)
{
    struct watcher w = {.run = run, .rank = vb_group_rank(g)};
    struct vb_train_result result;
    struct vb_train_opts o;
    vb_status st;

    fill_opts(run, g, &o);
    o.hooks.look = record_step;
    o.hooks.look_arg = &w;
    st = vb_train(&o, &result);
    if (st == VB_OK)
        vb_train_result_fini(&result);
    return st;
}

/* ---- ranks that die -------------------------------------------------------------------------- */

static int train_to_the_end(struct vb_group *g, void *arg)
{
    return T_WRONG(train(g, arg) == VB_OK);
}

static int train_as_far_as_possible(struct vb_group *g, void *arg)
{
    if (freopen("/dev/null", "w", stderr) == NULL) /* discards the messages of the other ranks */
        return 1;
    (void)train(g, arg); /* the result does not matter: the kill may come after the last step */
    return 0;
}

static int survivors_stand_at_a_step(const struct run *run, const char *where)
{
    int64_t apart = seen->step[0] - seen->step[1];
    int r, wrong = T_WRONG(apart >= -1 && apart <= 1);

    for (r = 0; r < CULPRIT; r++)
        wrong += T_WRONG(seen->step[r] == 0 || seen->mark[r] == run->after[seen->step[r]]);
    if (wrong > 0)
        fprintf(stderr,
                "model %s over %s, a rank was killed after %llu us: the other ranks ended at steps "
                "%lld and %lld\n",
                run->model, where, (unsigned long long)run->kill_us, (long long)seen->step[0],
                (long long)seen->step[1]);
    return wrong;
}

/* Trains without a kill, and then KILLS times with a kill at a random moment. Returns how many
 * kills came before the end of the run. */
static int killed_at_random(struct run *run, enum vb_transport_choice transport, const char *where)
{
    struct t_job job = {.transport = transport, .world = WORLD, .fn = train_to_the_end, .arg = run};
    uint64_t took_us;
    int k, hit = 0;

    share_memory();
    t_as_processes(&job);
    memcpy(run->after, seen->after, sizeof(run->after));
    took_us = seen->took_us;
    job.fn = train_as_far_as_possible;
    for (k = 0; k < KILLS; k++) {
        share_memory();
        run->kill_us = 1 + vb_random(11, (uint64_t)k) % took_us;
        t_as_processes_but(&job, CULPRIT);
        assert_int_equal(survivors_stand_at_a_step(run, where), 0);
        hit += seen->failed[0] && seen->step[0] > 0;
    }
    run->kill_us = 0;
    return hit;
}

static void survivors_are_at_a_complete_step(void **state)
{
    struct run runs[] = {{.model = "softmax", .data = "synth:1200"},
                         {.model = "lenet", .data = "synth:1200", .shared_update_min = 4},
                         {.model = "lenet", .data = "synth:1200", .defer_bytes = 120000},
                         {.model = "sparse-lr", .data = "synth:n=1200,features=5000"}};
    int hit = 0;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(runs); i++) {
        hit += killed_at_random(&runs[i], VB_TRANSPORT_SHM, "shm");
        hit += killed_at_random(&runs[i], VB_TRANSPORT_TCP, "tcp");
    }
    print_message("%d of %d deaths were between the first step and the last\n", hit,
                  (int)VB_COUNT(runs) * 2 * KILLS);
    assert_true(hit > (int)VB_COUNT(runs));
}

/* ---- equivalent ways to make a step ---------------------------------------------------------- */

/* With deferred gradients the forward pass of the next step begins before this step is complete,
 * and ranks of one host may share the update. The bits must be the same. The test has short
 * batches, evaluations between steps, and gradients that are clipped sometimes or always. */
static void all_ways_to_make_a_step_give_the_same_bits(void **state)
{
    static const struct {
        double clip;
        int64_t defer_bytes;
    } clips[] = {{4.5, 120000}, {0.01, 1 << 22}};
    enum { IN_ONE, EARLY, SHARED, WAYS } way;
    struct run run = {.model = "lenet", .data = "synth:1000", .eval_every = 7, .check_replicas = 9};
    struct t_job job = {.world = 2, .fn = train_to_the_end, .arg = &run};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(clips); i++)
        for (way = IN_ONE; way < WAYS; way++) {
            run.clip = clips[i].clip;
            run.defer_bytes = way == EARLY ? clips[i].defer_bytes : 0;
            run.shared_update_min = way == SHARED ? 4 : 0;
            /* with one sum for all gradients, no part of a step can be deferred */
            run.in_one = way == IN_ONE;
            job.transport = way == EARLY ? VB_TRANSPORT_TCP : VB_TRANSPORT_SHM;
            share_memory();
            t_as_processes(&job);
            assert_int_equal(seen->step[0], STEPS);
            if (way == IN_ONE)
                memcpy(run.after, seen->after, sizeof(run.after));
            assert_memory_equal(run.after, seen->after, sizeof(run.after));
        }
}

/* ---- replicas -------------------------------------------------------------------------------- */

static int is_named(struct vb_group *g, void *arg)
{
    struct t_stderr caught;
    char text[4096];
    vb_status st;
    int wrong;

    t_stderr_catch(&caught);
    st = train(g, arg);
    t_stderr_release(&caught, text, sizeof(text));
    wrong =
        T_WRONG(st == VB_ERR_INPUT) + T_WRONG(strstr(text, "rank 1 (") != NULL) +
        T_WRONG(strstr(text, "after step 10; all ranks had equal parameters after step 5") != NULL);
    if (wrong > 0)
        fputs(text, stderr);
    return wrong;
}

static void a_replica_that_differs_is_named(void **state)
{
    struct run run = {
        .model = "softmax", .data = "synth:1200", .check_replicas = 5, .spoils = true};
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .fn = is_named, .arg = &run};

    (void)state;
    share_memory();
    for (job.world = 2; job.world <= WORLD; job.world++)
        t_as_processes(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_are_at_a_complete_step),
        cmocka_unit_test(all_ways_to_make_a_step_give_the_same_bits),
        cmocka_unit_test(a_replica_that_differs_is_named),
    };

    return T_RUN(tests);
}
