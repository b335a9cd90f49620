/* SPDX-License-Identifier: MIT
 *
 * Judges a finished run: collects the facts for the verdict on its speed (engine/verdict/), and
 * finds whether more steps would have improved the model further.
 */
#include "engine/train/train_room_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_LOSSES 20  /* of a tenth of the steps; fewer say nothing */
#define LEAST_FALL 0.005 /* share of the loss; a smaller fall is none */

/* ---- facts for the verdict ------------------------------------------------------------------- */

static struct vb_verdict_rank rank_facts(const struct vb_rank_result *r)
{
    const double *s = r->phase_s;

    return (struct vb_verdict_rank){
        .rank = r->rank,
        .host = r->host,
        .machine = r->machine,
        .data_s = s[VB_PHASE_DATA],
        .compute_s = s[VB_PHASE_FORWARD] + s[VB_PHASE_BACKWARD] + s[VB_PHASE_UPDATE],
        .comm_s = s[VB_PHASE_COMM],
        .wait_s = s[VB_PHASE_WAIT],
        .save_s = s[VB_PHASE_CHECKPOINT],
        .queue_s = r->queue_s,
        .thread_s = r->thread_s,
        .cpu_s = r->cpu_pct / 100 * r->train_s,
        .busy_s = r->host_busy_s,
        .late_s = r->late_s,
        .late_max_s = r->late_max_s,
        .late_n = r->late_n,
        .sent_bytes = 1e6 * r->send_mb_s * r->train_s,
        .received_bytes = 1e6 * r->recv_mb_s * r->train_s,
        .read_mb_s = r->disk_read_mb_s,
        .write_mb_s = r->disk_write_mb_s,
        .read_peak_mb_s = r->disk_read_mb_s_peak,
        .write_peak_mb_s = r->disk_write_mb_s_peak,
    };
}

/* Makes the facts of all rows. Times that were sampled include evaluations, in which as much was
 * waited for a core as in training. Returns NULL if there is no memory. */
static struct vb_verdict_rank *all_facts(const struct vb_train_result *r, bool waits_count)
{
    struct vb_verdict_rank *list = calloc((size_t)r->rows, sizeof(*list));
    int i;

    for (i = 0; list != NULL && i < r->rows; i++) {
        const struct vb_rank_result *row = &r->per_rank[i];
        double trains = row->train_s > 0 ? 1 - row->phase_s[VB_PHASE_EVAL] / row->train_s : 0;

        list[i] = rank_facts(row);
        list[i].queue_s *= trains;
        list[i].thread_s *= trains;
        if (!waits_count && !row->server)
            list[i].wait_s = 0; /* for the end of the others */
    }
    return list;
}

/* Asynchronous workers may reach their servers in different ways: the way of the worker that waits
 * longest for its bytes is told. */
static const char *transport_of(const struct vb_train_result *r)
{
    const struct vb_rank_result *most = NULL, *row;
    int i;

    for (i = 0; i < r->workers; i++) {
        row = &r->per_rank[i];
        if (row->transport[0] != '\0' &&
            (most == NULL || row->phase_s[VB_PHASE_COMM] > most->phase_s[VB_PHASE_COMM]))
            most = row;
    }
    return most != NULL ? most->transport : r->transport;
}

static void add_machine(const struct vb_train_result *r, struct vb_verdict_facts *f)
{
    const struct vb_result_machine *m = &r->machine;
    int i;

    f->cpus = m->cpus;
    for (i = 0; i < r->rows; i++)
        if (r->per_rank[i].machine == r->per_rank[0].machine)
            f->threads += r->per_rank[i].server ? 1 : m->threads;
    f->gflop = m->gflop;
    f->peak_gflop_s = m->gflop_s;
    f->peak_gb_s = m->gb_s;
    f->link_us = m->link.latency_us;
    f->mapped = m->link.gb_s > 0 ? m->link.mapped : strcmp(r->transport, "shm") == 0;
    f->link_gb_s = f->mapped && m->link.gb_s <= 0 ? m->gb_s : m->link.gb_s;
    f->sum_gb_s = m->link.sum_gb_s;
    f->requests = m->requests;
    f->algo_us = m->forecast.us;
    f->best_algo_us = m->forecast.best_us;
    f->best_algo = vb_algo_str(m->forecast.best);
}

void vb_train_find_bottleneck(struct vb_train_result *r, bool bounded)
{
    struct vb_verdict_rank *list = all_facts(r, !r->apart || bounded);
    int64_t steps = r->steps - r->resumed;
    struct vb_verdict_facts f = {
        .n_workers = r->workers,
        .n_servers = r->rows - r->workers,
        .apart = r->apart,
        .bounded = bounded,
        .steps = r->apart && r->workers > 0 ? steps / r->workers : steps,
        .steps_per_s = r->step_s > 0 ? (double)steps / r->step_s : 0,
        .samples_per_s = r->step_s > 0 ? (double)r->samples / r->step_s : 0,
        .batch = r->batch,
        .transport = transport_of(r),
        .algo = r->algo,
        .narrow = r->wire == NULL || strcmp(r->wire, "f32") != 0 || r->machine.gflop <= 0,
        .grad_bytes = (double)r->params * sizeof(float),
    };

    if (list == NULL)
        return; /* a result without a verdict is better than none */
    f.workers = list;
    f.servers = list + r->workers;
    add_machine(r, &f);
    vb_verdict(&f, &r->bottleneck);
    free(list);
}

/* ---- is the model still improving? ----------------------------------------------------------- */

void vb_train_note_loss(struct vb_trainer *t, int64_t step)
{
    struct vb_trainer_tenths *x = &t->tenths;
    int last = step * 10 > t->recipe.steps * 9;

    if (step * 10 <= t->recipe.steps * 8)
        return;
    x->n[last]++;
    x->sum[last] += t->loss;
    x->squares[last] += t->loss * t->loss;
}

/* The loss of a batch is noisy. It has fallen if the means differ by more than two standard errors,
 * and by more than a user would care about. */
struct vb_improving vb_train_improving(const struct vb_trainer_tenths *x)
{
    struct vb_improving r = {0};
    double error = 0, mean[2], spread;
    int i;

    if (x->n[0] < LEAST_LOSSES || x->n[1] < LEAST_LOSSES)
        return r;
    for (i = 0; i < 2; i++) {
        mean[i] = x->sum[i] / (double)x->n[i];
        spread = fmax(x->squares[i] / (double)x->n[i] - mean[i] * mean[i], 0);
        error += spread / (double)x->n[i];
    }
    r.known = isfinite(mean[0]) && isfinite(mean[1]);
    r.before = mean[0];
    r.last = mean[1];
    r.still = r.known && mean[0] - mean[1] > fmax(2 * sqrt(error), LEAST_FALL * mean[0]);
    return r;
}
