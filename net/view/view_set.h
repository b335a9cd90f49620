/* SPDX-License-Identifier: MIT
 *
 * Sets of ranks.
 */
#ifndef VB_NET_VIEW_VIEW_SET_H
#define VB_NET_VIEW_VIEW_SET_H

#include "net/net.h"

/* The explorer of tests/net/view builds this room for a few ranks, so that a state is small. */
#ifndef VIEW_RANKS
#define VIEW_RANKS VB_WORLD_MAX
#endif

#define VIEW_WORDS ((VIEW_RANKS + 63) / 64)
#define VIEW_SET_BYTES (8 * VIEW_WORDS)

struct view_set {
    uint64_t words[VIEW_WORDS];
};

static inline bool view_has(const struct view_set *set, int rank)
{
    return (set->words[rank / 64] >> (rank % 64) & 1) != 0;
}

static inline void view_add(struct view_set *set, int rank)
{
    set->words[rank / 64] |= (uint64_t)1 << (rank % 64);
}

static inline void view_remove(struct view_set *set, int rank)
{
    set->words[rank / 64] &= ~((uint64_t)1 << (rank % 64));
}

static inline struct view_set view_one(int rank)
{
    struct view_set set = {{0}};

    view_add(&set, rank);
    return set;
}

/* The ranks 0 to n - 1. */
static inline struct view_set view_first(int n)
{
    struct view_set set = {{0}};
    int i;

    for (i = 0; i < n; i++)
        view_add(&set, i);
    return set;
}

static inline struct view_set view_or(const struct view_set *a, const struct view_set *b)
{
    struct view_set set;
    int i;

    for (i = 0; i < VIEW_WORDS; i++)
        set.words[i] = a->words[i] | b->words[i];
    return set;
}

static inline struct view_set view_and(const struct view_set *a, const struct view_set *b)
{
    struct view_set set;
    int i;

    for (i = 0; i < VIEW_WORDS; i++)
        set.words[i] = a->words[i] & b->words[i];
    return set;
}

static inline struct view_set view_minus(const struct view_set *a, const struct view_set *b)
{
    struct view_set set;
    int i;

    for (i = 0; i < VIEW_WORDS; i++)
        set.words[i] = a->words[i] & ~b->words[i];
    return set;
}

static inline bool view_empty(const struct view_set *set)
{
    uint64_t any = 0;
    int i;

    for (i = 0; i < VIEW_WORDS; i++)
        any |= set->words[i];
    return any == 0;
}

static inline bool view_within(const struct view_set *part, const struct view_set *whole)
{
    struct view_set rest = view_minus(part, whole);

    return view_empty(&rest);
}

static inline bool view_equal(const struct view_set *a, const struct view_set *b)
{
    return memcmp(a->words, b->words, sizeof(a->words)) == 0;
}

static inline int view_count(const struct view_set *set)
{
    int i, n = 0;

    for (i = 0; i < VIEW_WORDS; i++)
        n += __builtin_popcountll(set->words[i]);
    return n;
}

/* -1: the set is empty. */
static inline int view_lowest(const struct view_set *set)
{
    int i;

    for (i = 0; i < VIEW_WORDS; i++)
        if (set->words[i] != 0)
            return 64 * i + __builtin_ctzll(set->words[i]);
    return -1;
}

#endif
