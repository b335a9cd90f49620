/* SPDX-License-Identifier: MIT
 *
 * The result of verbena train as JSON: the final object. Its keys are a contract: programs read
 * them. A value that the engine does not measure is null or an empty list.
 */
#include "cli/train/cmd_train.h"

#include <math.h>
#include <string.h>

static void json_breakdown(struct vb_json *json, const double phase_s[VB_PHASES])
{
    int p;

    vb_json_object(json, "breakdown");
    for (p = 0; p < VB_PHASES; p++)
        vb_json_real(json, vb_phase_str((enum vb_phase)p), phase_s[p]);
    vb_json_end(json);
}

void cli_train_json_rank(struct vb_json *json, const struct vb_rank_result *r)
{
    vb_json_object(json, NULL);
    vb_json_int(json, "rank", r->rank);
    vb_json_text(json, "role", r->server ? "server" : "worker");
    vb_json_text(json, "host", r->host);
    vb_json_real(json, "cpu_pct", r->cpu_pct);
    vb_json_real(json, "cpu_pct_peak", r->cpu_pct_peak);
    vb_json_real(json, "rss_peak_mb", r->rss_peak_mb);
    vb_json_real(json, "send_mb_s", r->send_mb_s);
    vb_json_real(json, "send_mb_s_peak", r->send_mb_s_peak);
    vb_json_real(json, "recv_mb_s", r->recv_mb_s);
    vb_json_real(json, "recv_mb_s_peak", r->recv_mb_s_peak);
    vb_json_real(json, "disk_read_mb_s", r->disk_read_mb_s);
    vb_json_real(json, "disk_read_mb_s_peak", r->disk_read_mb_s_peak);
    vb_json_real(json, "disk_write_mb_s", r->disk_write_mb_s);
    vb_json_real(json, "disk_write_mb_s_peak", r->disk_write_mb_s_peak);
    vb_json_real(json, "train_s", r->train_s);
    vb_json_real(json, "accuracy", r->accuracy >= 0 ? r->accuracy : (double)NAN);
    json_breakdown(json, r->phase_s);
    if (r->server) {
        vb_json_real(json, "apply_s", r->phase_s[VB_PHASE_UPDATE]);
        vb_json_real(json, "idle_s", r->phase_s[VB_PHASE_WAIT]);
    }
    vb_json_real(json, "registered_mb", r->registered_mb);
    vb_json_real(json, "register_s", r->register_s);
    vb_json_int(json, "late_n", r->late_n);
    vb_json_real(json, "late_s", r->late_s);
    vb_json_real(json, "late_max_s", r->late_max_s);
    vb_json_real(json, "queue_s", r->queue_s >= 0 ? r->queue_s : (double)NAN);
    vb_json_end(json);
}

/* Prints the histogram up to its last bucket that is not empty. Bucket 0 counts gradients with
 * staleness 0. Bucket i > 0 counts gradients with staleness from 2^(i-1) to 2^i - 1. */
static void json_stale(struct vb_json *json, const struct vb_stale *s)
{
    int b, n = VB_STALE_BUCKETS;

    vb_json_int(json, "gradients", (int64_t)s->n);
    vb_json_real(json, "mean", s->n > 0 ? (double)s->sum / (double)s->n : 0);
    vb_json_int(json, "max", (int64_t)s->max);
    vb_json_int(json, "dropped", (int64_t)s->dropped);
    while (n > 0 && s->bucket[n - 1] == 0)
        n--;
    vb_json_array(json, "histogram");
    for (b = 0; b < n; b++)
        vb_json_int(json, NULL, (int64_t)s->bucket[b]);
    vb_json_end(json);
}

/* Returns the staleness of all workers together. */
struct vb_stale cli_train_stale(const struct vb_train_result *r)
{
    struct vb_stale all = {0};
    int i, b;

    for (i = 0; i < r->n_staleness; i++) {
        const struct vb_stale *s = &r->staleness[i].stale;

        all.n += s->n;
        all.sum += s->sum;
        all.max = s->max > all.max ? s->max : all.max;
        all.dropped += s->dropped;
        for (b = 0; b < VB_STALE_BUCKETS; b++)
            all.bucket[b] += s->bucket[b];
    }
    return all;
}

static void json_staleness(struct vb_json *json, const struct vb_train_opts *o,
                           const struct vb_train_result *r)
{
    struct vb_stale all = cli_train_stale(r);
    int i;

    if (r->staleness == NULL) {
        vb_json_text(json, "staleness", NULL);
        return;
    }
    vb_json_object(json, "staleness");
    if (o->async.bounded)
        vb_json_int(json, "bound", o->async.staleness);
    else
        vb_json_text(json, "bound", NULL);
    json_stale(json, &all);
    vb_json_array(json, "per_worker");
    for (i = 0; i < r->n_staleness; i++) {
        vb_json_object(json, NULL);
        vb_json_int(json, "rank", r->staleness[i].rank);
        json_stale(json, &r->staleness[i].stale);
        vb_json_end(json);
    }
    vb_json_end(json);
    vb_json_end(json);
}

static void json_faults(struct vb_json *json, const struct vb_train_result *r)
{
    int i;

    vb_json_array(json, "faults");
    for (i = 0; i < r->n_faults; i++) {
        const struct vb_fault *f = &r->faults[i];

        vb_json_object(json, NULL);
        vb_json_real(json, "at_s", f->at_s);
        vb_json_int(json, "step", f->step);
        vb_json_int(json, "rank", f->rank);
        vb_json_text(json, "what", f->what);
        vb_json_text(json, "why", f->why);
        vb_fault_json(json, f);
        vb_json_end(json);
    }
    vb_json_end(json);
}

static void json_evals(struct vb_json *json, const struct vb_train_result *r)
{
    int i;

    vb_json_array(json, "evals");
    for (i = 0; i < r->n_evals; i++) {
        vb_json_object(json, NULL);
        vb_json_int(json, "step", r->evals[i].step);
        vb_json_real(json, "accuracy", r->evals[i].accuracy);
        vb_json_real(json, "loss", r->evals[i].loss);
        vb_json_end(json);
    }
    vb_json_end(json);
}

static void json_warnings(struct vb_json *json, const struct vb_train_result *r)
{
    int i;

    vb_json_array(json, "warnings");
    for (i = 0; i < r->n_warnings; i++)
        vb_json_text(json, NULL, r->warnings[i]);
    vb_json_end(json);
}

void cli_train_json_recipe(struct vb_json *json, const struct vb_chosen *c)
{
    if (c->rule == NULL) {
        vb_json_text(json, "recipe", NULL);
        return;
    }
    vb_json_object(json, "recipe");
    vb_json_text(json, "rule", c->rule);
    vb_json_text(json, "rule_from", c->rule_from);
    vb_json_real(json, "lr", c->lr);
    vb_json_text(json, "lr_from", c->lr_from);
    vb_json_text(json, "schedule", c->schedule);
    vb_json_int(json, "warmup", c->warmup);
    vb_json_real(json, "momentum", c->momentum);
    vb_json_real(json, "weight_decay", c->decay);
    vb_json_real(json, "clip", c->clip);
    vb_json_int(json, "steps", c->steps);
    vb_json_text(json, "steps_from", c->steps_from);
    vb_json_int(json, "global_batch", c->global_batch);
    vb_json_text(json, "batch_from", c->batch_from);
    vb_json_text(json, "why", c->why[0] != '\0' ? c->why : NULL);
    vb_json_end(json);
}

/* The losses are null if there were too few steps. */
static void json_improving(struct vb_json *json, const struct vb_improving *i)
{
    if (i->known)
        vb_json_bool(json, "improving", i->still);
    else
        vb_json_text(json, "improving", NULL);
    vb_json_real(json, "loss_last_tenth", i->known ? i->last : (double)NAN);
    vb_json_real(json, "loss_tenth_before", i->known ? i->before : (double)NAN);
}

const char *cli_train_test_from(const struct vb_train_opts *o)
{
    if (o->data.ask.test != NULL)
        return "given";
    if (o->data.ask.test_share > 0)
        return "held out";
    return vb_data_has_test(&o->data.ask.data) ? "data" : "training";
}

static void json_noise(struct vb_json *json, const struct vb_noise_result *noise)
{
    vb_json_real(json, "noise_scale", noise->scale);
    vb_json_real(json, "noise_scale_error", noise->error);
    vb_json_int(json, "noise_scale_steps", noise->steps);
    vb_json_text(json, "noise_scale_why", noise->why);
}

static void json_figures(struct vb_json *json, const struct vb_train_result *r)
{
    vb_json_int(json, "batch", r->batch);
    vb_json_int(json, "global_batch", r->global_batch);
    vb_json_int(json, "steps", r->steps);
    vb_json_real(json, "epochs", r->epochs);
    vb_json_real(json, "lr", r->lr);
    vb_json_real(json, "train_s", r->train_s);
    vb_json_real(json, "wall_s", r->wall_s);
    vb_json_real(json, "steps_per_s", (double)(r->steps - r->resumed) / r->step_s);
    vb_json_real(json, "samples_per_s", (double)r->samples / r->step_s);
    vb_json_real(json, "loss", r->accuracy >= 0 ? r->loss : (double)NAN); /* null after a dry run */
    vb_json_real(json, "accuracy", r->accuracy >= 0 ? r->accuracy : (double)NAN);
    vb_json_int(json, "test_samples", r->test_samples);
    vb_json_real(json, "unseen", r->unseen >= 0 ? r->unseen : (double)NAN);
    vb_json_int(json, "params", r->params);
    vb_json_text(json, "params_sha256", r->params_sha256[0] != '\0' ? r->params_sha256 : NULL);
    vb_json_text(json, "plan_sha256", r->plan_sha256[0] != '\0' ? r->plan_sha256 : NULL);
    vb_json_int(json, "resumed", r->resumed);
    vb_json_text(json, "stopped", r->stopped != 0 ? cli_train_signal(r->stopped) : NULL);
    vb_json_text(json, "checkpoint", r->checkpoint[0] != '\0' ? r->checkpoint : NULL);
    vb_json_real(json, "checkpoint_pause_s", r->pause_s);
    vb_json_real(json, "checkpoint_write_s", r->save_s);
    vb_json_int(json, "checkpoints_skipped", r->saves_skipped);
    cli_train_json_recipe(json, &r->chosen);
    json_noise(json, &r->noise);
    json_improving(json, &r->improving);
}

void cli_train_json_tools(struct vb_json *json, const struct vb_train_opts *o)
{
    char spec[VB_INJECT_TEXT];
    int i;

    vb_json_array(json, "injected");
    for (i = 0; i < o->inject.n; i++) {
        vb_inject_spec(&o->inject.list[i], spec);
        vb_json_text(json, NULL, spec);
    }
    vb_json_end(json);
    vb_json_text(json, "replayed", o->replay);
}

void cli_train_json(struct vb_json *json, const char *mode, const struct vb_train_opts *o,
                    const struct vb_train_result *r)
{
    bool alone = r->transport[0] == '\0';
    int i;

    vb_json_text(json, "model", o->model);
    vb_json_text(json, "mode", mode);
    vb_json_int(json, "ranks", r->ranks);
    vb_json_text(json, "transport", alone ? NULL : r->transport);
    vb_json_text(json, "order", r->order);
    vb_json_text(json, "algo", r->algo);
    vb_json_text(json, "wire", r->wire);
    json_figures(json, r);
    vb_json_text(json, "test_from", cli_train_test_from(o));
    json_staleness(json, o, r);
    json_evals(json, r);
    cli_train_until_json(json, o, r);
    json_warnings(json, r);
    json_faults(json, r);
    vb_json_array(json, "per_rank");
    for (i = 0; i < r->rows; i++)
        cli_train_json_rank(json, &r->per_rank[i]);
    vb_json_end(json);
    json_breakdown(json, r->phase_s);
    cli_train_json_bottleneck(json, &r->bottleneck);
    cli_train_json_tools(json, o);
    if (o->dry_run)
        cli_train_json_need(json, o);
}
