/* SPDX-License-Identifier: MIT
 *
 * Tests groups whose ranks agree which of them go on. The ranks train: in each step they sum a
 * number of each of them, and commit the sum. Ranks die at different moments. The survivors must
 * agree on the same views, take over the steps that they have missed, and have committed the same
 * sums in the end.
 *
 * Covers: net/control/agree.c net/group/group_agree.c net/control/membership.c
 */
#include "net/group/group_priv.h"
#include "tests/support/alloc.h"
#include "tests/support/fixtures/coll_fixture.h"

#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#define STEPS 40
#define BEGIN 5 /* number of steps that were done before */
#define VICTIMS 3
#define VIEWS 16
#define BOUND_S 20 /* a recovery on a machine that does other things, too */

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
    int slow; /* this rank is slow to commit slow_step; -1: none */
    int64_t slow_step;
    unsigned seed;
    bool copied[T_RANKS_MAX]; /* the rank has taken a step from the holder */
    struct seen seen[T_RANKS_MAX][VIEWS];
    float sums[T_RANKS_MAX][STEPS + 1]; /* that the rank has committed */
    _Atomic int n_open;
};

static struct life *life;

/* A rank that trains. */
struct worker {
    struct vb_group *g;
    struct vb_coll *coll;
    int rank;
    int64_t step; /* committed */
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
static void die_soon(const struct worker *w, enum moment moment, int64_t step, unsigned most_us)
{
    unsigned seed = life->seed * 31 + (unsigned)w->rank;
    struct itimerval at = {.it_value = {.tv_usec = 1 + rand_r(&seed) % most_us}};

    if (victim_at(w->rank, moment, step) == NULL)
        return;
    signal(SIGALRM, SIG_DFL);
    setitimer(ITIMER_REAL, &at, NULL);
}

/* ---- work ------------------------------------------------------------------------------------ */

static float value_of(int rank, int64_t step)
{
    return (float)(1 + rank * 100 + step);
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
    data_of(w)[0] = value_of(w->rank, step);
    st = vb_allreduce_start(w->coll, 0, 1, VB_REDUCE_SUM, &req);
    if (st == VB_OK)
        st = vb_wait(w->coll, &req);
    if (st == VB_OK && w->rank == life->slow && step == life->slow_step)
        pause_ms(500);
    if (st == VB_OK)
        st = commit(w, step);
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
    life->copied[w->rank] = true;
    return commit(w, agreed->step);
}

/* Comes to the next view. Returns the number of errors. */
static int recover(struct worker *w)
{
    struct vb_agreed agreed;
    vb_status st;
    int wrong = 0;

    do {
        die_at(w, AGREEING, w->step);
        die_soon(w, REGROUPING, w->step, 3000);
        st = vb_group_agree(w->g, &agreed);
        if (st != VB_OK)
            return T_WRONG(st == VB_OK);
        wrong += remember(w, &agreed);
        st = vb_group_regroup(w->g, agreed.members, agreed.n, agreed.number);
        if (st == VB_OK)
            st = copy(w, &agreed);
    } while (st == VB_ERR_PEER && wrong == 0);
    return wrong + T_WRONG(st == VB_OK);
}

static int train(struct worker *w)
{
    uint64_t begin = vb_clock_ns();
    vb_status st;
    int wrong = 0;

    while (w->step < STEPS && wrong == 0) {
        die_soon(w, ANY_TIME, w->step, 3000);
        st = do_step(w);
        if (st == VB_ERR_PEER)
            wrong += recover(w);
        else
            wrong += T_WRONG(st == VB_OK);
    }
    do
        st = vb_group_barrier(w->g);
    while (st == VB_ERR_PEER && (wrong += recover(w)) == 0);
    wrong += T_WRONG(st == VB_OK);
    return wrong + T_WRONG(vb_clock_ns() - begin < BOUND_S * UINT64_C(1000000000));
}

static int live(struct vb_group *g, void *arg)
{
    struct vb_coll_opts opts = {0};
    struct worker w = {.g = g, .rank = vb_group_rank(g), .step = BEGIN};
    struct t_stderr caught;
    char text[16384];
    int wrong;

    (void)arg;
    if (vb_coll_open(g, sizeof(float), &opts, &w.coll) != VB_OK)
        return 1;
    vb_group_begin_at(g, BEGIN);
    life->n_open++;
    while (life->n_open < vb_group_world(g)) /* nobody survives a death while ranks open */
        pause_ms(1);
    t_stderr_catch(&caught);
    wrong = train(&w);
    vb_coll_close(w.coll);
    t_stderr_release(&caught, text, sizeof(text));
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

/* All that have seen a view have seen the same. Returns the members of the last one. */
static unsigned check_views(int world)
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
        if (first != NULL) {
            assert_true((first->members & ~last) == 0 && first->members != last);
            last = first->members;
        }
    }
    return last;
}

/* Whether a victim may have done all steps before it dies. */
static bool may_finish(void)
{
    int v;

    for (v = 0; v < life->n_victims; v++)
        if (life->victims[v].moment == ANY_TIME)
            return true;
    return false;
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

static void run(const struct t_place *place, int world)
{
    struct t_job job = {.transport = place->transport,
                        .progress = place->progress,
                        .agrees = true,
                        .timeout_ms = 15000,
                        .world = world,
                        .fn = live};
    unsigned survivors = ((1u << world) - 1) & ~mortals();

    t_as_mortals(&job, mortals());
    assert_int_equal(check_views(world) & survivors, survivors);
    check_sums(world, survivors);
}

static void begin(unsigned seed)
{
    memset(life, 0, sizeof(*life));
    life->slow = -1;
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
};

static void one_of_three_dies(void **state)
{
    static const enum moment moments[] = {BEFORE, COMMITTED, ANY_TIME};
    size_t p, m;
    int victim;

    (void)state;
    for (p = 0; p < VB_COUNT(places); p++)
        for (m = 0; m < VB_COUNT(moments); m++)
            for (victim = 0; victim < 3; victim++) {
                begin((unsigned)(p + m));
                add_victim(victim, moments[m], 20);
                run(&places[p], 3);
            }
}

static int open_life(void **state)
{
    (void)state;
    life = mmap(NULL, sizeof(*life), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return life == MAP_FAILED;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_three_dies),
    };

    return cmocka_run_group_tests(tests, open_life, NULL);
}
