/* SPDX-License-Identifier: MIT
 *
 * Reads the memory of a sparse model as it is saved. With a lazy rule, weights are saved twice: up
 * to date, for those who read the model, and as they are in memory, with the number of steps since
 * all were up to date. So a run that resumes goes on with the same memory, and saving changes
 * nothing: which steps bring all weights up to date depends on the number of steps alone.
 */
#include "kernels/sparse/sparse_priv.h"

#include <string.h>

vb_status vb_k_sparse_save_beside(struct vb_k_sparse *s, bool now)
{
    vb_status st = VB_OK;

    if (s->aside != NULL)
        return VB_OK;
    if (s->lazy != NULL)
        st = vb_k_lazy_create(&s->rule, &s->lazy_then);
    if (st == VB_OK)
        st = vb_k_aside_create(s->features, s->has.words, s->w, s->state, now, &s->aside);
    return st;
}

bool vb_k_sparse_hold(struct vb_k_sparse *s, bool on)
{
    if (s->aside == NULL)
        return false;
    if (!on) {
        vb_k_aside_end(s->aside);
        return true;
    }
    if (s->lazy != NULL)
        vb_k_lazy_copy(s->lazy, s->lazy_then);
    vb_k_aside_begin(s->aside);
    return true;
}

void vb_k_sparse_touch(struct vb_k_sparse *s, const uint32_t *keys, size_t n)
{
    if (vb_k_aside_is_on(s->aside))
        vb_k_aside_keep(s->aside, keys, n);
}

void vb_k_sparse_touch_all(struct vb_k_sparse *s)
{
    if (vb_k_aside_is_on(s->aside))
        vb_k_aside_keep_all(s->aside);
}

/* Brings the weights of a block up to the step at which the model was held. */
static void bring_up(const struct vb_k_sparse *s, size_t n, float *w, const uint32_t *state)
{
    struct state x;
    size_t i;

    for (i = 0; i < n; i++) {
        x = sparse_state(s->has, state + i * (size_t)s->has.words);
        sparse_catch_up(s->lazy_then, &w[i], &x);
    }
}

bool vb_k_sparse_held(const struct vb_k_sparse *s, enum vb_k_sparse_saved part, size_t first,
                      size_t n, void *to)
{
    size_t cols = part == VB_K_SAVED_STATE ? (size_t)s->has.words : 1;
    size_t block = ASIDE_BLOCK * cols, at, from, len, left;
    uint32_t state[ASIDE_BLOCK * ASIDE_WORDS];
    float w[ASIDE_BLOCK];

    for (at = 0; at < n; at += len) {
        from = (first + at) % block;
        len = block - from < n - at ? block - from : n - at;
        if (!vb_k_aside_read(s->aside, (first + at) / block, w, state))
            return false;
        left = (size_t)s->features - (first + at) / block * ASIDE_BLOCK;
        if (part == VB_K_SAVED_WEIGHTS && s->lazy != NULL)
            bring_up(s, left < ASIDE_BLOCK ? left : ASIDE_BLOCK, w, state);
        if (part == VB_K_SAVED_STATE)
            memcpy((uint32_t *)to + at, state + from, len * sizeof(*state));
        else
            memcpy((float *)to + at, w + from, len * sizeof(*w));
    }
    return true;
}

void vb_k_sparse_read_state(const struct vb_k_sparse *s, uint64_t first, size_t n, void *to)
{
    size_t i, words = (size_t)s->has.words;
    struct state x;
    float w;

    for (i = 0; i < n && words > 0; i++) {
        x = sparse_state(s->has, s->state + (first + i) * words);
        w = s->w[first + i];
        sparse_catch_up(s->lazy, &w, &x);
        x.step = 0;
        sparse_put_state(s->has, (uint32_t *)to + i * words, x);
    }
}

uint32_t vb_k_sparse_late(const struct vb_k_sparse *s)
{
    return s->lazy != NULL ? vb_k_lazy_steps(s->lazy) : 0;
}

bool vb_k_sparse_resume(struct vb_k_sparse *s, const struct vb_k_schedule *schedule, int64_t step,
                        uint32_t late)
{
    uint32_t i;

    if (s->lazy == NULL || late > step || late > vb_k_lazy_room())
        return late == 0;
    vb_k_lazy_forget(s->lazy);
    for (i = 0; i < late; i++)
        vb_k_lazy_note(s->lazy, vb_k_rate(schedule, step - late + i));
    return true;
}
