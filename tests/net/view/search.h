/* SPDX-License-Identifier: MIT
 *
 * Visits every state that a job can reach within limits. In each state it also stops all faults and
 * looks whether the job settles.
 */
#ifndef TESTS_NET_VIEW_SEARCH_H
#define TESTS_NET_VIEW_SEARCH_H

#include "world.h"

struct found {
    unsigned long long states, transitions, too_long, fair;
    int depth;
    const char *wrong; /* NULL: all is well */
    bool full;         /* more states than max_states: not all were visited */
};

/* print: shows the way to the first state that is wrong. */
struct found search_all(const struct limits *limits, unsigned long long max_states, bool print);

/* Runs of random actions, for limits that have too many states. */
struct found search_random(const struct limits *limits, int runs, uint64_t seed, bool print);

#endif
