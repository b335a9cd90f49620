/* SPDX-License-Identifier: MIT
 *
 * The order of samples. Samples in memory are all shuffled together. A file larger than memory is
 * split into *chunks* of neighbouring samples. The chunks are shuffled, a few of them form a
 * *window*, and the samples of a window are shuffled together.
 */
#include "data/data_priv.h"

#include <stdlib.h>
#include <string.h>

static void shuffle(uint64_t key, int n, uint32_t *list)
{
    uint32_t other;
    int i, j;

    /* The % operator favours small numbers by at most 1 in 2^32, which has no visible effect. */
    for (i = n - 1; i > 0; i--) {
        j = (int)(vb_random(key, (uint64_t)i) % (uint64_t)(i + 1));
        other = list[i];
        list[i] = list[j];
        list[j] = other;
    }
}

void vb_order_fill(uint64_t seed, int64_t epoch, int n, uint32_t *order)
{
    int i;

    for (i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    shuffle(vb_random(seed, (uint64_t)epoch), n, order);
}

void vb_share(int n, int rank, int world, int *first_p, int *n_p)
{
    int first = (int)((int64_t)n * rank / world);

    *n_p = (int)((int64_t)n * (rank + 1) / world) - first;
    *first_p = first;
}

vb_status vb_order_init(struct order *o, uint64_t seed, int n, int window, bool in_order)
{
    memset(o, 0, sizeof(*o));
    o->seed = seed;
    o->n = n;
    o->in_order = in_order;
    o->epoch = -1;
    o->n_chunks = (int)(((int64_t)n + ORDER_CHUNK - 1) / ORDER_CHUNK);
    o->per_window = window > 0 ? (window - 1) / ORDER_CHUNK + 1 : o->n_chunks;
    o->per_window = o->per_window < o->n_chunks ? o->per_window : o->n_chunks;
    o->window = o->per_window < o->n_chunks ? o->per_window * ORDER_CHUNK : n;
    if (in_order)
        return VB_OK;
    o->list = malloc((size_t)o->window * sizeof(*o->list));
    o->chunks = malloc((size_t)o->n_chunks * sizeof(*o->chunks));
    if (o->list != NULL && o->chunks != NULL)
        return VB_OK;
    vb_order_fini(o);
    return vb_err(VB_ERR_NO_MEMORY, "no memory for the order of %d samples", o->window);
}

void vb_order_fini(struct order *o)
{
    free(o->list);
    free(o->chunks);
    o->list = o->chunks = NULL;
}

static int chunk_len(const struct order *o, uint32_t chunk)
{
    return (int)chunk == o->n_chunks - 1 ? o->n - (int)chunk * ORDER_CHUNK : ORDER_CHUNK;
}

static int window_end(const struct order *o, int first)
{
    return o->n_chunks - first > o->per_window ? first + o->per_window : o->n_chunks;
}

static int window_len(const struct order *o, int first)
{
    int c, len = 0;

    for (c = first; c < window_end(o, first); c++)
        len += chunk_len(o, o->chunks[c]);
    return len;
}

static void tell(const struct order *o, int first, bool wanted)
{
    int c;

    if (o->entered == NULL || first < 0 || first >= o->n_chunks)
        return;
    for (c = first; c < window_end(o, first); c++)
        o->entered(o->entered_arg, (int)o->chunks[c], wanted);
}

static void fill_window(struct order *o, int first)
{
    uint64_t key = vb_random(vb_random(o->seed, (uint64_t)o->epoch), ~(uint64_t)first);
    int c, i, n = 0;

    tell(o, first - o->per_window, false);
    tell(o, first, true);
    /* the next window is read from the file while this window is used */
    tell(o, first + o->per_window, true);
    for (c = first; c < window_end(o, first); c++)
        for (i = 0; i < chunk_len(o, o->chunks[c]); i++)
            o->list[n++] = o->chunks[c] * ORDER_CHUNK + (uint32_t)i;
    shuffle(key, n, o->list);
    o->len = n;
}

/* Fills the list with the samples of the window that contains a position. */
static void find_window(struct order *o, int position)
{
    int first = 0, at = 0, len = window_len(o, 0);

    while (position >= at + len) {
        at += len;
        first += o->per_window;
        len = window_len(o, first);
    }
    o->at = at;
    fill_window(o, first);
}

void vb_order_epoch(struct order *o, int64_t epoch)
{
    if (o->epoch == epoch || o->in_order)
        return;
    o->epoch = epoch;
    o->at = o->len = 0;
    if (o->per_window == o->n_chunks) {
        vb_order_fill(o->seed, epoch, o->n, o->list);
        o->len = o->n;
    } else {
        vb_order_fill(o->seed, epoch, o->n_chunks, o->chunks);
    }
}

const uint32_t *vb_order_known(const struct order *o, int position, int n)
{
    if (o->in_order || n < 1 || position < o->at || position + n > o->at + o->len)
        return NULL;
    return o->list + (position - o->at);
}

void vb_order_get(struct order *o, int position, int n, uint32_t *which)
{
    int i;

    for (i = 0; i < n; i++, position++) {
        if (o->in_order) {
            which[i] = (uint32_t)position;
            continue;
        }
        if (position < o->at || position >= o->at + o->len)
            find_window(o, position);
        which[i] = o->list[position - o->at];
    }
}
