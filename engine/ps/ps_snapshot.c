/* SPDX-License-Identifier: MIT
 *
 * A server copies its shard at one moment, for a worker that evaluates or saves it.
 *
 * If the job has one server, and workers are not in step anyway, the copy is made beside training:
 * gradients are applied while it is under way. The server copies a slice whenever it has looked for
 * notes. A gradient that comes meanwhile first copies the blocks of parameters that it is about to
 * change. All this is one thread, so nothing needs a lock, and the room for the copy is there
 * anyway.
 */
#include "engine/ps/ps.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 64        /* parameters that are copied at once: 4 cache lines */
#define SLICE (1 << 16) /* parameters that are copied between two looks for notes */

bool vb_ps_snaps_beside(const struct ps_job *job)
{
    return job->servers == 1 && job->replicas < 2 && !job->hogwild && job->bound != 0 &&
           !(job->sparse && vb_k_sparse_is_lazy(&job->rule));
}

vb_status vb_ps_snap_open(struct ps_server *s)
{
    size_t blocks = (s->lay.n[s->k] + BLOCK - 1) / BLOCK;

    if (!vb_ps_snaps_beside(s->job))
        return VB_OK;
    s->snap.copied = calloc(blocks + 1, 1);
    return s->snap.copied != NULL ? VB_OK : vb_err_sys("calloc");
}

/* Copies parameters from `at` on, and their state. Dense states follow each other; the words of the
 * state of a sparse parameter are next to each other. */
static void copy_range(struct ps_server *s, size_t at, size_t n)
{
    char *base = vb_window_ptr(s->shards), *to = base + s->lay.snap_state[s->k];
    size_t words = (size_t)s->job->words, all = s->lay.n[s->k], i;
    const char *from = s->state;

    memcpy(base + s->lay.snap[s->k] + at * sizeof(float), s->params + at, n * sizeof(float));
    if (!s->snap.with_state || words == 0)
        return;
    if (s->job->sparse)
        memcpy(to + at * words * 4, from + at * words * 4, n * words * 4);
    for (i = 0; i < words && !s->job->sparse; i++)
        memcpy(to + (i * all + at) * 4, from + (i * all + at) * 4, n * 4);
}

static void copy_block(struct ps_server *s, size_t block)
{
    size_t at = block * BLOCK, left = s->lay.n[s->k] - at;

    if (s->snap.copied[block])
        return;
    s->snap.copied[block] = 1;
    copy_range(s, at, left < BLOCK ? left : BLOCK);
}

static void copy_some(struct ps_server *s, size_t params)
{
    size_t blocks = (s->lay.n[s->k] + BLOCK - 1) / BLOCK, i;

    for (i = 0; i < params / BLOCK && s->snap.next < blocks; i++)
        copy_block(s, s->snap.next++);
    s->snap.on = s->snap.next < blocks;
}

void vb_ps_snap_touch(struct ps_server *s, const uint32_t *keys, size_t n)
{
    size_t i;

    for (i = 0; s->snap.on && i < n; i++)
        copy_block(s, keys[i] / BLOCK);
}

void vb_ps_snap_touch_all(struct ps_server *s)
{
    if (s->snap.on)
        copy_some(s, s->lay.n[s->k] + BLOCK);
}

bool vb_ps_snap_step(struct ps_server *s)
{
    if (s->snap.on)
        copy_some(s, SLICE);
    return !s->snap.on;
}

/* Copies the state of the update rule. */
static void copy_state(struct ps_server *s, void *to)
{
    size_t n = s->lay.n[s->k], words = (size_t)s->job->words;

    if (s->job->hogwild)
        vb_k_shared_read(s->state, n * words, to);
    else if (s->sparse != NULL && !vb_ps_saves_late(s->job))
        vb_k_sparse_read_state(s->sparse, 0, n, to);
    else if (words > 0)
        memcpy(to, s->state, n * words * 4);
}

void vb_ps_snapshot(struct ps_server *s, bool with_state)
{
    char *base = vb_window_ptr(s->shards);
    size_t n = s->lay.n[s->k];
    float *params = (float *)(void *)(base + s->lay.snap[s->k]);

    s->snap.on = false;
    if (s->sparse != NULL)
        vb_k_sparse_read(s->sparse, 0, n, params);
    else if (s->job->hogwild)
        vb_k_shared_read(s->params, n, params);
    else
        memcpy(params, s->params, n * sizeof(float));
    if (with_state)
        copy_state(s, base + s->lay.snap_state[s->k]);
    if (with_state && s->sparse != NULL && vb_ps_saves_late(s->job)) {
        memcpy(base + s->lay.snap_late[s->k], s->params, n * sizeof(float));
        atomic_store(&s->head->late, vb_k_sparse_late(s->sparse));
    }
    atomic_store(&s->head->snapped, atomic_load(&s->head->version));
}

void vb_ps_snap_begin(struct ps_server *s, bool with_state)
{
    if (!vb_ps_snaps_beside(s->job)) {
        vb_ps_snapshot(s, with_state);
        return;
    }
    memset(s->snap.copied, 0, (s->lay.n[s->k] + BLOCK - 1) / BLOCK);
    s->snap = (struct ps_snap){.copied = s->snap.copied, .with_state = with_state, .on = true};
    atomic_store(&s->head->snapped, atomic_load(&s->head->version));
}
