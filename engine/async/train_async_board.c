/* SPDX-License-Identifier: MIT
 *
 * At the end of asynchronous training, the members exchange their figures: each has a *board*, a
 * small window with a row for every member. docs/async.md explains who puts what on which board,
 * and which worker is the *reporter*.
 */
#include "engine/async/train_async_priv.h"

#include <stdlib.h>

#define BOARD_CHANNEL 101
#define SLICE_NS 100000000u
#define DONE_NS UINT64_C(3600000000000) /* how long a reporter may evaluate and save */

#define SIGNAL_SHIFT 8

enum { NOTE_ROW = 1, NOTE_DONE = 2, NOTE_FAILED = 3, NOTE_STOP = 4 }; /* NOTE_STOP: with a signal */

/* A vb_note_fn. */
static void on_note(void *arg, int rank, uint32_t value)
{
    struct async_board *b = arg;

    if (value == NOTE_ROW)
        b->has_row[rank] = true;
    else if (value == NOTE_DONE)
        b->done = true;
    else if (value == NOTE_FAILED)
        b->failed = true;
    else if ((value & ((1u << SIGNAL_SHIFT) - 1)) == NOTE_STOP)
        b->stop = (int)(value >> SIGNAL_SHIFT);
}

vb_status vb_async_board_open(struct vb_group *group, size_t join_info_bytes,
                              struct async_board **board_p)
{
    struct async_board *b = calloc(1, sizeof(*b));
    size_t len = 0, run_at;
    vb_status st;
    char *at;

    if (b == NULL)
        return vb_err_sys("calloc");
    *board_p = b; /* set now, because the caller frees *board_p even after a failure */
    b->group = group;
    b->slots = vb_group_slots(group);
    b->has_row = calloc((size_t)b->slots, sizeof(*b->has_row));
    if (b->has_row == NULL)
        return vb_err_sys("calloc");
    (void)vb_ps_reserve(&len, (size_t)b->slots * sizeof(*b->rows));
    b->workers_at = vb_ps_reserve(&len, (size_t)b->slots * sizeof(*b->workers));
    run_at = vb_ps_reserve(&len, sizeof(*b->run));
    b->join_info_at = len;
    st = vb_channel_open(group, BOARD_CHANNEL, on_note, b);
    b->opened = st == VB_OK;
    if (st == VB_OK)
        st = vb_window_create(group, len + join_info_bytes, &b->win);
    if (st != VB_OK)
        return st;
    at = vb_window_ptr(b->win);
    b->rows = (void *)at;
    b->workers = (void *)(at + b->workers_at);
    b->run = (void *)(at + run_at);
    b->join_info = at + len;
    return VB_OK;
}

void vb_async_board_leave(struct async_board *b)
{
    if (b == NULL)
        return;
    vb_window_destroy(b->win);
    b->win = NULL;
    if (b->opened)
        vb_channel_close(b->group, BOARD_CHANNEL);
    b->opened = false;
}

void vb_async_board_free(struct async_board *b)
{
    if (b != NULL)
        free(b->has_row);
    free(b);
}

/* Puts to a member. If the member is gone, the put is skipped, which is not a failure. */
static vb_status put(struct async_board *b, int rank, size_t offset, size_t len, uint32_t value)
{
    vb_status st =
        vb_ps_put(b->win, rank, offset, offset, len, VB_NOTE(BOARD_CHANNEL, value), &b->op);

    if (st == VB_ERR_PEER)
        return vb_progress(b->group);
    return st == VB_OK ? vb_group_wait(b->group, vb_ps_op_is_done, &b->op, "the last figures", -1)
                       : st;
}

/* Puts to all workers that took part when the last gradient was applied. */
static vb_status put_all(struct async_board *b, size_t offset, size_t len, uint32_t value)
{
    vb_status st = VB_OK;
    int r;

    for (r = 0; r < b->slots && st == VB_OK; r++)
        if (r != vb_group_rank(b->group) && b->workers[r].member && vb_group_member(b->group, r))
            st = put(b, r, offset, len, value);
    return st;
}

vb_status vb_async_board_put_row(struct async_board *b, const struct async_row *row)
{
    int own = vb_group_rank(b->group);

    b->rows[own] = *row;
    return put_all(b, (size_t)own * sizeof(*row), sizeof(*row), NOTE_ROW);
}

/* The statistics of the workers and the statistics of the run are adjacent in the window, so one
 * put transfers both. */
vb_status vb_async_board_put_run(struct async_board *b)
{
    return put_all(b, b->workers_at, b->join_info_at - b->workers_at, NOTE_ROW);
}

vb_status vb_async_board_done(struct async_board *b)
{
    return put_all(b, 0, 0, NOTE_DONE);
}

vb_status vb_async_board_failed(struct async_board *b)
{
    return put_all(b, 0, 0, NOTE_FAILED);
}

vb_status vb_async_board_stop(struct async_board *b, const struct ps_job *job, int number)
{
    uint32_t value = NOTE_STOP | (uint32_t)number << SIGNAL_SHIFT;
    vb_status st = VB_OK;
    int r;

    for (r = 0; r < b->slots && st == VB_OK; r++)
        if (vb_ps_worker_at(job, r) >= 0 && vb_group_member(b->group, r))
            st = put(b, r, 0, 0, value);
    return st;
}

static int reporter(const struct async_board *b)
{
    int r, own = vb_group_rank(b->group);

    for (r = 0; r < b->slots; r++)
        if (b->workers[r].member && (r == own || vb_group_member(b->group, r)))
            return r;
    return own;
}

static bool has_all_rows(void *arg)
{
    const struct async_board *b = arg;
    int r, own = vb_group_rank(b->group);

    for (r = 0; r < b->slots; r++)
        if (r != own && b->workers[r].member && !b->has_row[r] && vb_group_member(b->group, r))
            return false;
    return true;
}

struct waiting {
    const struct async_board *board;
    int rank; /* rank of the reporter */
    uint64_t until_ns;
};

/* Returns whether the result was reported, the reporter is gone, or the current slice of the wait
 * is over. */
static bool something_new(void *arg)
{
    const struct waiting *w = arg;

    return w->board->done || w->board->failed || !vb_group_member(w->board->group, w->rank) ||
           vb_clock_ns() >= w->until_ns;
}

/* The report may take long; the group finds out if the reporter dies or is silent. */
vb_status vb_async_board_wait(struct async_board *b, bool *reports_p)
{
    struct waiting w = {.board = b, .rank = -1};
    uint64_t deadline = 0;
    vb_status st = VB_OK;

    *reports_p = false;
    while (st == VB_OK && !b->done) {
        int rank = reporter(b);

        if (rank == vb_group_rank(b->group)) {
            *reports_p = true;
            return vb_group_wait(b->group, has_all_rows, b, "the figures of the other ranks", -1);
        }
        deadline = rank != w.rank ? vb_clock_ns() + DONE_NS : deadline;
        w.rank = rank;
        w.until_ns = vb_clock_ns() + SLICE_NS;
        st = vb_group_wait(b->group, something_new, &w, "the result", -1);
        if (st == VB_OK && b->failed)
            return vb_err(VB_ERR_IO, "rank %d (%s) could not write the last checkpoint", rank,
                          vb_group_host(b->group, rank));
        if (vb_clock_ns() > deadline)
            return vb_err(VB_ERR_TIMEOUT, "rank %d has not reported the result within an hour",
                          rank);
    }
    return st;
}
