/* SPDX-License-Identifier: MIT
 *
 * Helpers for the tests of collectives: the kinds of jobs, vectors that every rank can compute for
 * all ranks, and the sums that the ranks must get.
 */
#ifndef VB_TESTS_SUPPORT_COLL_FIXTURE_H
#define VB_TESTS_SUPPORT_COLL_FIXTURE_H

#include "net/coll/coll_priv.h"
#include "tests/support/ranks.h"
#include "tests/support/rdma.h"

/* A setting that the ranks of a test run in: the transport, a progress thread or none, and the
 * number of ranks per host. If split is not 0, each group of `split` ranks counts as one host,
 * although all ranks run on this host. */
struct t_place {
    const char *name;
    enum vb_transport_choice transport;
    bool progress;
    int split;
};

static const struct t_place t_places[] = {
    {"shm", VB_TRANSPORT_SHM, false, 0},
    {"shm, hosts of two ranks", VB_TRANSPORT_SHM, false, 2},
    {"tcp", VB_TRANSPORT_TCP, false, 0},
    {"tcp with a progress thread", VB_TRANSPORT_TCP, true, 0},
    {"verbs", VB_TRANSPORT_VERBS, false, 0},
    {"verbs with a progress thread", VB_TRANSPORT_VERBS, true, 0},
};

#define T_RDMA_RANKS 3 /* the largest number of ranks over RDMA, unless VB_TEST_RANKS is set */

static inline int t_rdma_ranks(void)
{
    const char *text = getenv("VB_TEST_RANKS");
    int64_t n;

    return text != NULL && vb_parse_int(text, &n) ? (int)n : T_RDMA_RANKS;
}

/* Runs the job in every setting of t_places[], with each of the given numbers of ranks. The job
 * finds its setting in *place_p. */
static inline void t_in_every_place(struct t_job *job, const struct t_place **place_p,
                                    const int *worlds, size_t n_worlds)
{
    size_t p, w;

    for (p = 0; p < VB_COUNT(t_places); p++)
        for (w = 0; w < n_worlds && t_runs_over(t_places[p].transport); w++) {
            *place_p = &t_places[p];
            job->transport = t_places[p].transport;
            job->progress = t_places[p].progress;
            job->world = worlds[w];
            /* runs with a progress thread are for finding races, and three ranks suffice for
             * that */
            if (job->progress && job->world > 3)
                continue;
            if (job->transport != VB_TRANSPORT_VERBS || job->world <= t_rdma_ranks())
                t_as_threads(job);
        }
}

/* Returns a whole number from -1000 to 1000, computed from the rank, the index and the round. Sums
 * of such numbers are exact. */
static inline float t_whole(int rank, size_t i, unsigned round)
{
    return (float)((int)((i * 7 + (size_t)rank * 13 + round * 5) % 2001) - 1000);
}

/* Returns a float that need not be a whole number, computed from the rank, the index and the round.
 * Sums of such floats depend on the order of addition. */
static inline float t_any(int rank, size_t i, unsigned round)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xbf58476d1ce4e5b9u + round;

    x = vb_mix(x);
    return (float)((double)(int64_t)x / 9.2e18) * (float)(1u << (x & 15));
}

typedef float (*t_value_fn)(int rank, size_t i, unsigned round);

/* Rounds to the nearest bfloat16 and converts back to float. If two bfloat16 values are equally
 * near, the even one is taken. */
static inline float t_bf16(float value)
{
    uint32_t bits, low;
    float down, up;

    memcpy(&bits, &value, sizeof(bits));
    low = bits & 0xffff0000u;
    memcpy(&down, &low, sizeof(down));
    low += 0x10000u;
    memcpy(&up, &low, sizeof(up));
    if ((double)value - down == (double)up - value)
        return (low >> 16 & 1) == 0 ? up : down;
    return (value < 0 ? -1 : 1) * ((double)value - down) <
                   (value < 0 ? -1 : 1) * ((double)up - value)
               ? down
               : up;
}

/* Returns ((g0 + g1) + g2) + ..., where g0, g1, g2 are the ranks' values of element i. After the
 * collective, element i must have this value. */
static inline float t_sum(t_value_fn fn, int world, size_t i, unsigned round, enum vb_reduce how,
                          enum vb_wire wire)
{
    bool narrow = wire == VB_WIRE_BF16;
    float sum = narrow ? t_bf16(fn(0, i, round)) : fn(0, i, round), next;
    int r;

    for (r = 1; r < world; r++) {
        next = narrow ? t_bf16(fn(r, i, round)) : fn(r, i, round);
        sum += next;
    }
    if (how == VB_REDUCE_MEAN)
        sum *= 1.0f / (float)world;
    return narrow ? t_bf16(sum) : sum;
}

static inline void t_fill(float *data, size_t n, t_value_fn fn, int rank, unsigned round)
{
    size_t i;

    for (i = 0; i < n; i++)
        data[i] = fn(rank, i, round);
}

static inline uint32_t t_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Counts the elements that differ in any bit from the expected sum, and prints the first such
 * element. */
static inline int t_differences(const float *data, size_t n, t_value_fn fn, int world,
                                unsigned round, enum vb_reduce how, enum vb_wire wire)
{
    int wrong = 0;
    float want;
    size_t i;

    for (i = 0; i < n; i++) {
        want = t_sum(fn, world, i, round, how, wire);
        if (t_bits(want) != t_bits(data[i]) && wrong++ == 0)
            fprintf(stderr, "element %zu of %zu elements is %.9g, expected %.9g\n", i, n,
                    (double)data[i], (double)want);
    }
    return wrong;
}

/* Returns 0 if the results of all ranks have the same bits. */
static inline int t_unequal(struct vb_group *g, const float *data, size_t n)
{
    uint32_t all[T_RANKS_MAX], mine = vb_crc32c(0, data, n * sizeof(float));
    int r, wrong = 0;

    if (vb_group_gather(g, &mine, sizeof(mine), all) != VB_OK)
        return 1;
    for (r = 0; r < vb_group_world(g); r++)
        wrong += T_WRONG(all[r] == mine);
    return wrong;
}

#endif
