/* SPDX-License-Identifier: MIT
 *
 * Explores the runs of small jobs. Each rank is the real machine of net/view, built here for a few
 * ranks and with mistakes that can be turned on. Without a mistake no run may be wrong. With each
 * mistake a search must find a wrong run. docs/views.md explains the limits.
 *
 * "test_view_explore deep" takes much longer.
 *
 * Covers: net/view/view.c view_coordinate.c view_quorum.c
 */
#include "search.h"

#include "tests/support/test.h"

extern int view_bug;
int view_bug; /* the mistake that is turned on; 0: none */

#define SEED 1
#define STATES_MAX 10000000 /* a search that reaches it says "not all" */
#define WALKS 3000          /* enough to show that a mistake was the reason */

struct job {
    struct limits limits;
    int walks; /* 0: visit all states; otherwise so many random runs */
};

/* ranks, crashes, wrong suspicions, losses, overtaking, cuts, retries, steps, rounds */
static const struct job quick[] = {
    {{2, 2, 2, 2, 1, 1, 3, 3, 6, 0, 0, 0}, 0},    {{3, 2, 0, 0, 0, 0, 0, 2, 5, 0, 0, 0}, 0},
    {{3, 0, 2, 0, 0, 0, 0, 2, 5, 0, 0, 0}, 0},    {{3, 1, 0, 1, 0, 0, 1, 1, 5, 0, 0, 0}, 0},
    {{3, 1, 1, 0, 0, 1, 0, 1, 5, 0, 0, 0}, 0},    {{4, 1, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0}, 0},
    {{5, 1, 0, 0, 0, 0, 0, 0, 3, 16, 0, 0}, 0},   {{4, 2, 2, 2, 2, 1, 2, 2, 8, 0, 0, 0}, 3000},
    {{5, 2, 2, 1, 1, 1, 1, 2, 8, 0, 0, 0}, 2000},
};

static const struct job deep[] = {
    {{2, 2, 3, 3, 3, 1, 4, 3, 8, 0, 0, 0}, 0},      {{3, 2, 1, 1, 0, 1, 1, 1, 4, 0, 0, 0}, 0},
    {{3, 0, 2, 1, 0, 0, 1, 1, 4, 0, 0, 0}, 0},      {{3, 2, 2, 0, 0, 0, 0, 1, 6, 0, 0, 0}, 0},
    {{4, 2, 0, 0, 0, 0, 0, 1, 4, 3, 0, 0}, 0},      {{4, 0, 1, 0, 0, 0, 0, 1, 4, 0, 2, 1}, 0},
    {{5, 1, 0, 0, 0, 0, 0, 1, 3, 1, 0, 0}, 0},      {{4, 3, 3, 2, 2, 1, 3, 2, 10, 0, 0, 0}, 30000},
    {{5, 3, 3, 2, 2, 1, 3, 2, 10, 0, 0, 0}, 20000}, {{5, 1, 1, 0, 0, 0, 0, 1, 4, 0, 0, 0}, 20000},
};

struct mistake {
    const char *what;
    struct job job; /* in which it must show */
};

static const struct mistake mistakes[] = {
    {"one rank less than a majority decides", {{3, 1, 1, 0, 0, 0, 0, 1, 4, 0, 0, 0}, 0}},
    {"half without the lowest rank decides", {{2, 0, 1, 0, 0, 1, 0, 1, 4, 0, 0, 0}, 0}},
    {"decided before all have accepted", {{5, 1, 1, 0, 0, 0, 0, 0, 3, 16, 2, 1}, 100000}},
    {"a stale term is obeyed", {{5, 1, 1, 0, 0, 0, 0, 0, 3, 16, 2, 1}, 100000}},
    {"what may be decided is not proposed again", {{5, 1, 1, 0, 0, 0, 0, 0, 3, 16, 2, 1}, 400000}},
    {"the majority is that of the living", {{3, 2, 1, 0, 0, 0, 0, 1, 4, 0, 0, 0}, 0}},
    {"a rank that has stopped commits", {{3, 2, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0}, 0}},
};

static struct found explore(const struct job *job, bool print)
{
    const struct limits *l = &job->limits;
    struct found f = job->walks > 0 ? search_random(l, job->walks, SEED, print)
                                    : search_all(l, STATES_MAX, print);

    printf(
        "%s: %d ranks, %d crash, %d suspected wrongly, %d lost, %d overtake, %d cut, %d "
        "retries, %d steps: %llu states, %llu transitions, longest run %d, not followed %llu%s\n",
        job->walks > 0 ? "random" : "all", l->ranks, l->crashes, l->wrong, l->losses, l->swaps,
        l->cuts, l->retries, l->steps, f.states, f.transitions, f.depth, f.too_long,
        f.full ? ", not all" : "");
    fflush(stdout);
    return f;
}

static void explore_jobs(const struct job *jobs, size_t n)
{
    size_t i;

    view_bug = 0;
    for (i = 0; i < n; i++)
        assert_null(explore(&jobs[i], true).wrong);
}

static void no_run_is_wrong(void **state)
{
    (void)state;
    explore_jobs(quick, VB_COUNT(quick));
}

static void no_longer_run_is_wrong(void **state)
{
    (void)state;
    explore_jobs(deep, VB_COUNT(deep));
}

/* A search of the same kind finds nothing wrong without the mistake. */
static void every_mistake_is_found(void **state)
{
    struct found f;
    struct job job;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(mistakes); i++) {
        view_bug = (int)i + 1;
        job = mistakes[i].job;
        f = explore(&job, false);
        view_bug = 0;
        printf("mistake %zu (%s): %s\n", i + 1, mistakes[i].what,
               f.wrong == NULL ? "not found" : f.wrong);
        assert_non_null(f.wrong);
        job.walks = job.walks > WALKS ? WALKS : job.walks;
        assert_null(explore(&job, true).wrong);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_run_is_wrong),
        cmocka_unit_test(every_mistake_is_found),
    };
    const struct CMUnitTest deep_tests[] = {cmocka_unit_test(no_longer_run_is_wrong)};

    if (argc > 1 && strcmp(argv[1], "deep") == 0)
        return T_RUN(deep_tests);
    return T_RUN(tests);
}
