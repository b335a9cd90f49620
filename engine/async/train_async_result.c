/* SPDX-License-Identifier: MIT
 *
 * Makes the result from the figures of all workers and servers, which are on the board of the
 * reporter.
 */
#include "engine/async/train_async_priv.h"

#include <stdlib.h>

/* Adds a row to the result. A peer has put the row, so texts in it may lack the terminating
 * zero. */
static void add_row(const struct async_row *row, struct vb_train_result *result)
{
    struct vb_rank_result *r = &result->per_rank[result->rows++];

    *r = row->result;
    r->host[sizeof(r->host) - 1] = '\0';
    r->transport[sizeof(r->transport) - 1] = '\0';
}

static void add_worker(struct vb_async *a, int rank, const struct async_row *row,
                       struct vb_train_result *result)
{
    const struct async_worker_stats *known = &a->board->workers[rank];
    struct vb_rank_result *r = &result->per_rank[result->rows];

    add_row(row, result);
    r->late_n = known->wait_n;
    r->late_s = known->wait_s;
    r->late_max_s = known->wait_max_s;
    if (r->accuracy < 0)
        r->accuracy = a->trainer->evals.accuracy; /* the worker has not evaluated at its own end */
    if (a->board->run->samples < 0)
        result->samples += row->samples;
    result->workers++;
}

/* Adds the rows of workers, then the rows of servers, each in the order of ranks. */
static void add_rows(struct vb_async *a, struct vb_train_result *result)
{
    const struct async_row *row;
    int pass, r;

    for (pass = 0; pass < 2; pass++)
        for (r = 0; r < a->board->slots; r++) {
            row = &a->board->rows[r];
            if (!row->there || row->result.server != (pass == 1))
                continue;
            if (row->result.server)
                add_row(row, result);
            else
                add_worker(a, r, row, result);
        }
}

static void add_staleness(struct vb_async *a, struct vb_train_result *result)
{
    int r;

    for (r = 0; r < a->board->slots; r++)
        if (a->board->workers[r].was_member)
            result->staleness[result->n_staleness++] =
                (struct vb_worker_stale){.rank = r, .stale = a->board->workers[r].stale};
}

/* Adds the faults to the result. A peer has put the faults on the board, so their number is
 * checked, and their texts are terminated. */
static void add_faults(const struct async_run_stats *run, struct vb_train_result *result)
{
    int i, n = run->n_faults < PS_FAULTS_MAX ? run->n_faults : PS_FAULTS_MAX;

    for (i = 0; i < n; i++) {
        struct vb_fault *f = &result->faults[i];

        *f = run->faults[i];
        f->what[sizeof(f->what) - 1] = f->why[sizeof(f->why) - 1] = '\0';
    }
    result->n_faults = n > 0 ? n : 0;
}

/* Fills the result with the figures of this worker alone. A rank that is only a server adds
 * nothing. */
static vb_status collect_own(struct vb_async *a, struct vb_train_result *result)
{
    const struct vb_trainer *t = a->trainer;
    struct async_row own;

    if (t->serves)
        return VB_OK;
    own = vb_async_worker_row(a);
    result->per_rank = calloc(1, sizeof(*result->per_rank));
    if (result->per_rank == NULL)
        return vb_err_sys("calloc");
    add_row(&own, result);
    result->ranks = t->world;
    result->workers = 1;
    result->steps = t->step;
    result->resumed = t->resumed;
    result->stopped = t->stopped;
    result->left = a->leaves;
    result->samples = own.samples;
    result->train_s = own.result.train_s;
    return VB_OK;
}

vb_status vb_async_collect(struct vb_async *a, struct vb_train_result *result)
{
    const struct async_board *board = a->board;
    vb_status st;
    size_t slots;

    if (!a->reports)
        return collect_own(a, result);
    slots = (size_t)board->slots;
    result->ranks = a->trainer->world;
    result->reports = true;
    result->per_rank = calloc(slots, sizeof(*result->per_rank));
    result->staleness = calloc(slots, sizeof(*result->staleness));
    result->faults = calloc(PS_FAULTS_MAX, sizeof(*result->faults));
    if (result->per_rank == NULL || result->staleness == NULL || result->faults == NULL)
        return vb_err_sys("calloc");
    /* This worker's row now includes the last evaluation. */
    board->rows[vb_group_rank(a->ps)] = vb_async_worker_row(a);
    result->samples = board->run->samples > 0 ? board->run->samples : 0;
    add_rows(a, result);
    add_staleness(a, result);
    add_faults(board->run, result);
    st = vb_train_save_faults(a->trainer, result);
    if (st == VB_OK)
        st = vb_train_fill_params(a->trainer, result);
    if (st == VB_OK)
        vb_train_fill_run(a->trainer, result);
    return st;
}
