/* SPDX-License-Identifier: MIT
 *
 * Measures what kernels round: the error of each backend against the reference in double precision,
 * for each pass of each layer, and of the parameters after some steps of training.
 *
 * The measure is single precision itself: the backend "running", in which each result is one
 * running sum of floats. A backend that may be chosen without --fast-math must not be much worse.
 */
#include "bench/bench.h"
#include "bench/exact_steps.h"

#include <math.h>
#include <string.h>

static void print_json(const struct vb_bench_kernels *o, const struct vb_bench_rounding *r)
{
    struct vb_json *json = vb_json_create();

    vb_json_object(json, NULL);
    vb_json_text(json, "bench", "kernels");
    vb_json_text(json, "model", o->table->name);
    vb_json_int(json, "batch", o->batch);
    vb_json_text(json, "layer", r->layer);
    vb_json_text(json, "pass", r->pass);
    vb_json_text(json, "backend", r->backend);
    vb_json_int(json, "steps", r->steps);
    vb_json_real(json, "error_rms", r->error);
    vb_json_real(json, "off_rms", r->off);
    vb_json_real(json, "running_error_rms", r->running);
    vb_json_bool(json, "fast_math", r->fast_math);
    vb_json_bool(json, "within", vb_bench_rounding_within(r));
    vb_json_end(json);
    if (vb_json_print(json, stdout) == VB_OK)
        fflush(stdout);
    vb_json_destroy(json);
}

static void print(const struct vb_bench_kernels *o, const struct vb_bench_rounding *r)
{
    const char *verdict = vb_bench_rounding_within(r) ? "" : "rounds more";

    if (o->json) {
        print_json(o, r);
        return;
    }
    printf("%-8s %-17s %-14s %10.2e", r->layer, r->pass, r->backend, r->error);
    if (r->running > 0)
        printf(" %9.2f", r->error / r->running);
    else
        printf(" %9s", "-");
    printf("  %s%s\n", verdict, r->fast_math ? (verdict[0] ? ", --fast-math" : "--fast-math") : "");
    fflush(stdout);
}

bool vb_bench_rounding_within(const struct vb_bench_rounding *r)
{
    double least = r->steps > 0 ? VB_BENCH_STEPS_LEAST : VB_BENCH_LEAST;

    return r->error <= fmax(r->running, least) * VB_BENCH_SPREAD_MAX;
}

/* Counts a backend that rounds too much although it may be chosen at any time. */
static void judge(const struct vb_bench_kernels *o, const struct vb_bench_rounding *r, int *bad_p)
{
    print(o, r);
    if (r->fast_math || vb_bench_rounding_within(r))
        return;
    VB_LOG_ERROR("layer %s, %s: the error of backend %s is %.2e, that of a running sum %.2e",
                 r->layer, r->pass, r->backend, r->error, r->running);
    ++*bad_p;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static double running_of(const struct vb_k_checked *checked, int n)
{
    int i;

    for (i = 0; i < n; i++)
        if (strcmp(checked[i].backend, VB_K_RUNNING) == 0)
            return checked[i].error;
    return 0;
}

static vb_status check_pass(const struct vb_bench_kernels *o, const char *layer,
                            const struct vb_k_shape *s, enum vb_k_pass pass, int *bad_p)
{
    struct vb_k_checked checked[VB_K_CANDIDATES_MAX];
    int i, n;
    vb_status st = vb_k_check_all(s, pass, true, checked, &n);

    if (st == VB_OK)
        st = vb_bench_kernels_check(layer, pass, checked, n);
    for (i = 0; i < n && st == VB_OK; i++) {
        struct vb_bench_rounding r = {.layer = layer,
                                      .pass = vb_k_pass_str(pass),
                                      .backend = checked[i].backend,
                                      .error = checked[i].error,
                                      .off = checked[i].off,
                                      .running = running_of(checked, n),
                                      .fast_math = checked[i].fast_math};

        judge(o, &r, bad_p);
    }
    return st;
}

static vb_status check_layers(const struct vb_bench_kernels *o, int *bad_p)
{
    struct vb_k_shape shapes[VB_LAYERS_MAX];
    vb_status st = vb_layer_table_shapes(o->table, o->batch, shapes);
    int i, pass;

    for (i = 0; i < o->table->n_layers && st == VB_OK; i++)
        for (pass = 0; pass < VB_K_PASSES && st == VB_OK; pass++)
            if (vb_k_has_pass(shapes[i].kind, (enum vb_k_pass)pass) &&
                (i > 0 || pass != VB_K_BACKWARD_DATA))
                st = check_pass(o, o->table->layers[i].name, &shapes[i], (enum vb_k_pass)pass,
                                bad_p);
    return st;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static vb_status check_steps(const struct vb_bench_kernels *o, int *bad_p)
{
    struct vb_exact_steps *steps;
    struct vb_bench_rounding r = {.layer = "all", .pass = "steps", .steps = VB_BENCH_STEPS};
    vb_status st = vb_exact_steps_create(o->table, o->batch, VB_BENCH_STEPS, &steps);
    int i;

    if (st != VB_OK)
        return st;
    st = vb_exact_steps_error(steps, VB_K_RUNNING, &r.running, &r.off);
    for (i = 0; st == VB_OK && (r.backend = vb_k_backend_name(i, &r.fast_math)) != NULL; i++) {
        if (!vb_exact_steps_uses(steps, r.backend))
            continue;
        st = vb_exact_steps_error(steps, r.backend, &r.error, &r.off);
        if (st == VB_OK)
            judge(o, &r, bad_p);
    }
    vb_exact_steps_destroy(steps);
    return st;
}

vb_status vb_bench_kernels_rounding(const struct vb_bench_kernels *o)
{
    vb_status st;
    int bad = 0;

    if (!o->json)
        printf("# %s, batch %d: error against double precision, divided by the root mean square of "
               "the result,\n# and by the error of a running sum of floats; then the parameters "
               "after %d steps, divided by their change\n%-8s %-17s %-14s %10s %9s\n",
               o->table->name, o->batch, VB_BENCH_STEPS, "layer", "pass", "backend", "error",
               "of running");
    st = check_layers(o, &bad);
    if (st == VB_OK)
        st = check_steps(o, &bad);
    if (st == VB_OK && bad > 0)
        st = vb_err(VB_ERR_UNSUPPORTED,
                    "%d results round more than %g times as much as a running sum of floats", bad,
                    VB_BENCH_SPREAD_MAX);
    return st;
}
