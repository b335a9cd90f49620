/* SPDX-License-Identifier: MIT
 *
 * The end of asynchronous training: figures are brought together over the group of workers and
 * servers itself, whose members may be gone by then.
 *
 * The *board* is a small window that all members have, with a row for each. A server puts its own
 * row on the board of every worker, and server 0 what it knows of the workers and what has
 * happened, before it says that all is final. Workers put theirs on the boards of the others. The
 * *reporter* is the worker with the lowest rank that is there: it waits for the rows of the others,
 * tests, saves and prints, and then says so. If it is gone before, the next one does it.
 */
#include "engine/train_async_priv.h"

#include <stdlib.h>
#include <string.h>

#define BOARD_CHANNEL 101
#define SLICE_NS 100000000u
#define DONE_NS UINT64_C(3600000000000) /* for a reporter that is alive to test and save */

enum { NOTE_ROW = 1, NOTE_DONE = 2 };

struct row {
    struct async_row told;
    bool server, there;
};

struct async_board {
    struct vb_group *group;
    struct vb_window *win;
    int seats;
    bool opened;
    size_t rows_at, known_at, news_at, len;
    _Atomic bool *has_row; /* (seats) */
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

struct async_known *async_board_known(const struct async_board *b, int rank)
{
    return (struct async_known *)at(b, b->known_at) + rank;
}

struct async_news *async_board_news(const struct async_board *b)
{
    return at(b, b->news_at);
}

const struct async_row *async_board_row(const struct async_board *b, int rank, bool *server_p)
{
    const struct row *row = row_of(b, rank);

    *server_p = row->server;
    return row->there ? &row->told : NULL;
}

int async_board_seats(const struct async_board *b)
{
    return b->seats;
}

/* A vb_note_fn. */
static void note_came(void *arg, int rank, uint32_t value)
{
    struct async_board *b = arg;

    if (value == NOTE_ROW)
        b->has_row[rank] = true;
    else if (value == NOTE_DONE)
        b->done = true;
}

static size_t in_line(size_t *len, size_t bytes)
{
    size_t here = *len;

    *len += (bytes + 63) / 64 * 64;
    return here;
}

vb_status async_board_open(struct vb_group *group, size_t papers_bytes,
                           struct async_board **board_p)
{
    struct async_board *b = calloc(1, sizeof(*b));
    vb_status st;

    if (b == NULL)
        return vb_err_sys("calloc");
    *board_p = b; /* to be closed, whatever came of it */
    b->group = group;
    b->seats = vb_group_slots(group);
    b->has_row = calloc((size_t)b->seats, sizeof(*b->has_row));
    if (b->has_row == NULL)
        return vb_err_sys("calloc");
    b->rows_at = in_line(&b->len, (size_t)b->seats * sizeof(struct row));
    b->known_at = in_line(&b->len, (size_t)b->seats * sizeof(struct async_known));
    b->news_at = in_line(&b->len, sizeof(struct async_news));
    st = vb_channel_open(group, BOARD_CHANNEL, note_came, b);
    b->opened = st == VB_OK;
    if (st == VB_OK)
        st = vb_window_create_for(group, b->len + papers_bytes, VB_WINDOW_PUT | VB_WINDOW_GET,
                                  &b->win);
    return st;
}

void async_board_leave(struct async_board *b)
{
    if (b == NULL)
        return;
    vb_window_destroy(b->win);
    b->win = NULL;
    if (b->opened)
        vb_channel_close(b->group, BOARD_CHANNEL);
    b->opened = false;
}

void async_board_free(struct async_board *b)
{
    if (b != NULL)
        free(b->has_row);
    free(b);
}

/* ---- papers ---------------------------------------------------------------------------------- */

void *async_board_papers(const struct async_board *b)
{
    return at(b, b->len);
}

struct vb_window *async_board_window(const struct async_board *b, size_t *papers_at_p)
{
    *papers_at_p = b->len;
    return b->win;
}

/* ---- putting --------------------------------------------------------------------------------- */

/* To one who may be gone, which is no failure: then the op is done, too. */
static vb_status put(struct async_board *b, int rank, size_t offset, size_t len, uint32_t value)
{
    vb_status st =
        ps_put(b->group, b->win, rank, offset, offset, len, VB_NOTE(BOARD_CHANNEL, value), &b->op);

    if (st == VB_ERR_PEER)
        return vb_progress(b->group);
    return st == VB_OK ? vb_group_wait(b->group, ps_op_is_done, &b->op, "the last figures", -1)
                       : st;
}

/* To all workers that were there when the last gradient was applied. */
static vb_status put_all(struct async_board *b, size_t offset, size_t len, uint32_t value)
{
    vb_status st = VB_OK;
    int r;

    for (r = 0; r < b->seats && st == VB_OK; r++)
        if (r != vb_group_rank(b->group) && async_board_known(b, r)->alive &&
            vb_group_member(b->group, r))
            st = put(b, r, offset, len, value);
    return st;
}

static vb_status put_row(struct async_board *b, const struct async_row *told, bool server)
{
    int own = vb_group_rank(b->group);
    struct row *row = row_of(b, own);

    *row = (struct row){.told = *told, .server = server, .there = true};
    return put_all(b, b->rows_at + (size_t)own * sizeof(*row), sizeof(*row), NOTE_ROW);
}

void async_board_own(struct async_board *b, const struct async_row *told)
{
    row_of(b, vb_group_rank(b->group))->told = *told;
}

vb_status async_board_serve(struct async_board *b, const struct async_row *row, bool first)
{
    vb_status st = put_row(b, row, true);

    if (st == VB_OK && first) /* what is known of workers, and the news, which lie side by side */
        st = put_all(b, b->known_at, b->len - b->known_at, NOTE_ROW);
    return st;
}

vb_status async_board_tell(struct async_board *b, const struct async_row *row)
{
    return put_row(b, row, false);
}

vb_status async_board_done(struct async_board *b)
{
    return put_all(b, 0, 0, NOTE_DONE);
}

/* ---- who reports ----------------------------------------------------------------------------- */

static int reporter(const struct async_board *b)
{
    int r, own = vb_group_rank(b->group);

    for (r = 0; r < b->seats; r++)
        if (async_board_known(b, r)->alive && (r == own || vb_group_member(b->group, r)))
            return r;
    return own;
}

struct waiting {
    struct async_board *board;
    int rank; /* of the reporter */
    uint64_t until_ns;
};

static bool all_rows_came(void *arg)
{
    const struct async_board *b = ((const struct waiting *)arg)->board;
    int r, own = vb_group_rank(b->group);

    for (r = 0; r < b->seats; r++)
        if (r != own && async_board_known(b, r)->alive && !b->has_row[r] &&
            vb_group_member(b->group, r))
            return false;
    return true;
}

/* A slice of a wait is over, too. */
static bool something_new(void *arg)
{
    const struct waiting *w = arg;

    return w->board->done || !vb_group_member(w->board->group, w->rank) ||
           vb_clock_ns() >= w->until_ns;
}

/* It may take its time, as long as its heart beats. */
static vb_status wait_for(struct async_board *b, int rank)
{
    struct waiting w = {.board = b, .rank = rank};
    uint64_t deadline = vb_clock_ns() + DONE_NS;
    vb_status st = VB_OK;

    while (st == VB_OK && !b->done && vb_group_member(b->group, rank)) {
        w.until_ns = vb_clock_ns() + SLICE_NS;
        st = vb_group_wait(b->group, something_new, &w, "the result", -1);
        if (vb_clock_ns() > deadline)
            return vb_err(VB_ERR_TIMEOUT, "rank %d does not come to an end", rank);
    }
    return st;
}

vb_status async_board_settle(struct async_board *b, bool *reports_p)
{
    struct waiting w = {.board = b};
    vb_status st = VB_OK;
    int rank;

    *reports_p = false;
    while (st == VB_OK && !b->done) {
        rank = reporter(b);
        if (rank == vb_group_rank(b->group)) {
            *reports_p = true;
            return vb_group_wait(b->group, all_rows_came, &w, "the figures of the others", -1);
        }
        st = wait_for(b, rank);
    }
    return st;
}
