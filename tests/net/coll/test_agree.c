/* SPDX-License-Identifier: MIT
 *
 * Tests groups whose ranks agree which of them go on. The ranks train: in each step they sum a
 * number of each of them, and commit the sum. Ranks die at different moments. The survivors must
 * agree on the same views, take over the steps that they have missed, and have committed the same
 * sums in the end.
 *
 * Covers: net/control/agree.c net/group/group_agree.c net/control/membership.c
 */
#include "net/control/control_priv.h"
#include "net/group/group_priv.h"
#include "tests/support/fixtures/coll_fixture.h"

#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#define STEPS 40
#define BEGIN 5 /* number of steps that were done before */
#define VICTIMS 3
#define VIEWS 16
#define BOUND_S 30 /* a recovery on a machine that does other things, too */
#define PAUSE_S 5  /* longer than others need to find out, and to end */
#define END_S 4    /* within that time a rank must end that is in no view any more */
#define SECOND UINT64_C(1000000000)

enum moment {
    BEFORE,     /* its sum of a step */
    COMMITTED,  /* the sum */
    ANY_TIME,   /* from then on */
    AGREEING,   /* when it has noticed that another one is gone */
    REGROUPING, /* a moment after that */
};

struct victim {
    int rank;
    enum moment moment;
    int64_t step;
};

/* A view, as a rank was told of it. */
struct seen {
    unsigned members; /* bit r: rank r */
    int64_t step;
    int holder;
};

/* One job. It lies in memory that all processes share. */
struct life {
    struct victim victims[VICTIMS];
    int n_victims;
    int64_t odd_step;   /* when the ranks below do what they do */
    int slow;           /* this rank is slow to commit odd_step; -1: none */
    unsigned paused;    /* these ranks are stopped for a while */
    unsigned beyond;    /* from now on these ranks cannot reach the others, nor be reached */
    int drops, dropped; /* one rank drops another one, which lives; -1: none */
    int kills;          /* the same rank kills this one just before; -1: none */
    pid_t pids[T_RANKS_MAX];
    unsigned losers; /* these ranks must end, because they are in no view any more */
    unsigned seed;
    struct seen seen[T_RANKS_MAX][VIEWS];
    float sums[T_RANKS_MAX][STEPS + 1]; /* that the rank has committed */
    _Atomic bool copied;                /* a rank has taken a step from the holder */
    _Atomic int n_open, n_held, n_cut;
};

static struct life *life;

/* A rank that trains. */
struct worker {
    struct vb_group *g;
    struct vb_coll *coll;
    int rank;
    int64_t step; /* committed */
    bool dying;   /* a timer will kill it */
    bool lost;    /* it is in no view any more */
};

static void pause_ms(int ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&ts, NULL);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static const struct victim *victim_at(int rank, enum moment moment, int64_t step)
{
    int v;

    for (v = 0; v < life->n_victims; v++)
        if (life->victims[v].rank == rank && life->victims[v].moment == moment &&
            step >= life->victims[v].step)
            return &life->victims[v];
    return NULL;
}

static void die_at(const struct worker *w, enum moment moment, int64_t step)
{
    if (victim_at(w->rank, moment, step) != NULL)
        raise(SIGKILL);
}

/* This process dies after up to most_us. */
static void die_soon(struct worker *w, enum moment moment, int64_t step, unsigned most_us)
{
    unsigned seed = life->seed * 31 + (unsigned)w->rank;
    struct itimerval at = {.it_value = {.tv_usec = 1 + rand_r(&seed) % most_us}};

    if (victim_at(w->rank, moment, step) == NULL || w->dying)
        return;
    w->dying = true;
    signal(SIGALRM, SIG_DFL);
    setitimer(ITIMER_REAL, &at, NULL);
}

static bool is_in(unsigned set, int rank)
{
    return (set >> rank & 1) != 0;
}

static void wait_for(const _Atomic int *count, int n)
{
    while (*count < n)
        pause_ms(1);
}

/* The control plane of nobody runs while the connections are cut, so all are cut at once. */
static void cut(const struct worker *w)
{
    struct control *c = w->g->control;
    int i, world = vb_group_world(w->g);

    pthread_mutex_lock(&c->lock);
    life->n_held++;
    wait_for(&life->n_held, world);
    for (i = 0; i < world; i++)
        if (i != w->rank && is_in(life->beyond, i) != is_in(life->beyond, w->rank)) {
            shutdown(c->conns[i].fd, SHUT_RDWR);
            vb_fd_close(&c->agreement->processes[i].fd); /* as on another host */
        }
    life->n_cut++;
    wait_for(&life->n_cut, world);
    pthread_mutex_unlock(&c->lock);
}

static void be_odd(const struct worker *w, int64_t step)
{
    if (step != life->odd_step)
        return;
    if (is_in(life->paused, w->rank) && vb_process_pause(PAUSE_S) != VB_OK)
        abort();
    if (life->beyond != 0)
        cut(w);
    if (w->rank == life->drops && life->kills >= 0)
        kill(life->pids[life->kills], SIGKILL);
    if (w->rank == life->drops)
        (void)vb_group_retire(w->g, life->dropped, "a test");
}

/* ---- work ------------------------------------------------------------------------------------ */

static float value_of(int rank, int64_t step)
{
    return (float)((1 << rank) * 1024 + step); /* a sum tells whose it is */
}

static float *data_of(const struct worker *w)
{
    return vb_coll_data(w->coll);
}

static vb_status commit(struct worker *w, int64_t step)
{
    if (!vb_group_commit(w->g, step))
        return VB_ERR_PEER;
    w->step = step;
    life->sums[w->rank][step] = data_of(w)[0];
    return VB_OK;
}

static vb_status do_step(struct worker *w)
{
    int64_t step = w->step + 1;
    struct vb_req req;
    vb_status st;

    die_at(w, BEFORE, step);
    be_odd(w, step);
    data_of(w)[0] = value_of(w->rank, step);
    st = vb_allreduce_start(w->coll, 0, 1, VB_REDUCE_SUM, &req);
    if (st == VB_OK)
        st = vb_wait(w->coll, &req);
    if (st == VB_OK && w->rank == life->slow && step == life->odd_step)
        pause_ms(500);
    if (st == VB_OK)
        st = commit(w, step);
    if (st == VB_OK && life->slow >= 0 && step == life->odd_step)
        pause_ms(200); /* the third rank commits, too */
    if (st == VB_OK)
        die_at(w, COMMITTED, step);
    return st;
}

static int remember(const struct worker *w, const struct vb_agreed *agreed)
{
    struct seen *seen;
    int i;

    if (agreed->number >= VIEWS)
        return 1;
    seen = &life->seen[w->rank][agreed->number];
    *seen = (struct seen){.step = agreed->step, .holder = agreed->holder};
    for (i = 0; i < agreed->n; i++)
        seen->members |= 1u << agreed->members[i];
    return T_WRONG((seen->members >> w->rank & 1) != 0) +
           T_WRONG((seen->members >> agreed->holder & 1) != 0) +
           T_WRONG(agreed->step == w->step || agreed->step == w->step + 1);
}

/* All members get the sum of the agreed step from its holder. */
static vb_status copy(struct worker *w, const struct vb_agreed *agreed)
{
    int from = vb_group_view(w->g)->places[agreed->holder];
    float sum = life->sums[w->rank][agreed->step];
    vb_status st = vb_group_broadcast(w->g, from, &sum, sizeof(sum));

    if (st != VB_OK || w->step == agreed->step)
        return st;
    data_of(w)[0] = sum;
    life->copied = true;
    return commit(w, agreed->step);
}

static double patience(void)
{
    return t_number("VB_PATIENCE") > 0 ? t_number("VB_PATIENCE") : 1;
}

/* This rank must be told soon that it cannot go on; from then on nothing works. */
static int expect_end(struct worker *w, vb_status st, uint64_t begin)
{
    w->lost = true;
    return T_WRONG(is_in(life->losers, w->rank)) + T_WRONG(st == VB_ERR_PEER) +
           T_WRONG((double)(vb_clock_ns() - begin) < END_S * 1e9 * patience()) +
           T_WRONG(!vb_group_commit(w->g, w->step + 1)) + T_WRONG(vb_group_barrier(w->g) != VB_OK);
}

/* Comes to the next view. Returns the number of errors. */
static int recover(struct worker *w)
{
    uint64_t begin = vb_clock_ns();
    struct vb_agreed agreed;
    vb_status st;
    int wrong = 0;

    do {
        die_at(w, AGREEING, w->step);
        die_soon(w, REGROUPING, w->step, 3000);
        st = vb_group_agree(w->g, &agreed);
        if (st != VB_OK)
            return wrong + expect_end(w, st, begin);
        wrong += remember(w, &agreed);
        st = vb_group_regroup(w->g, agreed.members, agreed.n, agreed.number);
        if (st == VB_OK)
            st = copy(w, &agreed);
    } while (st == VB_ERR_PEER && wrong == 0);
    return wrong + T_WRONG(st == VB_OK);
}

/* The last thing that all do is a barrier. */
static int train(struct worker *w)
{
    bool over = false;
    vb_status st;
    int wrong = 0;

    while (!over && !w->lost && wrong == 0) {
        die_soon(w, ANY_TIME, w->step, 1000);
        over = w->step == STEPS;
        st = over ? vb_group_barrier(w->g) : do_step(w);
        over = over && st == VB_OK;
        if (st == VB_ERR_PEER)
            wrong += recover(w);
        else
            wrong += T_WRONG(st == VB_OK);
    }
    return wrong + T_WRONG(w->lost == is_in(life->losers, w->rank));
}

/* The lowest of those that cannot go on closes its group first. That is no goodbye of a rank which
 * has done its job. */
static int watch_end(struct vb_group *g)
{
    uint64_t until = vb_clock_ns() + SECOND / 2;
    int lowest = __builtin_ctz(life->losers);

    if (vb_group_rank(g) == lowest)
        return 0;
    while (vb_clock_ns() < until)
        (void)vb_progress(g);
    return T_WRONG(vb_group_end(g, lowest) != VB_END_LEFT);
}

static int live(struct vb_group *g, void *arg)
{
    struct worker w = {.g = g, .rank = vb_group_rank(g), .step = BEGIN};
    struct vb_coll_opts opts = {0};
    struct t_stderr caught;
    char text[16384];
    uint64_t begin;
    int wrong;

    (void)arg;
    if (vb_coll_open(g, sizeof(float), &opts, &w.coll) != VB_OK)
        return 1;
    vb_group_begin_at(g, BEGIN);
    life->pids[w.rank] = getpid();
    life->n_open++;
    wait_for(&life->n_open, vb_group_world(g)); /* nobody survives a death while ranks open */
    begin = vb_clock_ns();
    t_stderr_catch(&caught);
    wrong = train(&w);
    if (w.lost)
        wrong += watch_end(g);
    vb_coll_close(w.coll);
    t_stderr_release(&caught, text, sizeof(text));
    wrong += T_WRONG(vb_clock_ns() - begin < BOUND_S * SECOND);
    wrong += T_WRONG(!w.lost || strstr(text, "this rank cannot go on: ") != NULL);
    if (wrong > 0)
        fprintf(stderr, "rank %d of %d, seed %u:\n%s", w.rank, vb_group_world(g), life->seed, text);
    return wrong;
}

/* ---- what the survivors have ----------------------------------------------------------------- */

static float sum_of(unsigned members, int64_t step)
{
    float sum = 0;
    int r;

    for (r = 0; r < T_RANKS_MAX; r++)
        if ((members >> r & 1) != 0)
            sum += value_of(r, step);
    return sum;
}

static unsigned mortals(void)
{
    unsigned set = 0;
    int v;

    for (v = 0; v < life->n_victims; v++)
        set |= 1u << life->victims[v].rank;
    return set;
}

/* Whether a victim may have done all steps before it dies. */
static bool may_finish(void)
{
    int v;

    for (v = 0; v < life->n_victims; v++)
        if (life->victims[v].moment == ANY_TIME || life->victims[v].moment == REGROUPING)
            return true;
    return false;
}

/* All that have seen a view have seen the same. A survivor is missing in it only if all steps were
 * done: a victim died in the last barrier, which that survivor had passed, and it had left. */
static void check_views(int world, unsigned survivors)
{
    unsigned last = (1u << world) - 1;
    const struct seen *first, *seen;
    int v, r;

    for (v = 0; v < VIEWS; v++) {
        first = NULL;
        for (r = 0; r < world; r++) {
            seen = &life->seen[r][v];
            if (seen->members == 0)
                continue;
            first = first != NULL ? first : seen;
            assert_int_equal(seen->members, first->members);
            assert_int_equal(seen->step, first->step);
            assert_int_equal(seen->holder, first->holder);
        }
        if (first == NULL)
            continue;
        assert_true((first->members & ~last) == 0 && first->members != last);
        assert_true((survivors & ~first->members) == 0 || (may_finish() && first->step == STEPS));
        last = first->members;
    }
}

/* All survivors have committed the same sums; the last ones are those of the last view. */
static void check_sums(int world, unsigned survivors)
{
    unsigned members;
    int64_t step;
    float sum;
    int r, lowest = __builtin_ctz(survivors);

    if (!may_finish())
        assert_true(life->sums[lowest][STEPS] == sum_of(survivors, STEPS));
    for (step = BEGIN + 1; step <= STEPS; step++) {
        sum = life->sums[lowest][step];
        for (r = 0; r < world; r++)
            if ((survivors >> r & 1) != 0)
                assert_true(life->sums[r][step] == sum);
        for (members = 1; members < 1u << world && sum_of(members, step) != sum; members++)
            ;
        assert_true((members & survivors) == survivors && members < 1u << world);
    }
}

/* dead: ranks that may be killed, although they are no victims. */
static void run(const struct t_place *place, int world, unsigned dead)
{
    struct t_job job = {.transport = place->transport,
                        .progress = place->progress,
                        .agrees = true,
                        .timeout_ms = 15000,
                        .world = world,
                        .fn = live};
    unsigned survivors = ((1u << world) - 1) & ~(mortals() | dead | life->losers);

    if (!t_runs_over(place->transport) ||
        (place->transport == VB_TRANSPORT_VERBS && world > t_rdma_ranks()))
        return;
    t_as_mortals(&job, mortals() | dead);
    check_views(world, survivors);
    check_sums(world, survivors);
}

static unsigned stride; /* one of so many cases is run */

/* Returns whether the next case is left out. */
static bool skips(void)
{
    static unsigned n;

    return n++ % stride != 0;
}

static void begin(unsigned seed)
{
    memset(life, 0, sizeof(*life));
    life->slow = life->drops = life->dropped = life->kills = -1;
    life->odd_step = 20;
    life->seed = seed;
}

static void add_victim(int rank, enum moment moment, int64_t step)
{
    life->victims[life->n_victims++] = (struct victim){rank, moment, step};
}

static const struct t_place places[] = {
    {"shm", VB_TRANSPORT_SHM, false, 0},
    {"tcp", VB_TRANSPORT_TCP, false, 0},
    {"tcp with a progress thread", VB_TRANSPORT_TCP, true, 0},
    {"verbs", VB_TRANSPORT_VERBS, true, 0},
};

/* Also rank 0, and one of two: the process that has ended is a proof. */
static void one_rank_dies(void **state)
{
    static const enum moment moments[] = {BEFORE, COMMITTED, ANY_TIME};
    size_t p, m;
    int world, victim;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (m = 0; m < VB_COUNT(moments); m++)
            for (world = 2; world <= 5; world++)
                for (victim = 0; victim < world; victim++) {
                    if (skips())
                        continue;
                    begin((unsigned)(100 * victim + 10 * world) + (unsigned)(p + m));
                    add_victim(victim, moments[m], 20);
                    run(&places[p], world, 0);
                }
}

static void ranks_die_one_after_another(void **state)
{
    size_t p;
    int world, first;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (world = 3; world <= 5; world++)
            for (first = 0; first < world; first++) {
                if (skips())
                    continue;
                begin((unsigned)(10 * world + first));
                add_victim(first, BEFORE, 12);
                add_victim((first + 1) % world, COMMITTED, 20);
                if (world > 3)
                    add_victim((first + 2) % world, BEFORE, 21);
                run(&places[p], world, 0);
            }
}

static void ranks_die_together(void **state)
{
    size_t p;
    int world, first;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (world = 3; world <= 5; world++)
            for (first = 0; first < world; first++) {
                if (skips())
                    continue;
                begin((unsigned)(10 * world + first));
                add_victim(first, BEFORE, 20);
                add_victim((first + 1) % world, BEFORE, 20);
                run(&places[p], world, 0);
            }
}

static void ranks_die_while_others_agree(void **state)
{
    static const enum moment moments[] = {AGREEING, REGROUPING};
    size_t p, m;
    int world, first;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (m = 0; m < VB_COUNT(moments); m++)
            for (world = 3; world <= 5; world++)
                for (first = 0; first < world; first++) {
                    if (skips())
                        continue;
                    begin((unsigned)(100 * m) + (unsigned)(10 * world + first));
                    add_victim(first, BEFORE, 20);
                    add_victim((first + 1) % world, moments[m], 18);
                    if (world > 3)
                        add_victim((first + 2) % world, REGROUPING, 18);
                    run(&places[p], world, 0);
                }
}

/* A rank commits a step and dies. Another one has the sum, but is slow to commit it. */
static void a_step_that_was_missed_is_taken_over(void **state)
{
    size_t p;
    int slow;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (slow = 0; slow < 3; slow++) {
            begin(0);
            life->slow = slow;
            add_victim((slow + 1) % 3, COMMITTED, 20);
            run(&places[p], 3, 0);
            assert_true(life->copied || !t_runs_over(places[p].transport));
        }
}

/* ---- ranks that live, but are not in the view ------------------------------------------------ */

/* Nothing proves that those behind a cut are gone. A part that goes on kills those ranks of the
 * other part that share memory with it. */
static void one_part_at_most_goes_on_after_a_cut(void **state)
{
    static const struct {
        int world;
        unsigned beyond, losers;
    } cuts[] = {
        {2, 1, 2}, {3, 1, 1}, {3, 4, 4}, {4, 12, 12}, {4, 3, 12}, {4, 6, 6}, {5, 7, 24},
    };
    bool shm;
    size_t p, k;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (k = 0; k < VB_COUNT(cuts); k++) {
            shm = places[p].transport == VB_TRANSPORT_SHM;
            begin((unsigned)k);
            life->beyond = cuts[k].beyond;
            life->losers = cuts[k].losers;
            run(&places[p], cuts[k].world, shm ? cuts[k].losers : 0);
        }
}

/* It finds out when it runs again. By then the others have done all steps, and have ended. */
static void a_rank_that_was_stopped_does_not_go_on_alone(void **state)
{
    size_t p;
    int world;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (world = 2; world <= 3; world++) {
            begin(0);
            life->losers = life->paused = 1u << (world - 1);
            run(&places[p], world, places[p].transport == VB_TRANSPORT_SHM ? life->paused : 0);
        }
}

/* Too few are left to go on unless the stopped rank is known to be gone. So one of them kills it.
 */
static void a_stopped_rank_is_killed_before_too_few_give_up(void **state)
{
    size_t p;
    int world;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (world = 2; world <= 3; world++) {
            begin(0);
            life->paused = 1;
            if (world == 3)
                add_victim(1, BEFORE, 20);
            run(&places[p], world, life->paused);
        }
}

/* The others believe the rank that drops one, although they could still reach it. */
static void a_rank_that_one_has_dropped_is_dropped_by_all(void **state)
{
    static const int pairs[][2] = {{0, 2}, {2, 0}, {1, 2}, {1, 0}};
    size_t p, k;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (k = 0; k < VB_COUNT(pairs); k++) {
            begin(0);
            life->drops = pairs[k][0];
            life->dropped = pairs[k][1];
            life->losers = 1u << pairs[k][1];
            run(&places[p], 3, places[p].transport == VB_TRANSPORT_SHM ? life->losers : 0);
        }
}

/* Rank 2 needs proofs of both ends. Rank 0, which it has dropped, does not wait for any itself. */
static void a_rank_that_cannot_go_on_ends_soon(void **state)
{
    size_t p;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++) {
        begin(0);
        life->drops = 2;
        life->dropped = 0;
        life->kills = 1;
        life->losers = 1;
        run(&places[p], 3, places[p].transport == VB_TRANSPORT_SHM ? 3 : 2);
    }
}

static int open_life(void **state)
{
    (void)state;
    life = mmap(NULL, sizeof(*life), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return life == MAP_FAILED;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_dies),
        cmocka_unit_test(ranks_die_one_after_another),
        cmocka_unit_test(ranks_die_together),
        cmocka_unit_test(ranks_die_while_others_agree),
        cmocka_unit_test(a_step_that_was_missed_is_taken_over),
        cmocka_unit_test(one_part_at_most_goes_on_after_a_cut),
        cmocka_unit_test(a_rank_that_was_stopped_does_not_go_on_alone),
        cmocka_unit_test(a_stopped_rank_is_killed_before_too_few_give_up),
        cmocka_unit_test(a_rank_that_one_has_dropped_is_dropped_by_all),
        cmocka_unit_test(a_rank_that_cannot_go_on_ends_soon),
    };

    stride = t_stride(argc, argv);
    return cmocka_run_group_tests(tests, open_life, NULL);
}
