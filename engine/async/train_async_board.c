/* SPDX-License-Identifier: MIT
 *
 * At the end of asynchronous training, the members of the group of workers and servers exchange
 * their figures. Some members may already be gone.
 *
 * Each member has a *board*: a small window with a row for every member. A server puts its row on
 * the boards of all workers before it sends PS_FINAL; server 0 also puts its statistics of the
 * workers and the faults. Each worker puts its row on the boards of the other workers. The
 * *reporter* is the remaining worker with the lowest rank: it waits for the rows of the other
 * workers, evaluates, saves, prints, and then tells the other workers. If the reporter is gone
 * before that, the worker with the next rank reports.
 */
#include "engine/async/train_async_priv.h"

#include <stdlib.h>

#define BOARD_CHANNEL 101
#define SLICE_NS 100000000u
#define DONE_NS UINT64_C(3600000000000) /* how long a reporter may evaluate and save */

enum { NOTE_ROW = 1, NOTE_DONE = 2 };

struct row {
    struct async_row figures;
    bool there;
};

struct async_board {
    struct vb_group *group;
    struct vb_window *win;
    int slots;
    bool opened;
    size_t rows_at, workers_at, run_at, len;
    _Atomic bool *has_row; /* (slots) */
    _Atomic bool done;
    struct vb_op op;
};

/* ---- the window ------------------------------------------------------------------------------ */

static void *at(const struct async_board *b, size_t offset)
{
    return (char *)vb_window_ptr(b->win) + offset;
}

static struct row *row_of(const struct async_board *b, int rank)
{
    return (struct row *)at(b, b->rows_at) + rank;
}

struct async_worker_stats *vb_async_board_worker(const struct async_board *b, int rank)
{
    return (struct async_worker_stats *)at(b, b->workers_at) + rank;
}

struct async_run_stats *vb_async_board_run(const struct async_board *b)
{
    return at(b, b->run_at);
}

const struct async_row *vb_async_board_row(const struct async_board *b, int rank)
{
    const struct row *row = row_of(b, rank);

    return row->there ? &row->figures : NULL;
}

int vb_async_board_slots(const struct async_board *b)
{
    return b->slots;
}

/* A vb_note_fn. */
static void on_note(void *arg, int rank, uint32_t value)
{
    struct async_board *b = arg;

    if (value == NOTE_ROW)
        b->has_row[rank] = true;
    else if (value == NOTE_DONE)
        b->done = true;
}

vb_status vb_async_board_open(struct vb_group *group, size_t join_info_bytes,
                              struct async_board **board_p)
{
    struct async_board *b = calloc(1, sizeof(*b));
    vb_status st;

    if (b == NULL)
        return vb_err_sys("calloc");
    *board_p = b; /* set now, because the caller frees *board_p even after a failure */
    b->group = group;
    b->slots = vb_group_slots(group);
    b->has_row = calloc((size_t)b->slots, sizeof(*b->has_row));
    if (b->has_row == NULL)
        return vb_err_sys("calloc");
    b->rows_at = vb_ps_reserve(&b->len, (size_t)b->slots * sizeof(struct row));
    b->workers_at = vb_ps_reserve(&b->len, (size_t)b->slots * sizeof(struct async_worker_stats));
    b->run_at = vb_ps_reserve(&b->len, sizeof(struct async_run_stats));
    st = vb_channel_open(group, BOARD_CHANNEL, on_note, b);
    b->opened = st == VB_OK;
    if (st == VB_OK)
        st = vb_window_create_for(group, b->len + join_info_bytes, VB_WINDOW_PUT | VB_WINDOW_GET,
                                  &b->win);
    return st;
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

/* ---- information for joiners ----------------------------------------------------------------- */

void *vb_async_board_join_info(const struct async_board *b)
{
    return at(b, b->len);
}

struct vb_window *vb_async_board_window(const struct async_board *b, size_t *join_info_at_p)
{
    *join_info_at_p = b->len;
    return b->win;
}

/* ---- putting --------------------------------------------------------------------------------- */

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
        if (r != vb_group_rank(b->group) && vb_async_board_worker(b, r)->member &&
            vb_group_member(b->group, r))
            st = put(b, r, offset, len, value);
    return st;
}

vb_status vb_async_board_put_row(struct async_board *b, const struct async_row *figures)
{
    int own = vb_group_rank(b->group);
    struct row *row = row_of(b, own);

    *row = (struct row){.figures = *figures, .there = true};
    return put_all(b, b->rows_at + (size_t)own * sizeof(*row), sizeof(*row), NOTE_ROW);
}

void vb_async_board_update_own(struct async_board *b, const struct async_row *figures)
{
    row_of(b, vb_group_rank(b->group))->figures = *figures;
}

/* The statistics of the workers and the statistics of the run are adjacent in the window, so one
 * put transfers both. */
vb_status vb_async_board_put_run(struct async_board *b)
{
    return put_all(b, b->workers_at, b->len - b->workers_at, NOTE_ROW);
}

vb_status vb_async_board_done(struct async_board *b)
{
    return put_all(b, 0, 0, NOTE_DONE);
}

/* ---- who reports ----------------------------------------------------------------------------- */

static int reporter(const struct async_board *b)
{
    int r, own = vb_group_rank(b->group);

    for (r = 0; r < b->slots; r++)
        if (vb_async_board_worker(b, r)->member && (r == own || vb_group_member(b->group, r)))
            return r;
    return own;
}

struct waiting {
    struct async_board *board;
    int rank; /* rank of the reporter */
    uint64_t until_ns;
};

static bool has_all_rows(void *arg)
{
    const struct async_board *b = ((const struct waiting *)arg)->board;
    int r, own = vb_group_rank(b->group);

    for (r = 0; r < b->slots; r++)
        if (r != own && vb_async_board_worker(b, r)->member && !b->has_row[r] &&
            vb_group_member(b->group, r))
            return false;
    return true;
}

/* Returns whether the result was reported, the reporter is gone, or the current slice of the wait
 * is over. */
static bool something_new(void *arg)
{
    const struct waiting *w = arg;

    return w->board->done || !vb_group_member(w->board->group, w->rank) ||
           vb_clock_ns() >= w->until_ns;
}

/* Waits until the reporter has reported or is gone. The report may take long; the group finds out
 * if the reporter dies or is silent. */
static vb_status wait_for(struct async_board *b, int rank)
{
    struct waiting w = {.board = b, .rank = rank};
    uint64_t deadline = vb_clock_ns() + DONE_NS;
    vb_status st = VB_OK;

    while (st == VB_OK && !b->done && vb_group_member(b->group, rank)) {
        w.until_ns = vb_clock_ns() + SLICE_NS;
        st = vb_group_wait(b->group, something_new, &w, "the result", -1);
        if (vb_clock_ns() > deadline)
            return vb_err(VB_ERR_TIMEOUT, "rank %d has not reported the result within an hour",
                          rank);
    }
    return st;
}

vb_status vb_async_board_wait(struct async_board *b, bool *reports_p)
{
    struct waiting w = {.board = b};
    vb_status st = VB_OK;
    int rank;

    *reports_p = false;
    while (st == VB_OK && !b->done) {
        rank = reporter(b);
        if (rank == vb_group_rank(b->group)) {
            *reports_p = true;
            return vb_group_wait(b->group, has_all_rows, &w, "the figures of the other ranks", -1);
        }
        st = wait_for(b, rank);
    }
    return st;
}
