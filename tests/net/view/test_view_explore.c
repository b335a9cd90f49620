/* SPDX-License-Identifier: MIT
 *
 * Explores all runs of small jobs, each rank with the real machine of net/view, which is built here
 * for a few ranks and with mistakes that can be turned on. Without a mistake no run may be wrong.
 * With each mistake the same search must find a wrong run. docs/elastic.md explains the limits.
 *
 * "test_view_explore deep" takes much longer. VB_TEST_VIEW=N shows the way to mistake N.
 *
 * Covers: net/view/view.c view_coordinate.c view_quorum.c
 */
#include "search.h"

#include "tests/support/test.h"

extern int view_bug;
int view_bug; /* the mistake that is turned on; 0: none */

#define QUICK_MAX 3000000ull

static void say(const struct limits *l, const struct found *f)
{
    printf("%d ranks, %d crashes, %d wrong suspicions, %d losses, %d overtake, %d cuts, "
           "%d retries, %d steps, %d rounds: %llu states, %llu transitions, depth %d, %llu too "
           "long, %llu fair actions%s%s\n",
           l->ranks, l->crashes, l->wrong, l->losses, l->swaps, l->cuts, l->retries, l->steps,
           l->rounds, f->states, f->transitions, f->depth, f->too_long, f->fair,
           f->full ? ", not all" : "", f->wrong == NULL ? "" : ", WRONG");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct limits l = {0};
    int *fields[] = {&l.ranks, &l.crashes, &l.wrong, &l.losses, &l.swaps, &l.cuts, &l.retries, &l.steps, &l.rounds, &view_bug};
    struct found f;
    int i;
    for (i = 1; i < argc && i <= 10; i++) *fields[i-1] = atoi(argv[i]);
    f = argc > 11 ? search_random(&l, atoi(argv[11]), 7, true) : search_all(&l, 30000000, true);
    say(&l, &f);
    return f.wrong != NULL;
}
