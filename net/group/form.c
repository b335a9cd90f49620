/* SPDX-License-Identifier: MIT */
#include "net/group/group_form.h"
#include "net/group/group_priv.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 2000000

/* Looks whether a member of the old group is gone while this rank waits in the new one. */
struct look_out {
    struct vb_group *old;
    _Atomic bool gone; /* read by the control thread of the new group */
    _Atomic bool over;
};

static bool is_one_gone(const struct vb_group *g)
{
    int i;

    for (i = 0; i < g->view.n; i++)
        if (i != g->view.mine && vb_control_is_gone(g->control, g->view.members[i]))
            return true;
    return false;
}

static void *look_out(void *arg)
{
    struct timespec pause = {.tv_nsec = LOOK_NS};
    struct look_out *l = arg;

    while (!atomic_load(&l->over) && !atomic_load(&l->gone)) {
        if (is_one_gone(l->old))
            atomic_store(&l->gone, true);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Rank 0 listens at the root of this group, of which others may know only a name; each other rank
 * at the address from which it has reached rank 0. */
vb_status vb_group_meet(struct vb_group *g, char root[VB_ROOT_TEXT], int *fd_p)
{
    const char *at = g->peers[g->rank].info.addr, *colon;

    if (g->rank == 0 && g->opts.root != NULL && (colon = strrchr(g->opts.root, ':')) != NULL)
        snprintf(root, VB_ROOT_TEXT, "%.*s:0", (int)(colon - g->opts.root), g->opts.root);
    else
        snprintf(root, VB_ROOT_TEXT, strchr(at, ':') != NULL ? "[%s]:0" : "%s:0", at);
    return vb_root_listen(root, fd_p);
}

static struct vb_group_opts new_options(const struct vb_group *g, const struct vb_meeting *m,
                                        struct look_out *l)
{
    struct vb_group_opts opts = g->opts;

    opts.rank = m->rank;
    opts.world = m->world;
    opts.slots = 0;
    opts.root = m->root;
    opts.root_fd = m->rank == 0 ? m->root_fd : -1;
    opts.timeout_ms = (int)(g->opts.timeout_ms / g->opts.patience + 0.5);
    opts.open_ms = m->open_ms;
    opts.announce = NULL;
    opts.door = vb_group_door(g);
    opts.keeps_losses = true;
    opts.hopeless = &l->gone;
    return opts;
}

vb_status vb_group_form(struct vb_group *g, const struct vb_meeting *m, struct vb_group **new_p)
{
    struct look_out *l = calloc(1, sizeof(*l));
    struct vb_group_opts opts;
    pthread_t thread;
    vb_status st;
    int fd = m->root_fd;

    if (l == NULL) {
        vb_fd_close(&fd);
        return vb_err_sys("calloc");
    }
    l->old = g;
    opts = new_options(g, m, l);
    if (pthread_create(&thread, NULL, look_out, l) != 0) {
        free(l);
        vb_fd_close(&fd);
        return vb_err(VB_ERR_NO_MEMORY, "cannot start a thread");
    }
    st = vb_group_open(&opts, new_p);
    atomic_store(&l->over, true);
    pthread_join(thread, NULL);
    if (st != VB_OK) {
        free(l);
        return st;
    }
    snprintf((*new_p)->met_at, sizeof((*new_p)->met_at), "%s", m->root);
    (*new_p)->opts.root = (*new_p)->met_at;
    vb_group_keep(*new_p, l); /* the control thread may look at it once more */
    return VB_OK;
}

bool vb_group_take_agreed(struct vb_group *g, const struct vb_agreed *agreed)
{
    bool done = vb_group_status(g) == VB_OK && agreed->step > 0 &&
                vb_control_commit(g->control, (uint64_t)agreed->step, agreed->number);

    if (!done && agreed->number > g->view_tried)
        g->view_tried = agreed->number; /* the next one that counts is another one */
    return done;
}

void vb_group_is_before(struct vb_group *g, struct vb_group *before)
{
    group_lock(g);
    g->before = before;
    group_unlock(g);
}

void vb_group_tell_losses(struct vb_group *g)
{
    vb_control_tell_losses(g->control);
}

/* ---- numbers --------------------------------------------------------------------------------- */

vb_status vb_group_set_ids(struct vb_group *g, const int *ids)
{
    int *copy;

    VB_ASSERT(atomic_load(&g->ids) == NULL); /* the control thread may be reading them */
    copy = malloc((size_t)g->world * sizeof(*copy));
    if (copy == NULL)
        return vb_err_sys("malloc");
    memcpy(copy, ids, (size_t)g->world * sizeof(*copy));
    atomic_store(&g->ids, copy);
    return VB_OK;
}

int vb_group_id(const struct vb_group *g, int rank)
{
    const int *ids = g != NULL ? atomic_load(&g->ids) : NULL;

    return ids != NULL && rank >= 0 && rank < g->world ? ids[rank] : rank;
}

int vb_group_rank_of_id(const struct vb_group *g, int id)
{
    int i;

    for (i = 0; i < g->world; i++)
        if (vb_group_id(g, i) == id)
            return i;
    return -1;
}
