/* SPDX-License-Identifier: MIT
 *
 * What verbena train shows: the final object, the same as text, and one line while it runs.
 *
 * The keys of the object are a contract. What the engine cannot know yet is null, or an empty list.
 */
#include "cli/train_print.h"

#define ERASE_LINE "\r\033[K"

/* Samples of the rank that has most. */
static int largest_share(const struct vb_train_opts *o)
{
    return (o->global_batch + o->group.world - 1) / o->group.world;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_null(struct vb_json *json, const char *key)
{
    vb_json_text(json, key, NULL);
}

static void json_breakdown(struct vb_json *json, const double phase_s[VB_PHASES])
{
    int p;

    vb_json_object(json, "breakdown");
    for (p = 0; p < VB_PHASES; p++)
        vb_json_real(json, vb_phase_str((enum vb_phase)p), phase_s[p]);
    vb_json_end(json);
}

/* All ranks hold the same parameters, which was checked: they have the same accuracy. */
static void json_rank(struct vb_json *json, const struct vb_rank_result *r, double accuracy)
{
    static const char *const unknown[] = {"send_mb_s",      "send_mb_s_peak", "recv_mb_s",
                                          "recv_mb_s_peak", "disk_read_mb_s", "disk_write_mb_s"};
    size_t i;

    vb_json_object(json, NULL);
    vb_json_int(json, "rank", r->rank);
    vb_json_text(json, "role", "worker");
    vb_json_text(json, "host", r->host);
    vb_json_real(json, "cpu_pct", r->cpu_pct);
    json_null(json, "cpu_pct_peak");
    vb_json_real(json, "rss_peak_mb", r->rss_peak_mb);
    for (i = 0; i < VB_COUNT(unknown); i++)
        json_null(json, unknown[i]);
    vb_json_real(json, "train_s", r->train_s);
    vb_json_real(json, "accuracy", accuracy);
    json_breakdown(json, r->phase_s);
    vb_json_real(json, "registered_mb", r->registered_mb);
    vb_json_real(json, "register_s", r->register_s);
    vb_json_end(json);
}

static void json_figures(struct vb_json *json, const struct vb_train_opts *o,
                         const struct vb_train_result *r)
{
    vb_json_int(json, "batch", largest_share(o));
    vb_json_int(json, "global_batch", o->global_batch);
    vb_json_int(json, "steps", r->steps);
    vb_json_real(json, "epochs", r->epochs);
    vb_json_real(json, "train_s", r->train_s);
    vb_json_real(json, "wall_s", r->wall_s);
    vb_json_real(json, "steps_per_s", (double)r->steps / r->train_s);
    vb_json_real(json, "samples_per_s", (double)r->steps * o->global_batch / r->train_s);
    vb_json_real(json, "loss", r->loss);
    vb_json_real(json, "accuracy", r->accuracy);
    vb_json_int(json, "test_samples", r->test_samples);
    vb_json_int(json, "params", r->params);
    vb_json_text(json, "params_sha256", r->params_sha256);
}

static vb_status print_json(const char *model, const char *mode, const struct vb_train_opts *o,
                            const struct vb_train_result *r)
{
    struct vb_json *json = vb_json_create();
    bool alone = r->transport[0] == '\0';
    vb_status st;
    int i;

    vb_json_object(json, NULL);
    vb_json_text(json, "model", model);
    vb_json_text(json, "mode", mode);
    vb_json_int(json, "ranks", r->ranks);
    vb_json_text(json, "transport", alone ? NULL : r->transport);
    vb_json_text(json, "order", alone ? NULL : "rank");
    vb_json_text(json, "algo", alone ? NULL : "gather");
    json_figures(json, o, r);
    json_null(json, "plan_sha256");
    json_null(json, "staleness");
    vb_json_array(json, "faults");
    vb_json_end(json);
    vb_json_array(json, "per_rank");
    for (i = 0; i < r->ranks; i++)
        json_rank(json, &r->per_rank[i], r->accuracy);
    vb_json_end(json);
    json_breakdown(json, r->phase_s);
    json_null(json, "bottleneck");
    vb_json_end(json);
    st = vb_json_print(json, stdout);
    vb_json_destroy(json);
    return st;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_text(const char *model, const char *mode, const struct vb_train_opts *o,
                       const struct vb_train_result *r)
{
    int p;

    printf("model       %s, %lld parameters\n", model, (long long)r->params);
    printf("ranks       %d, %s", r->ranks, mode);
    if (r->transport[0] != '\0')
        printf(" over %s", r->transport);
    if (r->per_rank[0].registered_mb > 0)
        printf(", %.1f MB registered in %.2f ms", r->per_rank[0].registered_mb,
               1e3 * r->per_rank[0].register_s);
    printf("\nsteps       %lld of %d samples, %g epochs\n", (long long)r->steps, o->global_batch,
           r->epochs);
    printf("time        %.3f s of training, %.3f s in all: %.1f steps/s, %.0f samples/s\n",
           r->train_s, r->wall_s, (double)r->steps / r->train_s,
           (double)r->steps * o->global_batch / r->train_s);
    printf("spent on   ");
    for (p = 0; p < VB_PHASES; p++)
        if (r->phase_s[p] > 0)
            printf(" %s %.1f %%", vb_phase_str((enum vb_phase)p), 100 * r->phase_s[p] / r->train_s);
    printf("\naccuracy    %.2f %% of %d test samples, loss %.4f\n", 100 * r->accuracy,
           r->test_samples, r->loss);
    printf("parameters  sha256 %s\n", r->params_sha256);
}

vb_status cli_train_print(const char *model, const char *mode, const struct vb_train_opts *o,
                          const struct vb_train_result *result, bool json)
{
    if (json)
        return print_json(model, mode, o, result);
    print_text(model, mode, o, result);
    return VB_OK;
}

/* ---- while it runs --------------------------------------------------------------------------- */

void cli_train_watch(void *arg, int64_t step, int64_t steps, double loss)
{
    (void)arg;
    fprintf(stderr, ERASE_LINE "step %lld of %lld, loss %.4f", (long long)step, (long long)steps,
            loss);
}

void cli_train_watch_end(void)
{
    fprintf(stderr, ERASE_LINE);
}
