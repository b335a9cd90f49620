/* SPDX-License-Identifier: MIT
 *
 * The bare allreduce over a shared mapping. Large vectors: between two barriers, each rank sums
 * its share from the memory of all ranks and writes the sum there. Small vectors: each rank copies
 * its data to a slot, writes the sequence number last, and sums all slots, which saves a barrier.
 */
#include "bench/peers/bare.h"

#include <string.h>

vb_status bare_map(struct bare *b, size_t largest)
{
    size_t page = 4096, huge = (size_t)2 << 20;
    size_t head = (sizeof(struct bare_rank) + page - 1) / page * page;
    /* The additional pages let the data of the ranks start in different cache sets. */
    size_t each = (largest + huge - 1) / huge * huge + 3 * page;
    struct vb_mem mem;
    vb_status st = vb_mem_map_shared("verbena-bare", (head + each) * (size_t)b->peer.ranks, &mem);
    int i;

    if (st == VB_OK)
        st = vb_mem_populate(&mem);
    for (i = 0; i < b->peer.ranks && st == VB_OK; i++) {
        b->shared[i] = (struct bare_rank *)((char *)mem.ptr + head * (size_t)i);
        b->data[i] =
            (float *)(void *)((char *)mem.ptr + head * (size_t)b->peer.ranks + each * (size_t)i);
    }
    return st;
}

void bare_meet(struct bare *b)
{
    uint32_t at = ++b->meetings;
    int i;

    /* Pairs with the acquire below. */
    atomic_store_explicit(&b->shared[b->peer.rank]->at, at, memory_order_release);
    for (i = 0; i < b->peer.ranks; i++)
        while ((int32_t)(atomic_load_explicit(&b->shared[i]->at, memory_order_acquire) - at) < 0)
            bare_relax(b);
}

static void sum_2(float *restrict a, float *restrict b, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        a[i] = b[i] = a[i] + b[i];
}

static void sum_3(float *restrict a, float *restrict b, float *restrict c, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        a[i] = b[i] = c[i] = (a[i] + b[i]) + c[i];
}

static void sum_many(struct bare *b, size_t first, size_t n)
{
    float sum;
    size_t i;
    int r;

    for (i = first; i < first + n; i++) {
        for (sum = b->data[0][i], r = 1; r < b->peer.ranks; r++)
            sum += b->data[r][i];
        for (r = 0; r < b->peer.ranks; r++)
            b->data[r][i] = sum;
    }
}

static void large(struct bare *b, size_t n)
{
    size_t first, mine = bare_share(b, n, b->peer.rank, &first);

    bare_meet(b);
    if (b->peer.ranks == 2)
        sum_2(b->data[0] + first, b->data[1] + first, mine);
    else if (b->peer.ranks == 3)
        sum_3(b->data[0] + first, b->data[1] + first, b->data[2] + first, mine);
    else
        sum_many(b, first, mine);
    bare_meet(b);
}

/* A slot is used again two rounds later. A rank that has seen the sequence numbers of all ranks in
 * the round between knows that all ranks have read this slot. */
static void small(struct bare *b, size_t n)
{
    uint32_t seq = ++b->seq;
    struct bare_slot *slot = &b->shared[b->peer.rank]->slots[seq % 2];
    int r;

    memcpy(slot->payload, b->peer.data, n * sizeof(float));
    atomic_store_explicit(&slot->seq, seq, memory_order_release); /* pairs with the acquire below */
    for (r = 0; r < b->peer.ranks; r++) {
        slot = &b->shared[r]->slots[seq % 2];
        while (atomic_load_explicit(&slot->seq, memory_order_acquire) != seq)
            bare_relax(b);
        if (r == 0)
            memcpy(b->peer.data, slot->payload, n * sizeof(float));
        else
            bare_add(b->peer.data, slot->payload, n);
    }
}

void bare_shm_allreduce(struct peer *p, size_t n_elems)
{
    struct bare *b = (struct bare *)p;

    /* Barriers are slower if ranks have to yield: then slots are used for larger vectors, too. */
    if (n_elems * sizeof(float) <= (b->crowded ? BARE_SLOT_BYTES : BARE_SLOT_BYTES / 4))
        small(b, n_elems);
    else
        large(b, n_elems);
}
