/* SPDX-License-Identifier: MIT
 *
 * Functions that all benches share: they parse lists on the command line, print lines on standard
 * output, and measure memcpy.
 */
#include "bench/bench_priv.h"

#include <math.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Parses a size such as "64K" at *text_p, and moves *text_p to the character after the size. */
static bool parse_size(const char **text_p, size_t *size_p)
{
    static const char units[] = "KMG";
    const char *at = *text_p, *unit;
    size_t value = 0;
    int digits = 0;

    for (; *at >= '0' && *at <= '9' && digits < 12; at++, digits++)
        value = value * 10 + (size_t)(*at - '0');
    unit = *at != '\0' ? strchr(units, *at) : NULL;
    if (unit != NULL) {
        value <<= 10 * (unit - units + 1);
        at++;
    }
    if (digits == 0 || digits == 12 || value > (size_t)4 << 30)
        return false;
    *text_p = at;
    *size_p = value;
    return true;
}

bool vb_bench_parse_sizes(const char *text, struct vb_bench_opts *opts)
{
    for (opts->n_sizes = 0; opts->n_sizes < VB_BENCH_SIZES_MAX;) {
        if (!parse_size(&text, &opts->sizes[opts->n_sizes++]))
            return false;
        if (*text == '\0')
            return true;
        if (*text++ != ',')
            return false;
    }
    return false;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

/* Copies the next name of a list. Returns false at the end, or if the name is too long. */
static bool next_name(const char **text_p, char *name, size_t size)
{
    size_t len = strcspn(*text_p, ",");

    if (len == 0 || len >= size)
        return false;
    memcpy(name, *text_p, len);
    name[len] = '\0';
    *text_p += len + ((*text_p)[len] == ',' && (*text_p)[len + 1] != '\0');
    return true;
}

bool vb_bench_parse_algos(const char *text, struct vb_bench_opts *opts)
{
    char name[16];

    opts->n_algos = 0;
    if (strcmp(text, "all") == 0)
        return true;
    while (*text != '\0') {
        if (opts->n_algos == VB_ALGOS || !next_name(&text, name, sizeof(name)) ||
            !vb_algo_parse(name, &opts->algos[opts->n_algos++]))
            return false;
    }
    return opts->n_algos > 0;
}

/* Reads the next name of a list. Returns its index in names, or n if it is not in names. */
static size_t next_of(const char **text_p, const char *const *names, size_t n)
{
    char name[16];
    size_t i;

    if (!next_name(text_p, name, sizeof(name)))
        return n;
    for (i = 0; i < n && strcmp(name, names[i]) != 0; i++)
        ;
    return i;
}

bool vb_bench_parse_paths(const char *text, struct vb_bench_opts *opts)
{
    static const char *const names[] = {"auto", "sparse", "dense"}; /* in the order of the enum */
    size_t i;

    if (strcmp(text, "all") == 0)
        text = "sparse,dense";
    for (opts->n_paths = 0; *text != '\0'; opts->n_paths++) {
        i = next_of(&text, names, VB_COUNT(names));
        if (i == VB_COUNT(names) || opts->n_paths == (int)VB_COUNT(names))
            return false;
        opts->paths[opts->n_paths] = (enum vb_sparse_path)i;
    }
    return opts->n_paths > 0;
}

bool vb_bench_parse_parts(const char *text, struct vb_bench_opts *opts)
{
    static const char *const names[VB_BENCH_PARTS] = {/* in the order of enum vb_bench_part */
                                                      "memcpy",      "put-latency", "put",  "both",
                                                      "get-latency", "get",         "round"};
    size_t i;

    opts->parts = strcmp(text, "all") == 0 ? (1u << VB_BENCH_PARTS) - 1 : 0;
    while (opts->parts != (1u << VB_BENCH_PARTS) - 1 && *text != '\0') {
        i = next_of(&text, names, VB_BENCH_PARTS);
        if (i == VB_BENCH_PARTS)
            return false;
        opts->parts |= 1u << i;
    }
    return opts->parts != 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

void vb_bench_print_head(bool json)
{
    if (!json)
        printf("%-7s %-5s %-4s %11s %11s %11s %9s  %s\n", "", "op", "dir", "bytes", "p50 us",
               "p99 us", "GB/s", "of the rung below");
}

static void print_cell(double value, int width, int digits)
{
    if (value >= 0)
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void print_text(const struct vb_bench_line *line)
{
    printf("%-7s %-5s %-4s %11zu", line->transport, line->op, line->dir, line->bytes);
    print_cell(line->p50_us, 11, 2);
    print_cell(line->p99_us, 11, 2);
    print_cell(line->gb_s, 9, 3);
    if (line->pct >= 0)
        printf("  %.0f %% of %s", line->pct, line->below);
    printf("\n");
    fflush(stdout);
}

static double or_null(double value)
{
    return value >= 0 ? value : (double)NAN;
}

static void print_count(struct vb_json *j, const char *key, int64_t count)
{
    if (count >= 0)
        vb_json_int(j, key, count);
    else
        vb_json_real(j, key, (double)NAN); /* written as null */
}

void vb_bench_print(const struct vb_bench_line *line, bool json)
{
    struct vb_json *j;

    if (!json) {
        print_text(line);
        return;
    }
    j = vb_json_create();
    vb_json_object(j, NULL);
    vb_json_text(j, "bench", "transfer");
    vb_json_text(j, "transport", line->transport);
    vb_json_int(j, "ranks", line->ranks);
    vb_json_int(j, "bytes", (int64_t)line->bytes);
    vb_json_text(j, "op", line->op);
    vb_json_text(j, "dir", line->dir);
    vb_json_real(j, "lat_us_p50", or_null(line->p50_us));
    vb_json_real(j, "lat_us_p99", or_null(line->p99_us));
    vb_json_real(j, "gb_s", or_null(line->gb_s));
    vb_json_real(j, "pct_of_below", or_null(line->pct));
    vb_json_text(j, "below", line->below[0] != '\0' ? line->below : NULL);
    print_count(j, "rnr", line->rnr);
    print_count(j, "retries", line->retries);
    print_count(j, "out_of_seq", line->out_of_seq);
    vb_json_end(j);
    (void)vb_json_print(j, stdout);
    vb_json_destroy(j);
}

/* ---- lines of collectives -------------------------------------------------------------------- */

static bool sparse(const struct bench_coll_line *line)
{
    return line->nnz >= 0;
}

void bench_coll_head(const struct vb_bench_opts *opts, const struct bench_coll_line *line)
{
    if (opts->json)
        return;
    printf("%s over %s, %d rank%s, order %s, wire %s", line->bench, line->transport, line->ranks,
           line->ranks == 1 ? "" : "s", line->order, line->wire);
    if (sparse(line))
        printf(", %lld features", (long long)line->features);
    if (line->in_flight > 1)
        printf(", %d operations in flight", line->in_flight);
    printf("\n%11s", "bytes");
    if (sparse(line))
        printf(" %9s", "nonzeros");
    printf(" %-9s %12s %12s %10s %10s %11s %6s", "algo", "time us", "p99 us",
           sparse(line) ? "merge us" : "algbw GB/s", sparse(line) ? "" : "busbw GB/s", "wire bytes",
           "wrong");
    if (opts->explain)
        printf(" %12s %9s", "predicted us", "of that");
    printf("\n");
}

static double algbw(const struct bench_coll_line *line)
{
    return (double)line->bytes / line->p50_us / 1e3;
}

/* The bandwidth of the links as nccl-tests defines it, whatever the number of ranks. */
static double busbw(const struct bench_coll_line *line)
{
    return algbw(line) * 2 * (line->ranks - 1) / line->ranks;
}

static void print_coll_text(const struct vb_bench_opts *opts, const struct bench_coll_line *line)
{
    printf("%11zu", line->bytes);
    if (sparse(line))
        printf(" %9lld", (long long)line->nnz);
    printf(" %-9s", line->algo);
    print_cell(line->p50_us, 12, 2);
    print_cell(line->p99_us, 12, 2);
    if (sparse(line))
        printf(" %10.2f %10s", line->merge_us, "");
    else
        printf(" %10.3f %10.3f", algbw(line), busbw(line));
    printf(" %11lld %6lld", (long long)line->wire_bytes, (long long)line->wrong);
    if (opts->explain) {
        print_cell(line->predicted_us, 12, 2);
        print_cell(line->predicted_us > 0 ? line->p50_us / line->predicted_us : -1, 9, 2);
        printf("%s", line->chosen ? "  chosen" : "");
    }
    printf("\n");
    fflush(stdout);
}

static void fill_coll_json(struct vb_json *j, const struct vb_bench_opts *opts,
                           const struct bench_coll_line *line)
{
    vb_json_text(j, "bench", line->bench);
    vb_json_text(j, "transport", line->transport);
    vb_json_int(j, "ranks", line->ranks);
    vb_json_int(j, "bytes", (int64_t)line->bytes);
    if (sparse(line)) {
        vb_json_int(j, "nnz", line->nnz);
        vb_json_int(j, "features", line->features);
    }
    vb_json_text(j, "algo", line->algo);
    if (!sparse(line))
        vb_json_text(j, "order", line->order);
    vb_json_real(j, "time_us", line->p50_us);
    if (!sparse(line)) {
        vb_json_real(j, "algbw_gb_s", algbw(line));
        vb_json_real(j, "busbw_gb_s", busbw(line));
    }
    vb_json_int(j, "wire_bytes", line->wire_bytes);
    vb_json_int(j, "wrong", line->wrong);
    vb_json_real(j, "time_us_p99", line->p99_us);
    if (sparse(line)) {
        vb_json_real(j, "merge_us", line->merge_us);
    } else {
        vb_json_text(j, "wire", line->wire);
        vb_json_int(j, "in_flight", line->in_flight);
    }
    if (opts->explain) {
        vb_json_real(j, "predicted_us", or_null(line->predicted_us));
        vb_json_bool(j, "chosen", line->chosen);
    }
}

void bench_coll_print(const struct vb_bench_opts *opts, const struct bench_coll_line *line)
{
    struct vb_json *j;

    if (!opts->json) {
        print_coll_text(opts, line);
        return;
    }
    j = vb_json_create();
    vb_json_object(j, NULL);
    fill_coll_json(j, opts, line);
    vb_json_end(j);
    (void)vb_json_print(j, stdout);
    fflush(stdout);
    vb_json_destroy(j);
}

/* ---- the lowest rung ------------------------------------------------------------------------- */

#define COPY_SECONDS_MAX 1.0 /* a longer run gives no better result, and other ranks wait */

static double copy_gb_s(char *to, const char *from, size_t len, double seconds)
{
    uint64_t start = vb_clock_ns(), now = start;
    int64_t n = 0;

    while ((double)(now - start) < seconds * 1e9) {
        memcpy(to, from, len);
        __asm__ volatile("" ::"r"(to) : "memory"); /* otherwise the compiler may remove the copy */
        n++;
        now = vb_clock_ns();
    }
    return (double)n * (double)len / (double)(now - start);
}

vb_status vb_bench_memcpy(const struct vb_bench_opts *opts, struct vb_bench_rungs *rungs)
{
    struct vb_mem from, to;
    size_t max = bench_largest(opts);
    vb_status st;
    int i;

    memset(rungs, 0, sizeof(*rungs));
    st = vb_mem_map_shared("verbena-bench", max, &from);
    if (st != VB_OK)
        return st;
    st = vb_mem_map_shared("verbena-bench", max, &to);
    if (st == VB_OK) {
        memset(from.ptr, 1, max);
        memset(to.ptr, 2, max);
        for (i = 0; i < opts->n_sizes; i++) {
            struct vb_bench_line line = {.transport = "memcpy",
                                         .ranks = 1,
                                         .op = "copy",
                                         .dir = "uni",
                                         .bytes = opts->sizes[i],
                                         .p50_us = -1,
                                         .p99_us = -1,
                                         .pct = -1,
                                         .below = "",
                                         .retries = -1,
                                         .out_of_seq = -1,
                                         .rnr = -1};

            line.gb_s =
                copy_gb_s(to.ptr, from.ptr, opts->sizes[i], fmin(opts->seconds, COPY_SECONDS_MAX));
            rungs->gb_s[i] = line.gb_s;
            vb_bench_print(&line, opts->json);
        }
        vb_mem_unmap(&to);
    }
    vb_mem_unmap(&from);
    snprintf(rungs->below, sizeof(rungs->below), "memcpy");
    return st;
}
