/* SPDX-License-Identifier: MIT
 *
 * The functions that run a sparse allreduce (docs/collectives.md): heads are exchanged, parts are
 * sent to the owners, sums are sent to all ranks. Data from a peer is checked before it is used. No
 * memory here grows with the number of features.
 */
#include "net/sparse/sparse_priv.h"

vb_status vb_sparse_merge(struct vb_sparse *s, uint32_t *index, float *value, size_t *n_p)
{
    size_t n = *n_p;
    uint32_t largest;
    uint64_t *sorted;

    if (n > s->opts.max_nnz)
        return vb_err(VB_ERR_USAGE, "cannot merge a list of %zu elements: the maximum is %zu", n,
                      s->opts.max_nnz);
    largest = vb_sparse_largest(index, n);
    if (largest >= s->opts.features)
        return vb_err(VB_ERR_USAGE,
                      "cannot merge a list with index %u: there are only %llu features", largest,
                      (unsigned long long)s->opts.features);
    vb_sparse_pack(index, value, n, s->a);
    sorted = vb_sort_words(s->a, s->b, n, vb_bits_below((uint64_t)largest + 1));
    *n_p = vb_sparse_add_up(sorted, n, sorted);
    vb_sparse_unpack(sorted, *n_p, 1.0f, index, value);
    return VB_OK;
}

/* ---- heads ----------------------------------------------------------------------------------- */

static const char *const refusals[] = {
    [SPARSE_FINE] = "nothing",
    [SPARSE_TOO_LONG] = "a list that is too long",
    [SPARSE_NOT_ASCENDING] = "a list that is not in ascending order",
    [SPARSE_OUT_OF_RANGE] = "a list with an index that is not below the number of features",
};

static enum sparse_refusal check_list(const struct vb_sparse *s, const uint32_t *index, size_t n)
{
    if (n > s->opts.max_nnz)
        return SPARSE_TOO_LONG;
    if (!vb_sparse_ascending(index, n))
        return SPARSE_NOT_ASCENDING;
    if (n > 0 && index[n - 1] >= s->opts.features)
        return SPARSE_OUT_OF_RANGE;
    return SPARSE_FINE;
}

/* Copies the list into the window and sends its head to all others. For an invalid list a head is
 * sent, too, so that the call fails on all ranks. */
static vb_status send_list(struct vb_sparse *s, const uint32_t *index, const float *value, size_t n,
                           enum vb_reduce how)
{
    struct sparse_head *head = (void *)(s->base + vb_sparse_own_head_at(s));
    enum sparse_refusal refused = check_list(s, index, n);
    size_t len;
    bool along;

    if (refused != SPARSE_FINE)
        n = 0;
    along = s->model.along > 0 && n <= s->model.along;
    *head = (struct sparse_head){.seq = s->seq,
                                 .how = (uint32_t)how,
                                 .features = s->opts.features,
                                 .n = n,
                                 .refused = (uint32_t)refused,
                                 .along = along};
    vb_sparse_pack(index, value, n, sparse_list(s));
    vb_sparse_sample(sparse_list(s), s->limits.max_samples, head);
    len = vb_sparse_head_bytes(head->n_samples);
    memcpy(s->heads[s->rank], head, len);
    if (along)
        len = vb_sparse_take_along(s, head);
    return vb_sparse_send_heads(s, len);
}

/* Checks a copy of the head of a peer, because the peer cannot change the copy. */
static vb_status take_head(struct vb_sparse *s, int rank)
{
    struct sparse_limits limits = s->limits;
    struct sparse_head *head = s->heads[rank];
    const char *why;

    limits.max_nnz = s->peers[rank].max_nnz;
    memcpy(head, s->base + vb_sparse_head_at(s, rank), s->at.head_bytes);
    if (head->seq != s->seq)
        return vb_sparse_broken(s, rank, "the head of the list has a wrong sequence number");
    why = vb_sparse_head_wrong(head, &limits);
    return why == NULL ? VB_OK : vb_sparse_broken(s, rank, why);
}

/* Checks that the heads of all ranks agree. All ranks have the same heads, so if this fails, it
 * fails on all ranks, and all can continue with the next call. */
static vb_status compare_heads(struct vb_sparse *s, size_t n)
{
    const struct sparse_head *mine = s->heads[s->rank];
    vb_status st = VB_OK;
    int r;

    if (mine->refused != SPARSE_FINE)
        return vb_err(VB_ERR_USAGE,
                      "%s: this rank brought %s (the list has %zu words, at most %zu are allowed; "
                      "there are %llu features)",
                      s->what, refusals[mine->refused], n, s->opts.max_nnz,
                      (unsigned long long)s->opts.features);
    for (r = 0; r < s->world && st == VB_OK; r++) {
        const struct sparse_head *head = s->heads[r];
        const char *host = host_of(s, r);
        int rank = group_rank(s, r);

        if (head->refused != SPARSE_FINE)
            st = vb_err(VB_ERR_INPUT, "%s: rank %d (%s) brought %s", s->what, rank, host,
                        refusals[head->refused]);
        else if (head->features != mine->features)
            st = vb_err(VB_ERR_INPUT, "%s: rank %d (%s) has %llu features, but this rank has %llu",
                        s->what, rank, host, (unsigned long long)head->features,
                        (unsigned long long)mine->features);
        else if (head->how != mine->how)
            st = vb_err(VB_ERR_INPUT,
                        "%s: rank %d (%s) asks for a different reduction (sum or mean) than this "
                        "rank",
                        s->what, rank, host);
    }
    return st;
}

static vb_status exchange_heads(struct vb_sparse *s, size_t n)
{
    vb_status st = vb_sparse_wait_heads(s);
    int r;

    for (r = 0; r < s->world && st == VB_OK; r++)
        if (r != s->rank)
            st = take_head(s, r);
    if (st == VB_OK)
        st = vb_sparse_wait_sent(s);
    return st == VB_OK ? compare_heads(s, n) : st;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static vb_status take_part(struct vb_sparse *s, int rank)
{
    uint64_t first = s->plan.splits[s->rank], end = s->plan.splits[s->rank + 1];
    const char *mapped = s->peers[rank].mapped;
    struct sparse_run *part = &s->runs[rank];
    vb_status st;

    if (mapped != NULL) {
        *part =
            vb_sparse_part_of(s, (const void *)(mapped + s->at.list), s->heads[rank]->n, s->rank);
    } else {
        st = vb_sparse_wait_list(s, rank, &s->peers[rank].part);
        if (st != VB_OK)
            return st;
        part->words = (const void *)(s->base + vb_sparse_part_at(s, rank, s->rank));
        part->n = s->peers[rank].part.words;
    }
    if (rank == s->rank)
        return VB_OK;
    if (mapped != NULL) {
        s->wire_bytes += part->n * sizeof(uint64_t);
        vb_group_touched(s->group, group_rank(s, rank), part->n * sizeof(uint64_t), 0);
    }
    if (part->n > vb_sparse_part_room(&s->plan, rank, s->rank))
        return vb_sparse_broken(s, rank, "the part is larger than the samples in its head allow");
    if (!vb_sparse_words_fit(part->words, part->n, first, end))
        return vb_sparse_broken(s, rank,
                                "the indices of the part are out of order or out of range");
    return VB_OK;
}

/* Sums the parts of all ranks in this rank's index range, and writes the sum to its place in the
 * window. */
static vb_status sum_parts(struct vb_sparse *s, size_t *n_p)
{
    uint64_t *sum = (void *)(s->base + vb_sparse_sum_at(s, s->rank)), part_ns;
    vb_status st = VB_OK;
    int r;

    for (r = 0; r < s->world && st == VB_OK; r++)
        st = take_part(s, r);
    part_ns = vb_trace_begin_part();
    if (st == VB_OK)
        *n_p = vb_sparse_sum_runs(s->runs, s->world, s->a, s->b, sum);
    vb_trace_end(part_ns, VB_OP_REDUCE, st == VB_OK ? *n_p * sizeof(uint64_t) : 0);
    return st;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Appends an owner's sum of n words to the result. */
static vb_status append(struct vb_sparse *s, int owner, size_t n, float divisor, size_t *at_p)
{
    const struct sparse_peer *peer = &s->peers[owner];
    const char *base = peer->mapped != NULL ? peer->mapped : s->base;
    uint32_t *index = s->index + *at_p;

    if (n > vb_sparse_sum_room(&s->plan, owner) || n > s->room - *at_p)
        return vb_sparse_broken(s, owner, "the sum is larger than the samples allow");
    vb_sparse_unpack((const void *)(base + vb_sparse_sum_at(s, owner)), n, divisor, index,
                     s->value + *at_p);
    *at_p += n;
    if (owner == s->rank)
        return VB_OK;
    if (n > 0 && (!vb_sparse_ascending(index, n) || index[0] < s->plan.splits[owner] ||
                  index[n - 1] >= s->plan.splits[owner + 1]))
        return vb_sparse_broken(s, owner,
                                "the indices of the sum are out of order or out of range");
    if (peer->mapped != NULL) {
        s->wire_bytes += n * sizeof(uint64_t);
        vb_group_touched(s->group, group_rank(s, owner), n * sizeof(uint64_t), 0);
    }
    return VB_OK;
}

static vb_status take_sums(struct vb_sparse *s, size_t own, float divisor, size_t *n_p)
{
    vb_status st = VB_OK;
    int o;

    *n_p = 0;
    for (o = 0; o < s->world && st == VB_OK; o++) {
        if (o != s->rank)
            st = vb_sparse_wait_list(s, o, &s->peers[o].sum);
        if (st == VB_OK)
            st = append(s, o, o == s->rank ? own : s->peers[o].sum.words, divisor, n_p);
    }
    return st;
}

/* ---- short lists ----------------------------------------------------------------------------- */

/* Short lists are sent with their heads. Every rank then has all lists and sums them itself, so two
 * of the three rounds are not needed. This is faster as long as merging all lists takes less time
 * than two consecutive messages. sparse_path.c computes the maximum length of such lists. */
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

/* Sums all lists in rank order, as an owner does. The result is checked again, because peers can
 * write to the memory of the lists during the sum. */
static vb_status sum_lists(struct vb_sparse *s, float divisor, size_t *n_p)
{
    struct sparse_run *run;
    uint64_t part_ns;
    size_t n;
    int r;

    for (r = 0; r < s->world; r++) {
        run = &s->runs[r];
        run->n = s->heads[r]->n;
        run->words = sparse_list(s);
        if (r == s->rank)
            continue;
        run->words = (const void *)(s->base + vb_sparse_head_at(s, r) + s->at.head_bytes);
        if (!vb_sparse_words_fit(run->words, run->n, 0, s->opts.features))
            return vb_sparse_broken(s, r,
                                    "the indices of the list are out of order or out of range");
    }
    part_ns = vb_trace_begin_part();
    n = vb_sparse_sum_runs(s->runs, s->world, s->a, s->b, s->a);
    vb_trace_end(part_ns, VB_OP_REDUCE, n * sizeof(uint64_t));
    if (!vb_sparse_words_fit(s->a, n, 0, s->opts.features))
        return vb_sparse_broken(s, (s->rank + 1) % s->world, "a list changed while it was summed");
    vb_sparse_unpack(s->a, n, divisor, s->index, s->value);
    *n_p = n;
    return VB_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */

static vb_status sparse_sum(struct vb_sparse *s, float divisor, size_t *n_p)
{
    vb_status st;
    size_t own = 0;

    vb_sparse_plan_make(&s->plan, s->heads);
    st = vb_sparse_send_parts(s);
    if (st == VB_OK)
        st = sum_parts(s, &own);
    if (st == VB_OK)
        st = vb_sparse_send_sums(s, own);
    if (st == VB_OK)
        st = take_sums(s, own, divisor, n_p);
    return st == VB_OK ? vb_sparse_wait_sent(s) : st;
}

vb_status vb_sparse_start(struct vb_sparse *s, const uint32_t *index, const float *value, size_t n,
                          enum vb_reduce how)
{
    s->started = s->failed;
    if (s->failed != VB_OK)
        return vb_err(s->failed,
                      "%s has failed: this sparse allreduce can only be closed, or the ranks must "
                      "regroup",
                      s->what);
    group_lock(s->group); /* the handler of notes reads seq */
    s->seq++;
    group_unlock(s->group);
    snprintf(s->what, sizeof(s->what), "sparse allreduce %u", s->seq - s->first_seq);
    s->started = vb_sparse_check_members(s);
    if (s->started != VB_OK)
        return s->started;
    s->asked = n;
    s->how = how;
    s->begin_ns = vb_trace_begin();
    s->started = send_list(s, index, value, n, how);
    return s->started;
}

vb_status vb_sparse_finish(struct vb_sparse *s, const uint32_t **index_p, const float **value_p,
                           size_t *n_p)
{
    float divisor = s->how == VB_REDUCE_MEAN ? (float)s->world : 1.0f;
    vb_status st = s->started;
    size_t n_sum = 0;

    if (st == VB_OK)
        st = exchange_heads(s, s->asked);
    if (st != VB_OK)
        return st;
    s->took = vb_sparse_choose(s);
    if (s->took == VB_SPARSE_DENSE)
        st = vb_sparse_dense_sum(s, divisor, &n_sum);
    else if (vb_sparse_all_along(s))
        st = sum_lists(s, divisor, &n_sum);
    else
        st = sparse_sum(s, divisor, &n_sum);
    if (st != VB_OK)
        return st;
    vb_trace_end_with(s->begin_ns, VB_OP_SPARSE_ALLREDUCE, n_sum * sizeof(uint64_t), -1,
                      vb_trace_request(s->channel, group_rank(s, s->rank), s->seq),
                      VB_TRACE_LANE + VB_TRACE_FROM);
    *index_p = s->index;
    *value_p = s->value;
    *n_p = n_sum;
    return VB_OK;
}

vb_status vb_sparse_allreduce(struct vb_sparse *s, const uint32_t *index, const float *value,
                              size_t n, enum vb_reduce how, const uint32_t **index_p,
                              const float **value_p, size_t *n_p)
{
    vb_status st = vb_sparse_start(s, index, value, n, how);

    return st == VB_OK ? vb_sparse_finish(s, index_p, value_p, n_p) : st;
}

enum vb_sparse_path vb_sparse_took(const struct vb_sparse *s)
{
    return s->took;
}

double vb_sparse_predict_us(const struct vb_sparse *s, enum vb_sparse_path path)
{
    return vb_sparse_predict_ns(s, path) / 1000;
}

uint64_t vb_sparse_wire_bytes(const struct vb_sparse *s)
{
    return s->wire_bytes + (s->dense != NULL ? vb_coll_wire_bytes(s->dense) : 0);
}
