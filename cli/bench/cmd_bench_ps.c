/* SPDX-License-Identifier: MIT */
#include "cli/bench/cmd_bench.h"

#include <string.h>

/* The update rule ftrl is missing, because only sparse models have it. */
const char *const cli_ps_rules[] = {VB_K_RULES_DENSE, NULL};

int cli_bench_ps_check(const char *keys, int64_t features, int64_t servers, int rule, int world,
                       struct cli_bench_ps *ps_p)
{
    const char *text = keys != NULL ? keys : CLI_PS_KEYS;
    int64_t n = servers > 0 ? servers : 1;

    ps_p->n_keys = 0;
    if (strcmp(text, "none") != 0)
        ps_p->n_keys = cli_parse_numbers(text, features, ps_p->keys, CLI_PS_KEYS_MAX);
    if (ps_p->n_keys < 0)
        return cli_refuse(
            &cli_bench,
            "--keys %.64s: must be none, or up to %d numbers from 1 to the value of --features",
            text, CLI_PS_KEYS_MAX);
    if (world <= n)
        return cli_refuse(
            &cli_bench,
            "bench ps needs at least one worker in addition to its servers: use --ranks 2 or more");
    ps_p->features = features;
    ps_p->servers = (int)n;
    ps_p->rule = (enum vb_k_rule_kind)rule;
    return -1;
}

static const char *const ops[] = {"push", "pull", "push+pull"}; /* as in enum vb_ps_op */

static void print_json(const struct vb_ps_line *l)
{
    struct vb_json *json = cli_json_object();

    vb_json_text(json, "bench", "ps");
    vb_json_text(json, "transport", l->transport);
    vb_json_int(json, "ranks", l->workers + l->servers);
    vb_json_int(json, "bytes", l->bytes);
    vb_json_text(json, "op", ops[l->op]);
    vb_json_int(json, "keys", l->keys);
    vb_json_int(json, "workers", l->workers);
    vb_json_int(json, "servers", l->servers);
    vb_json_real(json, "time_us", l->time_us);
    vb_json_real(json, "time_us_p99", l->p99_us);
    vb_json_real(json, "gb_s", l->gb_s);
    vb_json_real(json, "server_cpu_us", l->server_cpu_us);
    vb_json_int(json, "wrong", l->wrong);
    vb_json_real(json, "server_apply_us", l->server_apply_us);
    vb_json_real(json, "server_idle", l->server_idle);
    (void)cli_print_json(json);
    fflush(stdout);
}

static void print_line(void *arg, const struct vb_ps_line *l)
{
    const struct vb_bench_opts *o = arg;

    if (o->json) {
        print_json(l);
        return;
    }
    printf("%-10s %-9s %7lld %10lld %7d %7d %11.2f %11.2f %8.3f %14.2f %8.2f %5.2f\n", l->transport,
           ops[l->op], (long long)l->keys, (long long)l->bytes, l->workers, l->servers, l->time_us,
           l->p99_us, l->gb_s, l->server_cpu_us, l->server_apply_us, l->server_idle);
    fflush(stdout);
}

vb_status cli_bench_ps(struct vb_group *group, const struct cli_bench_ps *ps,
                       const struct vb_bench_opts *o, int64_t *wrong_p)
{
    struct vb_ps_bench bench = {.sizes = o->sizes,
                                .n_sizes = o->n_sizes,
                                .keys = ps->keys,
                                .n_keys = ps->n_keys,
                                .features = ps->features,
                                .servers = ps->servers,
                                .rule = ps->rule,
                                .seconds = o->seconds,
                                .each = print_line,
                                .each_arg = (void *)o};

    if (vb_group_rank(group) == 0 && !o->json)
        printf("%-10s %-9s %7s %10s %7s %7s %11s %11s %8s %14s %8s %5s\n", "", "op", "keys",
               "bytes", "workers", "servers", "p50 us", "p99 us", "GB/s", "server cpu us",
               "apply us", "idle");
    return vb_bench_ps(group, &bench, wrong_p);
}
