/* SPDX-License-Identifier: MIT
 *
 * The ranks of a run for verbena top: those of run.json, and workers that have joined.
 */
#include "cli/cli.h"
#include "cli/top.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

static void get_text(const struct vb_json *json, const char *keys, char *to, size_t size)
{
    const char *text = vb_json_get_text(json, keys);

    snprintf(to, size, "%s", text != NULL ? text : "");
}

static vb_status add_rank(struct top *top, int rank)
{
    struct top_rank *ranks;
    int room = top->room > 0 ? 2 * top->room : 16;

    if (top->n_ranks == top->room) {
        ranks = realloc(top->ranks, (size_t)room * sizeof(*ranks));
        if (ranks == NULL)
            return vb_err_sys("realloc");
        top->ranks = ranks;
        top->room = room;
    }
    top->ranks[top->n_ranks++] = (struct top_rank){.rank = rank,
                                                   .cpu_pct = (double)NAN,
                                                   .rss_mb = (double)NAN,
                                                   .send_mb_s = (double)NAN,
                                                   .recv_mb_s = (double)NAN,
                                                   .busy_ms = (double)NAN};
    return VB_OK;
}

struct top_rank *cli_top_rank(const struct top *top, int rank)
{
    int i = rank < top->n_ranks ? rank : top->n_ranks - 1;

    while (i >= 0 && top->ranks[i].rank > rank)
        i--;
    return i >= 0 && top->ranks[i].rank == rank ? &top->ranks[i] : NULL;
}

/* Adds workers that have joined: run.json tells of them at the end of the run, but they have
 * folders. */
static vb_status read_joined(struct top *top)
{
    int rank = top->n_ranks > 0 ? top->ranks[top->n_ranks - 1].rank + 1 : 0;
    struct vb_json *began;
    struct stat info;
    char path[PATH_MAX + 32];
    vb_status st = VB_OK;

    for (; st == VB_OK && rank < VB_WORLD_MAX; rank++) {
        snprintf(path, sizeof(path), "%s/rank%d/steps.bin", top->dir, rank);
        if (stat(path, &info) != 0)
            continue;
        st = add_rank(top, rank);
        began = cli_run_joined(top->dir, rank, 0);
        if (st == VB_OK)
            get_text(began, "machine.host", top->ranks[top->n_ranks - 1].host,
                     sizeof(top->ranks->host));
        vb_json_destroy(began);
    }
    return st;
}

void cli_top_read_lost(struct top *top, const struct vb_json *json)
{
    int i, n;
    struct cli_lost *lost = cli_run_lost(top->dir, json, &n);
    struct top_rank *r;
    double lead = vb_json_get_real(json, "run.lead");

    top->lead = lead > 0 && lead < VB_WORLD_MAX ? (int)lead : 0;
    top->n_lost = 0;
    for (i = 0; i < n; i++) {
        r = cli_top_rank(top, lost[i].rank);
        if (r == NULL || r->lost)
            continue;
        r->lost = true;
        r->removed = lost[i].removed;
        r->lost_step = lost[i].step >= 0 && lost[i].step < 9e15 ? (int64_t)lost[i].step : 0;
        top->n_lost++;
    }
    free(lost);
}

vb_status cli_top_read_ranks(struct top *top, const struct vb_json *json)
{
    int i, n = vb_json_get_count(json, "run.ranks"), last = -1;
    vb_status st = VB_OK;
    struct top_rank *r;
    const char *role;
    double rank;
    char keys[64];

    top->n_ranks = 0;
    for (i = 0; st == VB_OK && i < n; i++) {
        snprintf(keys, sizeof(keys), "run.ranks.%d.rank", i);
        rank = vb_json_get_real(json, keys);
        if (!(rank > last && rank < VB_WORLD_MAX))
            continue;
        last = (int)rank;
        st = add_rank(top, last);
        if (st != VB_OK)
            break;
        r = &top->ranks[top->n_ranks - 1];
        snprintf(keys, sizeof(keys), "run.ranks.%d.host", i);
        get_text(json, keys, r->host, sizeof(r->host));
        snprintf(keys, sizeof(keys), "run.ranks.%d.role", i);
        role = vb_json_get_text(json, keys);
        r->server = role != NULL && strcmp(role, "server") == 0;
    }
    return st == VB_OK && top->async ? read_joined(top) : st;
}
