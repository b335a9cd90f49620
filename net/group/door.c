/* SPDX-License-Identifier: MIT
 *
 * Groups that agree: what the members and a caller of net/control/callers.c and call.c see.
 */
#include "net/control/call.h"
#include "net/group/group_priv.h"

#include <limits.h>
#include <stdlib.h>

/* ---- the members ----------------------------------------------------------------------------- */

static const char *root_of(const struct vb_group *g)
{
    return g->opts.root != NULL ? g->opts.root : "";
}

vb_status vb_group_let_in(struct vb_group *g, const void *job, size_t len_bytes, int most)
{
    if (!g->opts.agrees)
        return vb_err(VB_ERR_USAGE, "nobody can come to a group whose ranks do not agree");
    if (job != NULL && (len_bytes == 0 || len_bytes > VB_JOB_BYTES_MAX))
        return vb_err(VB_ERR_USAGE, "the text of the job has %zu bytes, at most %d are possible",
                      len_bytes, VB_JOB_BYTES_MAX);
    return vb_control_let_in(g->control, job, len_bytes, most < VB_WORLD_MAX ? most : VB_WORLD_MAX,
                             root_of(g));
}

int vb_group_callers(const struct vb_group *g)
{
    return vb_control_callers(g->control);
}

vb_status vb_group_invite(struct vb_group *g, const struct vb_invitation *inv)
{
    return vb_control_invite(g->control, inv);
}

vb_status vb_group_turn_away(struct vb_group *g, const char *why)
{
    return vb_control_turn_away(g->control, why);
}

void vb_group_doors(struct vb_group *g, char out[VB_DOORS_TEXT])
{
    vb_control_doors(g->control, root_of(g), out);
}

int vb_group_door(const struct vb_group *g)
{
    const struct wire_info *own = &g->peers[g->rank].info;

    return (int)(own->door != 0 ? own->door : own->port);
}

vb_status vb_group_inherit_door(struct vb_group *g, struct vb_group *from)
{
    int fd = vb_control_door_fd(from->control);

    return fd >= 0 ? vb_control_add_door(g->control, fd) : vb_err_sys("fcntl");
}

/* ---- the caller ------------------------------------------------------------------------------ */

static uint64_t deadline_of(const struct vb_caller *w, int ms)
{
    return vb_clock_ns() + (uint64_t)(ms * w->patience * 1e6);
}

vb_status vb_group_call(const struct vb_group_opts *opts, struct vb_caller **caller_p)
{
    double patience = opts->patience > 0 ? opts->patience : 1;
    struct vb_caller *w;
    vb_status st;

    if (opts->root == NULL || opts->secret == NULL || opts->timeout_ms <= 0 ||
        opts->timeout_ms * patience > INT_MAX)
        return vb_err(VB_ERR_USAGE,
                      "calling a job needs its addresses (root), the secret and a timeout "
                      "(VB_GROUP_OPTS_DEFAULT has one)");
    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return vb_err_sys("calloc");
    st = vb_call_init(w, opts);
    if (st == VB_OK)
        st = vb_call_members(w, deadline_of(w, opts->timeout_ms));
    if (st != VB_OK) {
        vb_caller_close(w);
        return st;
    }
    *caller_p = w;
    return VB_OK;
}

vb_status vb_caller_root(const struct vb_caller *w, char root[VB_ROOT_TEXT])
{
    char text[SOCK_TEXT];
    struct sock_addr at;
    vb_status st = vb_sock_peer(w->fd, &at);

    if (st != VB_OK)
        return st;
    vb_sock_text(&at, text);
    snprintf(root, VB_ROOT_TEXT, "%s", text);
    return VB_OK;
}

bool vb_caller_has_slot(const struct vb_caller *w)
{
    return w->has_slot;
}

bool vb_caller_is_invited(const struct vb_caller *w)
{
    return w->invited;
}

const void *vb_caller_job(const struct vb_caller *w, size_t *len_p)
{
    *len_p = w->job_len;
    return w->job;
}

vb_status vb_caller_wait(struct vb_caller *w, int wait_ms, struct vb_invitation *inv_p)
{
    if (w->has_slot)
        return vb_err(VB_ERR_USAGE, "this caller has a slot, so nobody will invite it");
    return vb_call_wait(w, deadline_of(w, wait_ms > 0 ? wait_ms : w->opts.timeout_ms), inv_p);
}

void vb_caller_close(struct vb_caller *w)
{
    if (w == NULL)
        return;
    vb_call_fini(w);
    free(w);
}

vb_status vb_group_ask(const struct vb_group_opts *opts, struct vb_invitation *inv_p)
{
    struct vb_caller *w = NULL;
    vb_status st = vb_group_call(opts, &w);

    if (st == VB_OK)
        st = vb_caller_wait(w, 0, inv_p);
    vb_caller_close(w);
    return st;
}
