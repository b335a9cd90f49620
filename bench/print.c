/* SPDX-License-Identifier: MIT
 *
 * What all benches share: sizes on the command line, lines on standard output, and the lowest rung
 * of the ladder.
 */
#include "bench/bench.h"

#include <math.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------- */

/* "64K" at *text_p, which moves behind it. */
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
        vb_json_real(j, key, (double)NAN); /* null */
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

/* ---- the lowest rung ------------------------------------------------------------------------- */

static double copy_gb_s(char *to, const char *from, size_t len, double seconds)
{
    uint64_t start = vb_clock_ns(), now = start;
    int64_t n = 0;

    while ((double)(now - start) < seconds * 1e9) {
        memcpy(to, from, len);
        __asm__ volatile("" ::"r"(to) : "memory"); /* the copy must not be left out */
        n++;
        now = vb_clock_ns();
    }
    return (double)n * (double)len / (double)(now - start);
}

vb_status vb_bench_memcpy(const struct vb_bench_opts *opts, struct vb_bench_rungs *rungs)
{
    struct vb_mem from, to;
    size_t max = 1;
    vb_status st;
    int i;

    memset(rungs, 0, sizeof(*rungs));
    for (i = 0; i < opts->n_sizes; i++)
        max = opts->sizes[i] > max ? opts->sizes[i] : max;
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

            line.gb_s = copy_gb_s(to.ptr, from.ptr, opts->sizes[i], opts->seconds);
            rungs->gb_s[i] = line.gb_s;
            vb_bench_print(&line, opts->json);
        }
        vb_mem_unmap(&to);
    }
    vb_mem_unmap(&from);
    snprintf(rungs->below, sizeof(rungs->below), "memcpy");
    return st;
}
