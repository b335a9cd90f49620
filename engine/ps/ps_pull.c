/* SPDX-License-Identifier: MIT
 *
 * A worker reads parameters: from the servers' memory if it is mapped, from the last reply, or with
 * get. Without a bound the worker starts the get right after a push, so that the get overlaps the
 * next computation. The get writes to the one of two areas that the computation does not read.
 */
#include "engine/ps/ps.h"

#include <string.h>

static float *area_of(const struct ps_worker *w, int which)
{
    return (float *)(void *)((char *)vb_window_ptr(w->shards) + w->lay.area[which]);
}

uint64_t vb_ps_worker_version(const struct ps_worker *w)
{
    const struct ps_head *head = (const void *)w->links[0].mapped_shards;

    return atomic_load_explicit(&head->version, memory_order_acquire);
}

/* head_at() returns the offset of this worker's copy of server k's head, own_head() returns a
 * pointer to the copy. */
static size_t head_at(const struct ps_worker *w, int k)
{
    return w->lay.area_heads + (size_t)k * sizeof(struct ps_head);
}

static struct ps_head *own_head(const struct ps_worker *w, int k)
{
    return (void *)((char *)vb_window_ptr(w->shards) + head_at(w, k));
}

/* Sets the version of the parameters that the worker has read, also for the next push. */
static void use_version(struct ps_worker *w, uint64_t version)
{
    w->version = w->base = version;
    w->base_flag = 0;
}

static const float *copy_mapped(struct ps_worker *w)
{
    float *to = area_of(w, 0);
    int k;

    use_version(w, vb_ps_worker_version(w));
    for (k = 0; k < w->job->servers; k++) {
        const float *from = (const void *)(w->links[k].mapped_shards + w->lay.params);

        vb_k_shared_read(from, w->lay.n[k], to + w->lay.first[k]);
        vb_ps_worker_touched(w, k, w->lay.n[k], 0);
    }
    return to;
}

/* ---- replies --------------------------------------------------------------------------------- */

/* Returns the number of replies that have come from every server. */
static uint32_t replies_of_all(const struct ps_worker *w)
{
    uint32_t least = UINT32_MAX, n;
    int k;

    for (k = 0; k < w->job->servers; k++) {
        n = w->links[k].replies;
        least = n < least ? n : least;
    }
    return least;
}

/* Returns whether the worker has the reply that it waits for. Dense: the first reply comes before
 * any push, and then one reply comes with each acknowledgement. A ticket means that server 0 has
 * acknowledged all pushes but the last; other servers may be slower. The worker waits until at most
 * one more reply can come, because one more reply does not overwrite the newest reply. Sparse: one
 * reply comes for each push. */
static bool reply_is_there(void *arg)
{
    const struct ps_worker *w = arg;
    uint32_t need = w->pushed;

    if (!w->job->sparse && w->job->bound >= 0)
        need = 0;
    return replies_of_all(w) >= (need > 0 ? need : 1);
}

static vb_status newest_reply(struct ps_worker *w, const float **values_p)
{
    vb_status st = vb_ps_await(w, reply_is_there, w, "parameters", 0, false);
    uint32_t n = replies_of_all(w);
    const char *own = vb_window_ptr(w->slots), *values;

    if (st != VB_OK)
        return st;
    values = own + vb_ps_reply_to(w->job, &w->lay, (int)((n - 1) % 2));
    w->version = atomic_load_explicit(&((const struct ps_head *)(const void *)values - 1)->version,
                                      memory_order_relaxed);
    w->base = n;
    w->base_flag = PS_BASE_REPLY;
    *values_p = (const void *)values;
    return VB_OK;
}

/* ---- get ------------------------------------------------------------------------------------- */

/* Starts a get from server k, or from the standby if the server is gone. */
static vb_status get(struct ps_worker *w, int k, size_t to, size_t from, size_t bytes,
                     struct vb_op *op)
{
    vb_status st;

    do {
        st = vb_get_wait(w->shards, w->links[k].rank, to, from, bytes, op, PS_PUT_MS);
        if (st != VB_ERR_PEER)
            break;
        st = vb_ps_failover(w, k);
    } while (st == VB_OK);
    return st;
}

/* Starts the gets from all servers. The head of a shard is read first, so that the parameters are
 * not older than the version in the head. */
static vb_status start_gets(struct ps_worker *w, int area)
{
    vb_status st = VB_OK;
    int k;

    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_link *link = &w->links[k];

        st = get(w, k, head_at(w, k), 0, sizeof(struct ps_head), &link->head_op);
        if (st == VB_OK)
            st = get(w, k, w->lay.area[area] + w->lay.first[k] * sizeof(float), w->lay.params,
                     w->lay.n[k] * sizeof(float), &link->get_op);
    }
    w->getting = st == VB_OK;
    return st;
}

/* Waits for the gets from all servers. VB_AGAIN: a server is gone, and the caller must start the
 * gets again. */
static vb_status wait_for_gets(struct ps_worker *w)
{
    vb_status st = VB_OK, again = VB_OK;
    int k, i;

    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct vb_op *ops[] = {&w->links[k].head_op, &w->links[k].get_op};

        for (i = 0; i < 2 && st == VB_OK; i++) {
            st = vb_ps_op_await(w, ops[i], i == 0 ? "a version" : "parameters", k);
            again = st == VB_AGAIN ? st : again;
            st = st == VB_AGAIN ? VB_OK : st;
        }
    }
    w->getting = false;
    return st == VB_OK ? again : st;
}

static vb_status get_all(struct ps_worker *w, const float **params_p)
{
    vb_status st;

    do {
        st = w->getting ? VB_OK : start_gets(w, 1 - w->area);
        if (st == VB_OK)
            st = wait_for_gets(w);
    } while (st == VB_AGAIN);
    if (st != VB_OK)
        return st;
    w->area = 1 - w->area;
    use_version(w, atomic_load(&own_head(w, 0)->version));
    *params_p = area_of(w, w->area);
    return VB_OK;
}

vb_status vb_ps_worker_pull(struct ps_worker *w, const float **params_p)
{
    if (w->mapped) {
        *params_p = copy_mapped(w);
        return VB_OK;
    }
    return w->lay.replies ? newest_reply(w, params_p) : get_all(w, params_p);
}

vb_status vb_ps_worker_prefetch(struct ps_worker *w)
{
    return w->overlapped ? start_gets(w, 1 - w->area) : VB_OK;
}

vb_status vb_ps_worker_values(struct ps_worker *w, const uint32_t *keys, size_t n,
                              const float **values_p)
{
    float *to = area_of(w, 0);
    size_t i, at = 0;
    int k;

    if (!w->mapped)
        return newest_reply(w, values_p);
    use_version(w, vb_ps_worker_version(w));
    for (k = 0; k < w->job->servers; k++) {
        const float *from = (const void *)(w->links[k].mapped_shards + w->lay.params);
        size_t end = w->lay.first[k] + w->lay.n[k];

        for (i = at; i < n && keys[i] < end; i++)
            ;
        vb_k_shared_gather(from - w->lay.first[k], keys + at, i - at, to + at);
        vb_ps_worker_touched(w, k, i - at, 0);
        at = i;
    }
    *values_p = to;
    return VB_OK;
}

void vb_ps_worker_touched(const struct ps_worker *w, int k, size_t read, size_t written)
{
    vb_group_touched(w->group, w->links[k].rank, read * sizeof(float), written * sizeof(float));
}

/* ---- hogwild --------------------------------------------------------------------------------- */

float *vb_ps_worker_shared(struct ps_worker *w, void **state_p)
{
    char *base = (char *)w->links[0].mapped_shards;

    *state_p = base + w->lay.state[0];
    return (float *)(void *)(base + w->lay.params);
}

/* With hogwild no server tells worker 0 when to evaluate or save. Worker 0 does not see every
 * version, so it compares the last version that it saw with the present version. */
void vb_ps_worker_applied(struct ps_worker *w)
{
    struct ps_head *head = (struct ps_head *)(void *)w->links[0].mapped_shards;
    uint64_t eval = (uint64_t)w->job->eval_every, save = (uint64_t)w->job->save_every;
    uint64_t now = atomic_fetch_add_explicit(&head->version, 1, memory_order_relaxed);

    vb_ps_stale_add(&w->stale, now > w->base ? now - w->base : 0);
    now++;
    if (w->number != 0 || now >= (uint64_t)w->job->steps)
        return;
    if (eval > 0 && now / eval > w->seen / eval)
        w->due |= PS_EVAL;
    if (save > 0 && now / save > w->seen / save)
        w->due |= PS_SAVE;
    w->seen = now;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static vb_status read_one(struct ps_worker *w, int k, size_t from, size_t to, size_t bytes)
{
    vb_status st;

    if (bytes == 0)
        return VB_OK;
    st = get(w, k, to, from, bytes, &w->links[k].get_op);
    if (st == VB_OK)
        st = vb_ps_op_await(w, &w->links[k].get_op, "a snapshot", k);
    return st == VB_AGAIN ? VB_OK : st; /* the caller sees by w->failovers that it must ask again */
}

/* Reads the head of server k's shard. The server may change the head meanwhile, so a mapped head is
 * read with atomic loads. */
static vb_status read_head(struct ps_worker *w, int k)
{
    const struct ps_head *from = (const void *)w->links[k].mapped_shards;
    struct ps_head *to = own_head(w, k);

    if (from == NULL)
        return read_one(w, k, 0, head_at(w, k), sizeof(*to));
    atomic_store(&to->version, atomic_load(&from->version));
    atomic_store(&to->snapped, atomic_load(&from->snapped));
    atomic_store(&to->late, atomic_load(&from->late));
    atomic_store(&to->stopped, atomic_load(&from->stopped));
    return VB_OK;
}

vb_status vb_ps_worker_fetch_version(struct ps_worker *w, uint64_t *version_p)
{
    vb_status st = w->getting ? wait_for_gets(w) : VB_OK; /* the gets write the same head */

    if (st == VB_OK || st == VB_AGAIN)
        st = read_head(w, 0);
    if (st == VB_OK)
        *version_p = atomic_load(&own_head(w, 0)->version);
    return st;
}

int vb_ps_worker_stopped(const struct ps_worker *w)
{
    return atomic_load(&own_head(w, 0)->stopped);
}

vb_status vb_ps_read_snapshot(struct ps_worker *w, float *params, void *state, uint64_t *version_p)
{
    const struct ps_layout *lay = &w->lay;
    const char *own = vb_window_ptr(w->shards);
    size_t word = (size_t)w->job->words * 4;
    bool late = state != NULL && w->late != NULL && vb_ps_saves_late(w->job);
    int k, area = w->job->sparse ? 0 : 1 - w->area;
    vb_status st = VB_OK;

    if (w->getting) /* gets under way write to the area that is used here */
        st = wait_for_gets(w);
    st = st == VB_AGAIN ? VB_OK : st; /* the next pull starts the gets again */
    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        st = read_head(w, k);
        if (st == VB_OK)
            st = read_one(w, k, lay->snap[k], lay->area[area] + lay->first[k] * sizeof(float),
                          lay->n[k] * sizeof(float));
        if (st == VB_OK && state != NULL)
            st = read_one(w, k, lay->snap_state[k], lay->area_state + lay->first[k] * word,
                          lay->n[k] * word);
        if (st == VB_OK && late)
            st = read_one(w, k, lay->snap_late[k], lay->area_late + lay->first[k] * sizeof(float),
                          lay->n[k] * sizeof(float));
    }
    if (st != VB_OK)
        return st;
    memcpy(params, area_of(w, area), w->job->n * sizeof(float));
    if (state != NULL)
        memcpy(state, own + lay->area_state, w->job->n * word);
    if (late) {
        memcpy(w->late, own + lay->area_late, w->job->n * sizeof(float));
        w->late_steps = atomic_load(&own_head(w, 0)->late);
    }
    *version_p = atomic_load(&own_head(w, 0)->snapped);
    return VB_OK;
}
