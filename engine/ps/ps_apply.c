/* SPDX-License-Identifier: MIT
 *
 * A server applies pushes to its shard. With a bound of 0 it adds the gradients of a round in the
 * order of the workers' ranks, ((g0 + g1) + g2) + ..., and applies the sum once. That gives the
 * bits of synchronous training.
 */
#include "engine/ps/ps.h"

#include <string.h>

#define PIECE 4096 /* number of floats that are computed at a time */

static float rate_now(const struct ps_server *s)
{
    return vb_k_rate(&s->job->schedule, (int64_t)vb_ps_version_of(s));
}

/* ---- dense ----------------------------------------------------------------------------------- */

/* Workers that map the shard may read it at the same time. So the new parameters are computed into
 * a buffer, a piece at a time, and then written with atomic stores. */
static void update_mapped(struct ps_server *s, const float *grads, struct vb_k_update u)
{
    float made[PIECE];
    size_t at, n = s->lay.n[s->k];

    for (at = 0; at < n; at += u.n) {
        u.n = n - at < PIECE ? n - at : PIECE;
        u.params = s->params + at;
        u.grads = grads + at;
        u.params_out = made;
        u.state = u.state_out = s->job->words > 0 ? (float *)s->state + at : NULL;
        vb_k_update(&s->job->rule, &u);
        vb_k_shared_write(made, u.n, s->params + at);
    }
}

static void update(struct ps_server *s, const float *grads, float scale)
{
    struct vb_k_update u = {.n = s->lay.n[s->k],
                            .params = s->params,
                            .state = s->state,
                            .grads = grads,
                            .scale = scale,
                            .rate = rate_now(s),
                            .params_out = s->params,
                            .state_out = s->state};

    vb_ps_snap_touch_all(s);
    if (s->mapped)
        update_mapped(s, grads, u);
    else
        vb_k_update(&s->job->rule, &u);
}

/* ---- sparse ---------------------------------------------------------------------------------- */

/* The keys were checked when the push was accepted. */
void vb_ps_gather(struct ps_server *s, const uint32_t *keys, size_t n, float *values)
{
    size_t i;

    if (!vb_k_sparse_is_lazy(&s->job->rule)) {
        vb_k_shared_gather(s->params, keys, n, values);
        return;
    }
    for (i = 0; i < n; i++)
        vb_k_sparse_read(s->sparse, keys[i], 1, values + i);
}

/* Applies the values of a gradient at its keys, which were checked. If workers map the shard, the
 * new parameters are written with atomic stores, as in dense shards; in this case the update rule
 * is not lazy. */
static vb_status update_keys(struct ps_server *s, const uint32_t *keys, const float *values,
                             size_t n, float scale)
{
    if (s->sparse == NULL) /* with very few parameters, the shard of a server may be empty */
        return VB_OK;
    vb_ps_snap_touch(s, keys, n);
    if (!s->mapped)
        return vb_k_sparse_update(s->sparse, keys, values, n, scale, rate_now(s), NULL);
    vb_k_shared_update_keys(&s->job->rule, s->params, s->state, keys, values, n, scale,
                            rate_now(s));
    return VB_OK;
}

vb_status vb_ps_apply(struct ps_server *s, const struct ps_taken *push)
{
    if (s->job->sparse)
        return update_keys(s, push->gradient, push->values, push->head.n_values, push->head.scale);
    update(s, push->values, push->head.scale);
    return VB_OK;
}

/* ---- a round --------------------------------------------------------------------------------- */

static void add(float *sum, const float *v, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        sum[i] += v[i];
}

static void sum_dense(struct ps_server *s)
{
    size_t n = s->lay.n[s->k];
    bool first = true;
    int w;

    for (w = 0; w < vb_ps_clients(s->job); w++) {
        if (!s->clients[w].round.held)
            continue;
        if (first)
            memcpy(s->round.sum, s->clients[w].round.push->values, n * sizeof(float));
        else
            add(s->round.sum, s->clients[w].round.push->values, n);
        first = false;
    }
}

/* Merges the list in keys[from] and values[from] with the list of the next worker, into keys[1 -
 * from] and values[1 - from]. Returns the length of the merged list. */
static size_t merge(struct ps_server *s, int from, size_t n, const struct ps_client *client)
{
    const uint32_t *ka = s->round.keys[from], *kb = client->round.push->gradient;
    const float *va = s->round.values[from], *vb = client->round.push->values;
    size_t i = 0, j = 0, at = 0, m = client->round.push->head.n_values;
    uint32_t *keys = s->round.keys[1 - from];
    float *values = s->round.values[1 - from];

    while (i < n || j < m) {
        bool left = i < n && (j >= m || ka[i] <= kb[j]);
        bool both = left && j < m && ka[i] == kb[j];

        keys[at] = left ? ka[i] : kb[j];
        /* adding 0 turns -0 into 0, as in the sparse allreduce */
        values[at++] = both ? va[i] + vb[j] : (left ? va[i] : vb[j]) + 0.f;
        i += left;
        j += both || !left;
    }
    return at;
}

vb_status vb_ps_apply_round(struct ps_server *s)
{
    uint32_t samples = 0;
    float scale;
    vb_status st = VB_OK;
    size_t n = 0;
    int w, which = 0;

    for (w = 0; w < vb_ps_clients(s->job); w++)
        samples += s->clients[w].round.held ? s->clients[w].round.push->head.samples : 0;
    /* samples may be 0: the last batch of an epoch may be smaller than the number of workers. */
    scale = samples > 0 ? 1.f / (float)samples : 0;
    if (s->job->sparse) {
        for (w = 0; w < vb_ps_clients(s->job); w++)
            if (s->clients[w].round.held) {
                n = merge(s, which, n, &s->clients[w]);
                which = 1 - which;
            }
        st = update_keys(s, s->round.keys[which], s->round.values[which], n, scale);
    } else {
        sum_dense(s);
        if (s->job->clip > 0)
            scale *= vb_k_clip(vb_k_norm(s->round.sum, s->job->n) * (double)scale, s->job->clip);
        update(s, s->round.sum, scale);
    }
    s->stats.samples += samples;
    return st;
}
