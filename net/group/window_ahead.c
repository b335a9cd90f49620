/* SPDX-License-Identifier: MIT
 *
 * Memory for the windows of a group that is opened later. The kernel needs long to allocate and
 * clear many pages, so a thread has that done while training goes on.
 */
#include "net/group/group_form.h"
#include "net/group/group_priv.h"

#include <stdlib.h>
#include <string.h>

#define SPARE 4 /* a window may take memory that is longer by this part of it */

struct vb_window_ahead {
    pthread_t thread;
    bool runs;
    _Atomic bool over;
    struct vb_group_opts opts; /* of a group whose memory is placed in the same way */
    int n;
    size_t lens[VB_WINDOWS_AHEAD];
    struct vb_mem mem[VB_WINDOWS_AHEAD]; /* ptr NULL: not allocated, or taken */
};

static void *ahead_main(void *arg)
{
    struct vb_window_ahead *a = arg;
    int i;

    for (i = 0; i < a->n && !atomic_load(&a->over); i++)
        if (vb_window_memory(&a->opts, a->lens[i], &a->mem[i]) != VB_OK)
            vb_mem_unmap(&a->mem[i]); /* the window will try it again, and fail */
    return NULL;
}

vb_status vb_window_ahead_begin(const struct vb_group *like, const size_t *lens_bytes, int n,
                                struct vb_window_ahead **ahead_p)
{
    struct vb_window_ahead *a = calloc(1, sizeof(*a));
    int i;

    if (a == NULL)
        return vb_err_sys("calloc");
    if (like != NULL)
        a->opts = like->opts;
    a->n = n < VB_WINDOWS_AHEAD ? n : VB_WINDOWS_AHEAD;
    memcpy(a->lens, lens_bytes, (size_t)a->n * sizeof(*lens_bytes));
    for (i = 0; i < VB_WINDOWS_AHEAD; i++)
        a->mem[i].fd = -1;
    if (pthread_create(&a->thread, NULL, ahead_main, a) != 0) {
        free(a);
        return vb_err(VB_ERR_NO_MEMORY, "cannot start a thread");
    }
    a->runs = true;
    *ahead_p = a;
    return VB_OK;
}

void vb_window_ahead_wait(struct vb_window_ahead *a)
{
    if (a->runs)
        pthread_join(a->thread, NULL);
    a->runs = false;
}

void vb_window_ahead_end(struct vb_window_ahead *a)
{
    int i;

    if (a == NULL)
        return;
    atomic_store(&a->over, true);
    vb_window_ahead_wait(a);
    for (i = 0; i < a->n; i++)
        vb_mem_unmap(&a->mem[i]);
    free(a);
}

void vb_group_take_ahead(struct vb_group *g, struct vb_window_ahead *ahead)
{
    g->ahead = ahead;
}

bool vb_window_ahead_take(struct vb_window_ahead *a, size_t len_bytes, struct vb_mem *mem_p)
{
    int i;

    if (a == NULL)
        return false;
    vb_window_ahead_wait(a);
    for (i = 0; i < a->n; i++)
        if (a->mem[i].ptr != NULL && a->mem[i].len_bytes >= len_bytes &&
            a->mem[i].len_bytes - len_bytes <= len_bytes / SPARE) {
            *mem_p = a->mem[i];
            a->mem[i] = (struct vb_mem){.fd = -1};
            return true;
        }
    return false;
}
