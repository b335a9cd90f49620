/* SPDX-License-Identifier: MIT
 *
 * What lets updates go on while another thread, the reader, writes the weights to a checkpoint.
 * Before the updater first writes one of the features of a block, it copies the block *aside*. The
 * reader takes a block from there, or from where it is if it was not touched.
 *
 * There is a place aside for each block, so none is searched, none can be missing, and the updater
 * never waits for the reader's disk. A smaller room would be full when the disk is slow, and then
 * either training waits or the checkpoint is lost: just when it takes long to get the next one.
 *
 * The mark of a block says who has it. The updater takes an untouched block and leaves it kept; the
 * reader takes it for the time of a copy of one block, and gives it back. So the two never use the
 * same memory at once, except that both read what is kept. While nothing is being saved, updates
 * look at one variable.
 */
#include "kernels/sparse/aside_priv.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POPULATE_MAX ((size_t)1 << 30)
#define PARALLEL 8192 /* keys from which on several threads share the work */
#define CHUNK 1024    /* keys that a thread takes at a time */
#define SPINS 2000    /* looks before a nap: a copy of a block is much shorter */
#define NAP_NS 20000
#define LOST_NS UINT64_C(10000000000) /* after so long the reader is not waited for any more */

enum mark { UNTOUCHED, READING, KEEPING, KEPT };

struct aside {
    bool on; /* used by the updater only */
    uint64_t features;
    size_t n_blocks, words;
    const float *w;
    const uint32_t *state;
    float *kept_w;
    uint32_t *kept_state;
    struct vb_mem mem;
    _Atomic unsigned char *marks; /* (n_blocks) */
    _Atomic bool lost;
};

vb_status vb_k_aside_create(uint64_t features, int words, const float *w, const uint32_t *state,
                            bool now, struct aside **aside_p)
{
    struct aside *a = calloc(1, sizeof(*a));
    size_t bytes = (size_t)features * (1 + (size_t)words) * sizeof(float);
    vb_status st;

    if (a == NULL)
        return vb_err_sys("calloc");
    VB_ASSERT(words <= ASIDE_WORDS);
    a->features = features;
    a->words = (size_t)words;
    a->w = w;
    a->state = state;
    a->n_blocks = (size_t)(features + ASIDE_BLOCK - 1) / ASIDE_BLOCK;
    a->marks = calloc(a->n_blocks, sizeof(*a->marks));
    st = a->marks != NULL ? vb_mem_map_private(bytes, &a->mem) : vb_err_sys("calloc");
    if (st == VB_OK && now &&
        bytes <= POPULATE_MAX) /* pages that are touched in a step make it longer */
        st = vb_mem_populate(&a->mem);
    if (st != VB_OK) {
        vb_k_aside_destroy(a);
        return st;
    }
    a->kept_w = a->mem.ptr;
    a->kept_state = (uint32_t *)(void *)(a->kept_w + features);
    *aside_p = a;
    return VB_OK;
}

void vb_k_aside_destroy(struct aside *aside)
{
    if (aside == NULL)
        return;
    vb_mem_unmap(&aside->mem);
    free(aside->marks);
    free(aside);
}

void vb_k_aside_begin(struct aside *a)
{
    size_t b;

    for (b = 0; b < a->n_blocks; b++)
        atomic_store_explicit(&a->marks[b], UNTOUCHED, memory_order_relaxed);
    atomic_store_explicit(&a->lost, false, memory_order_relaxed);
    a->on = true;
}

void vb_k_aside_end(struct aside *a)
{
    a->on = false;
}

bool vb_k_aside_is_on(const struct aside *a)
{
    return a != NULL && a->on;
}

static void pause_a_while(int *spins)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};

    if (++*spins > SPINS)
        nanosleep(&nap, NULL);
}

static size_t features_of(const struct aside *a, size_t block)
{
    size_t left = (size_t)a->features - block * ASIDE_BLOCK;

    return left < ASIDE_BLOCK ? left : ASIDE_BLOCK;
}

/* Takes an untouched block. Returns false if it is kept, or another thread of the updater keeps it;
 * the caller waits for that thread before it writes. */
static bool take_to_keep(struct aside *a, size_t block)
{
    unsigned char was = UNTOUCHED;
    uint64_t until_ns = 0;
    int spins = 0;

    /* the acquire pairs with the release in vb_k_aside_read(): the reader has read the block */
    while (!atomic_compare_exchange_weak_explicit(&a->marks[block], &was, KEEPING,
                                                  memory_order_acquire, memory_order_relaxed)) {
        if (was == KEEPING || was == KEPT)
            return false;
        if (was == READING)
            pause_a_while(&spins);
        was = UNTOUCHED;
        if (spins < SPINS)
            continue;
        until_ns = until_ns == 0 ? vb_clock_ns() + LOST_NS : until_ns;
        if (vb_clock_ns() < until_ns)
            continue;
        atomic_store_explicit(&a->lost, true, memory_order_release);
        return false;
    }
    return true;
}

static void keep(struct aside *a, size_t block)
{
    size_t first = block * ASIDE_BLOCK, n;

    if (atomic_load_explicit(&a->marks[block], memory_order_relaxed) == KEPT ||
        !take_to_keep(a, block))
        return;
    n = features_of(a, block);
    memcpy(a->kept_w + first, a->w + first, n * sizeof(*a->w));
    if (a->words > 0)
        memcpy(a->kept_state + first * a->words, a->state + first * a->words,
               n * a->words * sizeof(*a->state));
    /* pairs with the acquire in vb_k_aside_read() */
    atomic_store_explicit(&a->marks[block], KEPT, memory_order_release);
}

static void keep_some(struct aside *a, const uint32_t *keys, size_t n)
{
    size_t i, block, last = SIZE_MAX;

    for (i = 0; i < n; i++) {
        block = keys[i] / ASIDE_BLOCK;
        if (block != last)
            keep(a, block);
        last = block;
    }
}

void vb_k_aside_keep(struct aside *a, const uint32_t *keys, size_t n)
{
    size_t c, chunks = (n + CHUNK - 1) / CHUNK;

    if (n < PARALLEL) {
        keep_some(a, keys, n);
        return;
    }
#pragma omp parallel for schedule(static)
    for (c = 0; c < chunks; c++)
        keep_some(a, keys + c * CHUNK, (c + 1) * CHUNK < n ? CHUNK : n - c * CHUNK);
}

void vb_k_aside_keep_all(struct aside *a)
{
    size_t b;

#pragma omp parallel for schedule(static)
    for (b = 0; b < a->n_blocks; b++)
        keep(a, b);
}

static void copy(const struct aside *a, size_t block, const float *from_w,
                 const uint32_t *from_state, float *w, uint32_t *state)
{
    size_t first = block * ASIDE_BLOCK, n = features_of(a, block);

    memcpy(w, from_w + first, n * sizeof(*w));
    if (a->words > 0)
        memcpy(state, from_state + first * a->words, n * a->words * sizeof(*state));
}

bool vb_k_aside_read(struct aside *a, size_t block, float w[ASIDE_BLOCK],
                     uint32_t state[ASIDE_BLOCK * ASIDE_WORDS])
{
    unsigned char was = UNTOUCHED;
    int spins = 0;

    /* the acquire pairs with the release in keep() */
    while (!atomic_compare_exchange_weak_explicit(&a->marks[block], &was, READING,
                                                  memory_order_acquire, memory_order_acquire)) {
        if (was == KEPT) {
            copy(a, block, a->kept_w, a->kept_state, w, state);
            return true;
        }
        if (was == KEEPING)
            pause_a_while(&spins);
        was = UNTOUCHED;
    }
    copy(a, block, a->w, a->state, w, state);
    /* pairs with the acquire in take_to_keep() */
    atomic_store_explicit(&a->marks[block], UNTOUCHED, memory_order_release);
    return !atomic_load_explicit(&a->lost, memory_order_acquire);
}
