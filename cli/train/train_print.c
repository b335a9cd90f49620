/* SPDX-License-Identifier: MIT
 *
 * The output of verbena train: the result as JSON (the final object) or as text, and one line of
 * progress during the training.
 *
 * The keys of the final object are a contract: programs read them. A value that the engine does not
 * measure is null or an empty list.
 */
#include "cli/train/cmd_train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_breakdown(struct vb_json *json, const double phase_s[VB_PHASES])
{
    int p;

    vb_json_object(json, "breakdown");
    for (p = 0; p < VB_PHASES; p++)
        vb_json_real(json, vb_phase_str((enum vb_phase)p), phase_s[p]);
    vb_json_end(json);
}

static void json_rank(struct vb_json *json, const struct vb_rank_result *r)
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
    vb_json_real(json, "disk_write_mb_s", r->disk_write_mb_s);
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
static struct vb_stale all_stale(const struct vb_train_result *r)
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
    struct vb_stale all = all_stale(r);
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

static void json_bottleneck(struct vb_json *json, const struct vb_bottleneck *b)
{
    if (b->why[0] == '\0') {
        vb_json_text(json, "bottleneck", NULL);
        return;
    }
    vb_json_object(json, "bottleneck");
    vb_json_text(json, "resource", vb_resource_str(b->resource));
    vb_json_real(json, "share", b->share);
    vb_json_text(json, "why", b->why);
    vb_json_end(json);
}

static const char *signal_name(int number)
{
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
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
    vb_json_real(json, "steps_per_s", (double)(r->steps - r->resumed) / r->train_s);
    vb_json_real(json, "samples_per_s", (double)r->samples / r->train_s);
    vb_json_real(json, "loss", r->accuracy >= 0 ? r->loss : (double)NAN); /* null after a dry run */
    vb_json_real(json, "accuracy", r->accuracy >= 0 ? r->accuracy : (double)NAN);
    vb_json_int(json, "test_samples", r->test_samples);
    vb_json_int(json, "params", r->params);
    vb_json_text(json, "params_sha256", r->params_sha256);
    vb_json_text(json, "plan_sha256", r->plan_sha256[0] != '\0' ? r->plan_sha256 : NULL);
    vb_json_int(json, "resumed", r->resumed);
    vb_json_text(json, "stopped", r->stopped != 0 ? signal_name(r->stopped) : NULL);
    vb_json_text(json, "checkpoint", r->checkpoint[0] != '\0' ? r->checkpoint : NULL);
    vb_json_real(json, "checkpoint_pause_s", r->pause_s);
}

/* Prints the final object. */
static vb_status print_json(const char *mode, const struct vb_train_opts *o,
                            const struct vb_train_result *r, FILE *out)
{
    struct vb_json *json = vb_json_create();
    bool alone = r->transport[0] == '\0';
    vb_status st;
    int i;

    vb_json_object(json, NULL);
    vb_json_text(json, "model", o->model);
    vb_json_text(json, "mode", mode);
    vb_json_int(json, "ranks", r->ranks);
    vb_json_text(json, "transport", alone ? NULL : r->transport);
    vb_json_text(json, "order", r->order);
    vb_json_text(json, "algo", r->algo);
    vb_json_text(json, "wire", r->wire);
    json_figures(json, r);
    json_staleness(json, o, r);
    json_evals(json, r);
    json_faults(json, r);
    vb_json_array(json, "per_rank");
    for (i = 0; i < r->rows; i++)
        json_rank(json, &r->per_rank[i]);
    vb_json_end(json);
    json_breakdown(json, r->phase_s);
    json_bottleneck(json, &r->bottleneck);
    if (o->dry_run)
        cli_train_json_need(json, o);
    vb_json_end(json);
    st = vb_json_print(json, out);
    vb_json_destroy(json);
    return st;
}

vb_status cli_train_may_keep(const char *dir)
{
    static const char *const names[] = {"run.json", "plan"};
    vb_status st = vb_dir_make(dir);
    char path[4096];
    size_t i;

    for (i = 0; st == VB_OK && i < VB_COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        st = vb_file_may_replace(path);
    }
    return st;
}

vb_status cli_train_keep(const char *dir, const char *mode, const struct vb_train_opts *o,
                         const struct vb_train_result *result)
{
    char path[4096], *text = NULL;
    size_t len = 0;
    vb_status st = vb_dir_make(dir);
    FILE *out;

    if (st != VB_OK)
        return st;
    out = open_memstream(&text, &len);
    if (out == NULL)
        return vb_err_sys("open_memstream");
    st = print_json(mode, o, result, out);
    fclose(out);
    snprintf(path, sizeof(path), "%s/run.json", dir);
    if (st == VB_OK)
        st = vb_file_replace(path, text, len);
    free(text);
    snprintf(path, sizeof(path), "%s/plan", dir);
    if (st == VB_OK && result->plan != NULL && result->plan[0] != '\0')
        st = vb_file_replace(path, result->plan, strlen(result->plan));
    return st;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_staleness(const struct vb_train_result *r)
{
    struct vb_stale all = all_stale(r);

    printf("\nstaleness   %.2f gradients on average, %llu at most",
           all.n > 0 ? (double)all.sum / (double)all.n : 0, (unsigned long long)all.max);
    if (all.dropped > 0)
        printf("; %llu dropped", (unsigned long long)all.dropped);
}

vb_status cli_train_print(const char *mode, const struct vb_train_opts *o,
                          const struct vb_train_result *r, bool json)
{
    int p, i;

    if (json)
        return print_json(mode, o, r, stdout);
    printf("model       %s, %lld parameters\n", o->model, (long long)r->params);
    printf("ranks       %d, %s", r->ranks, mode);
    if (r->transport[0] != '\0')
        printf(" over %s, gradients summed by %s", r->transport, r->algo);
    if (o->sums.coll.wire == VB_WIRE_BF16 && r->transport[0] != '\0')
        printf(" in bf16");
    if (r->per_rank[0].registered_mb > 0)
        printf(", %.1f MB registered in %.2f ms", r->per_rank[0].registered_mb,
               1e3 * r->per_rank[0].register_s);
    printf("\nsteps       %lld of %d samples, %g epochs, learning rate up to %g\n",
           (long long)r->steps, r->global_batch, r->epochs, r->lr);
    if (o->dry_run) {
        cli_train_print_need(o);
        printf("dry run     nothing was trained; the set-up took %.3f s\n", r->wall_s);
        return VB_OK;
    }
    if (r->resumed > 0)
        printf("resumed     at step %lld\n", (long long)r->resumed);
    if (r->stopped != 0)
        printf("stopped     by %s, after step %lld\n", signal_name(r->stopped),
               (long long)r->steps);
    printf("time        %.3f s of training, %.3f s in total: %.1f steps/s, %.0f samples/s\n",
           r->train_s, r->wall_s, (double)(r->steps - r->resumed) / r->train_s,
           (double)r->samples / r->train_s);
    printf("spent on   ");
    for (p = 0; p < VB_PHASES; p++)
        if (r->phase_s[p] > 0)
            printf(" %s %.1f %%", vb_phase_str((enum vb_phase)p), 100 * r->phase_s[p] / r->train_s);
    if (r->bottleneck.why[0] != '\0')
        printf("\nbottleneck  %s, %.0f %%: %s", vb_resource_str(r->bottleneck.resource),
               100 * r->bottleneck.share, r->bottleneck.why);
    if (r->staleness != NULL)
        print_staleness(r);
    for (i = 0; i < r->n_faults; i++)
        printf("\nat %6.1f s  rank %d %s after %lld steps: %s", r->faults[i].at_s,
               r->faults[i].rank, r->faults[i].what, (long long)r->faults[i].step,
               r->faults[i].why);
    printf("\naccuracy    %.2f %% of %d test samples, loss %.4f\n", 100 * r->accuracy,
           r->test_samples, r->loss);
    if (r->checkpoint[0] != '\0')
        printf("checkpoint  %s; writing one paused training for up to %.1f ms\n", r->checkpoint,
               1e3 * r->pause_s);
    printf("parameters  sha256 %s\n", r->params_sha256);
    return VB_OK;
}

/* The JSON object has some of the keys of the final object, which the rank that reports prints. */
vb_status cli_train_print_joined(const char *root, const struct vb_train_opts *o,
                                 const struct vb_train_result *r, bool as_json)
{
    struct vb_json *json;

    if (!as_json) {
        printf("joined      the job at %s (%s) as rank %d\n", root, o->model, r->per_rank[0].rank);
        printf("trained on  %lld samples in %.3f s; the job ended at step %lld and reports the "
               "result\n",
               (long long)r->samples, r->train_s, (long long)r->steps);
        return VB_OK;
    }
    json = cli_json_object();
    vb_json_text(json, "model", o->model);
    vb_json_text(json, "mode", "async");
    vb_json_text(json, "joined", root);
    vb_json_int(json, "steps", r->steps);
    vb_json_int(json, "samples", r->samples);
    vb_json_real(json, "train_s", r->train_s);
    vb_json_array(json, "per_rank");
    json_rank(json, &r->per_rank[0]);
    vb_json_end(json);
    return cli_print_json(json);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* On a terminal, the line after an evaluation stays, but the line after a step is overwritten by
 * the next line. A supervisor receives whole lines; VB_WIPE_LINE marks the lines that the
 * supervisor may overwrite. */
void cli_train_watch(void *screen, const struct vb_train_news *n)
{
    bool supervised = *(const enum cli_screen *)screen == CLI_SUPERVISOR;
    char line[256], accuracy[40] = "";

    if (n->accuracy >= 0)
        snprintf(accuracy, sizeof(accuracy), ", accuracy %.2f %%", 100 * n->accuracy);
    snprintf(line, sizeof(line),
             "epoch %.2f, step %lld of %lld, loss %.4f%s, %.0f samples/s, %.0f s left", n->epoch,
             (long long)n->step, (long long)n->steps, n->loss, accuracy, n->samples_per_s,
             n->left_s);
    fprintf(stderr, "%s%s%s", supervised && n->evaluated ? "" : VB_WIPE_LINE, line,
            supervised || n->evaluated ? "\n" : "");
}

void cli_train_watch_end(enum cli_screen screen)
{
    if (screen != CLI_NO_SCREEN)
        fprintf(stderr, VB_WIPE_LINE "%s", screen == CLI_SUPERVISOR ? "\n" : "");
}
