/* SPDX-License-Identifier: MIT
 *
 * Measures how long each backend takes for each pass of a model's layers, beside the fastest
 * matrix product of the machine, and marks what a plan would choose. Results are compared with the
 * reference first.
 */
#include "bench/bench.h"

#include <math.h>
#include <string.h>

struct line {
    const char *layer, *pass, *backend;
    double ms, flops;
    bool chosen;
    double off; /* largest error compared with the reference; see vb_k_check_all() */
    double choose_ms;
};

struct sums {
    double ms, flops; /* sums over the chosen kernels; flops only over kernels that have FLOPs */
    double off;       /* the largest error of all lines */
    double choose_ms; /* time to choose kernels, without cached choices */
};

static void print_json(const struct vb_bench_kernels *o, const struct line *l, double peak)
{
    double gflop_s = l->flops / l->ms / 1e6;
    struct vb_json *json = vb_json_create();

    vb_json_object(json, NULL);
    vb_json_text(json, "bench", "kernels");
    vb_json_text(json, "model", o->table->name);
    vb_json_int(json, "batch", o->batch);
    vb_json_text(json, "layer", l->layer);
    vb_json_text(json, "pass", l->pass);
    vb_json_text(json, "backend", l->backend);
    vb_json_real(json, "ms", l->ms);
    vb_json_real(json, "gflop_s", gflop_s);
    vb_json_bool(json, "chosen", l->chosen);
    vb_json_real(json, "gemm_share", gflop_s / peak);
    vb_json_int(json, "threads", o->threads);
    vb_json_real(json, "off_rms", l->off);
    if (l->choose_ms > 0)
        vb_json_real(json, "choose_ms", l->choose_ms);
    vb_json_end(json);
    if (vb_json_print(json, stdout) == VB_OK)
        fflush(stdout);
    vb_json_destroy(json);
}

static void print_line(const struct vb_bench_kernels *o, const struct line *l, double peak)
{
    double gflop_s = l->flops / l->ms / 1e6;

    if (o->json) {
        print_json(o, l, peak);
        return;
    }
    printf("%-8s %-17s %-14s %10.3f", l->layer, l->pass, l->backend, l->ms);
    if (l->flops > 0)
        printf(" %9.1f %6.0f%%", gflop_s, 100 * gflop_s / peak);
    else
        printf(" %9s %7s", "-", "-");
    printf("  %s\n", l->chosen ? "*" : "");
    if (l->choose_ms > 0)
        printf("# choosing took %.0f ms\n", l->choose_ms);
    fflush(stdout);
}

vb_status vb_bench_kernels_check(const char *layer, enum vb_k_pass pass,
                                 const struct vb_k_checked *checked, int n)
{
    int i;

    for (i = 0; i < n; i++)
        if (!(checked[i].off <= VB_BENCH_OFF_MAX))
            return vb_err(VB_ERR_UNSUPPORTED,
                          "layer %s, pass %s: backend %s computes wrong results; the error is %.3g "
                          "of their root mean square",
                          layer, vb_k_pass_str(pass), checked[i].backend, checked[i].off);
    return VB_OK;
}

static double off_of(const char *backend, const struct vb_k_checked *checked, int n)
{
    int i;

    for (i = 0; i < n; i++)
        if (strcmp(checked[i].backend, backend) == 0)
            return checked[i].off;
    return NAN; /* not checked: written as null */
}

static vb_status bench_pass(const struct vb_bench_kernels *o, const char *name,
                            const struct vb_k_layer *layer, enum vb_k_pass pass, double peak,
                            struct sums *sums)
{
    const struct vb_k_shape *s = vb_k_layer_shape(layer);
    const char *chosen = vb_k_layer_backend(layer, pass);
    struct vb_k_candidate c[VB_K_CANDIDATES_MAX];
    struct vb_k_checked checked[VB_K_CANDIDATES_MAX];
    int i, n = 0, n_checked;
    vb_status st;

    if (chosen == NULL)
        return VB_OK;
    st = vb_k_check_all(s, pass, false, checked, &n_checked);
    if (st == VB_OK)
        st = vb_bench_kernels_check(name, pass, checked, n_checked);
    if (st == VB_OK)
        st = vb_k_time_all(s, pass, o->seconds, c, &n);
    for (i = 0; i < n && st == VB_OK; i++) {
        struct line l = {.layer = name,
                         .pass = vb_k_pass_str(pass),
                         .backend = c[i].backend,
                         .ms = c[i].ms,
                         .flops = vb_k_shape_flops(s, pass),
                         .chosen = strcmp(c[i].backend, chosen) == 0,
                         .off = off_of(c[i].backend, checked, n_checked)};

        if (c[i].ms < 0)
            continue;
        print_line(o, &l, peak);
        sums->off = l.off > sums->off ? l.off : sums->off;
        if (l.chosen && l.flops > 0) {
            sums->ms += l.ms;
            sums->flops += l.flops;
        }
    }
    return st;
}

/* The input of the first layer needs no gradient. */
static vb_status bench_layer(const struct vb_bench_kernels *o, int index,
                             const struct vb_k_shape *shape, double peak, struct sums *sums)
{
    struct vb_k_tuning tuning = {.unused = {[VB_K_BACKWARD_DATA] = index == 0},
                                 .fast_math = o->fast_math};
    uint64_t start = vb_clock_ns();
    struct vb_k_layer *layer;
    int pass;
    vb_status st = vb_k_layer_create(shape, &tuning, &layer);

    if (st != VB_OK)
        return st;
    sums->choose_ms += (double)(vb_clock_ns() - start) / 1e6;
    for (pass = 0; pass < VB_K_PASSES && st == VB_OK; pass++)
        st = bench_pass(o, o->table->layers[index].name, layer, (enum vb_k_pass)pass, peak, sums);
    vb_k_layer_destroy(layer);
    return st;
}

vb_status vb_bench_kernels(const struct vb_bench_kernels *o)
{
    struct vb_k_shape shapes[VB_LAYERS_MAX];
    double peak = vb_k_gemm_peak(o->seconds);
    struct sums sums = {0, 0, 0, 0};
    vb_status st;
    int i;

    if (peak < 0)
        return vb_err(VB_ERR_NO_MEMORY, "no memory to measure the GEMM peak");
    st = vb_layer_table_shapes(o->table, o->batch, shapes);
    if (st != VB_OK)
        return st;
    if (!o->json)
        printf("# %s, batch %d, %d threads; measured GEMM peak %.1f GFLOP/s\n"
               "%-8s %-17s %-14s %10s %9s %7s  %s\n",
               o->table->name, o->batch, o->threads, peak, "layer", "pass", "backend", "ms",
               "GFLOP/s", "of peak", "chosen");
    for (i = 0; i < o->table->n_layers && st == VB_OK; i++)
        st = bench_layer(o, i, &shapes[i], peak, &sums);
    if (st == VB_OK) {
        struct line all = {"all",      "all", "chosen", sums.ms,
                           sums.flops, true,  sums.off, sums.choose_ms};

        print_line(o, &all, peak);
    }
    return st;
}
