/* SPDX-License-Identifier: MIT
 *
 * Measures a peer as bench_slowest() measures our allreduce: checks a sum, runs batches with a
 * barrier before each, checks a sum again, and prints the median of the slowest rank's times.
 */
#include "bench/peers/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SAMPLES_MAX 512
#define SAMPLES_MIN 5
#define BATCH_US 200.0
#define BATCH_MAX 4096

static int parse_size(const char **text_p, size_t *size_p)
{
    static const char units[] = "KMG";
    const char *unit;
    char *end;

    *size_p = strtoul(*text_p, &end, 10);
    if (end == *text_p || *size_p > (size_t)4 << 30)
        return -1;
    unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        *size_p <<= 10 * (unit - units + 1);
        end++;
    }
    *text_p = end;
    return *size_p >= sizeof(float) && *size_p % sizeof(float) == 0 && *size_p <= (size_t)4 << 30
               ? 0
               : -1;
}

int peer_parse(const char *sizes, const char *seconds, struct peer_args *args)
{
    char *end;
    size_t *at;

    memset(args, 0, sizeof(*args));
    args->seconds = strtod(seconds, &end);
    if (*end != '\0' || !(args->seconds > 0)) {
        fprintf(stderr, "seconds %s: must be a number above 0\n", seconds);
        return 2;
    }
    do {
        at = &args->sizes[args->n_sizes++];
        if (args->n_sizes > PEER_SIZES_MAX || parse_size(&sizes, at) != 0) {
            fprintf(stderr, "sizes: expected up to %d multiples of 4 bytes, such as 4,64K,1M\n",
                    PEER_SIZES_MAX);
            return 2;
        }
        if (*at > args->largest)
            args->largest = *at;
    } while (*sizes++ == ',');
    return 0;
}

float *peer_alloc(size_t bytes)
{
    size_t huge = (size_t)2 << 20, len = (bytes + huge - 1) / huge * huge;
    void *ptr = aligned_alloc(huge, len);

    if (ptr == NULL)
        return NULL;
    if (getenv("PEER_HUGE") != NULL)
        (void)madvise(ptr, len, MADV_HUGEPAGE);
    memset(ptr, 0, len);
    return ptr;
}

/* Returns a small integer, so that sums are exact in any order. */
static float value(size_t i, int rank)
{
    return (float)(((i ^ i >> 11) + (size_t)rank * 13) & 31);
}

static double count_wrong(struct peer *p, size_t n)
{
    double wrong = 0;
    float sum;
    size_t i;
    int r;

    for (i = 0; i < n; i++)
        p->data[i] = value(i, p->rank);
    p->barrier(p);
    p->allreduce(p, n);
    for (i = 0; i < n; i++) {
        for (sum = 0, r = 0; r < p->ranks; r++)
            sum += value(i, r);
        wrong += p->data[i] != sum;
    }
    p->max(p, &wrong, 1);
    return wrong;
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Makes a batch of n_batch allreduces. Returns the mean time of one allreduce. */
static double batch(struct peer *p, size_t n, int n_batch)
{
    double start;
    int i;

    p->barrier(p);
    start = now_us();
    for (i = 0; i < n_batch; i++)
        p->allreduce(p, n);
    return (now_us() - start) / n_batch;
}

/* Chooses the sizes and the number of batches. All ranks use the numbers of rank 0. */
static void plan(struct peer *p, size_t n, double seconds, int *n_batch_p, int *n_p)
{
    double us, n_batch, samples;
    int i, first = n <= 4096 ? 64 : 1;

    for (us = 0, i = 0; i < 4; i++) /* the first batches warm up */
        us = batch(p, n, first);
    n_batch = p->rank == 0 ? BATCH_US / us + 1 : 0;
    if (n_batch > BATCH_MAX)
        n_batch = BATCH_MAX;
    samples = p->rank == 0 ? seconds * 1e6 / (us * n_batch) : 0;
    if (p->rank == 0 && samples > SAMPLES_MAX)
        samples = SAMPLES_MAX;
    if (p->rank == 0 && samples < SAMPLES_MIN)
        samples = SAMPLES_MIN;
    /* The other ranks add zeros, so that the sum is the number of rank 0. */
    p->data[0] = (float)(int)n_batch;
    p->allreduce(p, 1);
    *n_batch_p = (int)p->data[0];
    p->data[0] = (float)(int)samples;
    p->allreduce(p, 1);
    *n_p = (int)p->data[0];
    p->data[0] = 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int one_size(struct peer *p, size_t bytes, double seconds)
{
    size_t n = bytes / sizeof(float);
    static double us[SAMPLES_MAX];
    int i, n_batch, n_samples;
    double wrong;

    wrong = count_wrong(p, n);
    memset(p->data, 0, bytes); /* zeros, because sums of sums would grow to infinity */
    plan(p, n, seconds, &n_batch, &n_samples);
    for (i = 0; i < n_samples; i++)
        us[i] = batch(p, n, n_batch);
    p->max(p, us, n_samples);
    wrong += count_wrong(p, n);
    if (p->rank != 0)
        return 0;
    qsort(us, (size_t)n_samples, sizeof(us[0]), by_value);
    printf("{\"bench\": \"allreduce\", \"peer\": \"%s\", \"transport\": \"%s\", \"ranks\": %d, "
           "\"bytes\": %zu, \"time_us\": %.3f, \"wrong\": %.0f}\n",
           p->name, p->transport, p->ranks, bytes, us[n_samples / 2], wrong);
    fflush(stdout);
    return wrong != 0;
}

int peer_measure(struct peer *p, const struct peer_args *args)
{
    int i, code = 0;

    for (i = 0; i < args->n_sizes; i++)
        code |= one_size(p, args->sizes[i], args->seconds);
    return code;
}
