/* SPDX-License-Identifier: MIT
 *
 * Short lists are sent with their heads. Two of the three rounds are then not needed, because every
 * rank has all lists and sums them itself. This is faster as long as merging all lists takes less
 * time than two consecutive messages. sparse_path.c computes the maximum length of such lists.
 */
#include "net/sparse/sparse_priv.h"

#define ALONG_MAX ((size_t)4096)      /* maximum number of words of a list */
#define ALONG_TOTAL ((size_t)4 << 20) /* maximum number of bytes in the window for such lists */

/* Returns the number of words for which the window has space behind each head. It is not larger
 * than the longest list that any rank may have. */
size_t vb_sparse_along_room(const struct vb_sparse *s)
{
    size_t slots = 2 + 2 * (size_t)s->world, most = 0, fit;
    int r;

    for (r = 0; r < s->world; r++)
        most = s->peers[r].max_nnz > most ? (size_t)s->peers[r].max_nnz : most;
    most = most < ALONG_MAX ? most : ALONG_MAX;
    fit = ALONG_TOTAL / slots / sizeof(uint64_t);
    return most < fit ? most : fit;
}

/* Copies the list behind its head. Returns the length of head and list together. */
size_t vb_sparse_take_along(const struct vb_sparse *s, struct sparse_head *head)
{
    size_t len = (size_t)head->n * sizeof(uint64_t);

    memcpy((char *)head + s->at.head_bytes, sparse_list(s), len);
    return s->at.head_bytes + len;
}

bool vb_sparse_all_along(const struct vb_sparse *s)
{
    int r;

    for (r = 0; r < s->world; r++)
        if (s->heads[r]->along == 0)
            return false;
    return true;
}

static vb_status take_list(struct vb_sparse *s, int rank)
{
    const char *slot = s->base + vb_sparse_head_at(s, rank);
    struct sparse_run *run = &s->runs[rank];

    run->n = s->heads[rank]->n;
    run->words = sparse_list(s);
    if (rank == s->rank)
        return VB_OK;
    run->words = (const void *)(slot + s->at.head_bytes);
    if (!vb_sparse_words_fit(run->words, run->n, 0, s->opts.features))
        return vb_sparse_broken(s, rank,
                                "the indices of the list are out of order or out of range");
    return VB_OK;
}

/* Sums all lists in rank order, as an owner does. The result is checked again, because peers can
 * write to the memory of the lists during the sum. */
vb_status vb_sparse_sum_lists(struct vb_sparse *s, float divisor, size_t *n_p)
{
    vb_status st = VB_OK;
    size_t n;
    int r;

    for (r = 0; r < s->world && st == VB_OK; r++)
        st = take_list(s, r);
    if (st != VB_OK)
        return st;
    n = vb_sparse_sum_runs(s->runs, s->world, s->a, s->b, s->a);
    if (!vb_sparse_words_fit(s->a, n, 0, s->opts.features))
        return vb_sparse_broken(s, (s->rank + 1) % s->world, "a list changed while it was summed");
    vb_sparse_unpack(s->a, n, divisor, s->index, s->value);
    *n_p = n;
    return VB_OK;
}
