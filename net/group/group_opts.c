/* SPDX-License-Identifier: MIT
 *
 * Checks the options of a group. The messages are for the author of a program: they say what to
 * set.
 */
#include "net/group/group_priv.h"

#include <limits.h>
#include <sys/socket.h>

#define BEGIN_WITH_DEFAULT "; begin with struct vb_group_opts opts = VB_GROUP_OPTS_DEFAULT"

/* Options of zeros are the first mistake of a new caller: root_fd 0 is standard input. */
static vb_status check_unset(const struct vb_group_opts *o)
{
    int listens = 0;
    socklen_t len = sizeof(listens);

    if (o->world == 0)
        return vb_err(VB_ERR_USAGE, "a group of 0 ranks is not possible" BEGIN_WITH_DEFAULT);
    if (o->timeout_ms == 0)
        return vb_err(VB_ERR_USAGE,
                      "the group has no timeout (timeout_ms is 0)" BEGIN_WITH_DEFAULT);
    if (o->rank == 0 && o->root_fd >= 0 &&
        (getsockopt(o->root_fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) != 0 || listens == 0))
        return vb_err(VB_ERR_USAGE,
                      "descriptor %d (root_fd) is not a listening socket: set root_fd to -1 if "
                      "there is none" BEGIN_WITH_DEFAULT,
                      o->root_fd);
    return VB_OK;
}

/* A group of one rank that nobody can join listens where nobody else looks. */
static bool needs_root(const struct vb_group_opts *o)
{
    return o->world > 1 || o->slots > 1;
}

static vb_status check_place(const struct vb_group_opts *o)
{
    if (o->world < 1 || o->world > VB_WORLD_MAX)
        return vb_err(VB_ERR_USAGE,
                      "a group of %d ranks is not possible: the number must be from 1 to %d",
                      o->world, VB_WORLD_MAX);
    if (o->rank < 0 || o->rank >= o->world)
        return vb_err(VB_ERR_USAGE,
                      "rank %d of %d ranks is not possible: the rank must be from 0 to %d", o->rank,
                      o->world, o->world - 1);
    if (o->slots != 0 && (o->slots < o->world || o->slots > VB_WORLD_MAX))
        return vb_err(
            VB_ERR_USAGE,
            "%d slots for %d ranks are not possible: the number of slots must be from %d to %d",
            o->slots, o->world, o->world, VB_WORLD_MAX);
    if (o->slots > o->world && !o->elastic)
        return vb_err(VB_ERR_USAGE, "only an elastic group can have slots for joiners");
    if (o->agrees && (!o->elastic || o->slots > o->world))
        return vb_err(VB_ERR_USAGE,
                      "only an elastic group without slots for joiners can agree on its members");
    return VB_OK;
}

static int64_t group_timeout_ms(const struct vb_group_opts *o)
{
    return (int64_t)(o->timeout_ms * (o->patience > 0 ? o->patience : 1));
}

vb_status vb_group_check_times(const struct vb_group_opts *o)
{
    char why[VB_TIMES_WHY];
    struct vb_times times;

    if (o->timeout_ms < 0 || o->patience < 0 || o->timeout_ms * o->patience > INT_MAX)
        return vb_err(VB_ERR_USAGE, "a timeout of %d ms with patience %g is out of range",
                      o->timeout_ms, o->patience);
    if (o->detect_s != 0 && !(o->detect_s >= VB_DETECT_MIN_S && o->detect_s <= VB_DETECT_MAX_S))
        return vb_err(VB_ERR_USAGE,
                      "finding a lost rank within %g s (detect_s) is not possible: it must be from "
                      "%g to %d s",
                      o->detect_s, VB_DETECT_MIN_S, VB_DETECT_MAX_S);
    vb_times_of(o->detect_s, o->patience, &times);
    if (!vb_times_check(&times, o->detect_s > 0 ? group_timeout_ms(o) : 0, why))
        return vb_err(VB_ERR_USAGE, "the times of the group are in the wrong order: %s", why);
    return VB_OK;
}

static vb_status check_reach(const struct vb_group_opts *o)
{
    if (o->door < 0 || o->door > 65535)
        return vb_err(VB_ERR_USAGE, "port %d (door) does not exist", o->door);
    if (o->root == NULL && needs_root(o) && (o->rank > 0 || o->root_fd < 0))
        return vb_err(VB_ERR_USAGE, "the address of rank 0 is missing: give its HOST:PORT");
    if (o->secret == NULL && o->world > 1)
        return vb_err(VB_ERR_USAGE,
                      "%d ranks need a common secret: read it with vb_secret_read() from a file "
                      "that \"openssl rand -hex 32\" has filled, the same on all hosts",
                      o->world);
    return VB_OK;
}

vb_status vb_group_check_opts(const struct vb_group_opts *o)
{
    vb_status st = check_unset(o);

    if (st == VB_OK)
        st = check_place(o);
    if (st == VB_OK)
        st = check_reach(o);
    return st == VB_OK ? vb_group_check_times(o) : st;
}
