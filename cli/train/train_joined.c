/* SPDX-License-Identifier: MIT
 *
 * Workers that have joined a run, for run.json.
 */
#include "cli/train/cmd_train.h"

#include <math.h>

static void from_result(struct vb_json *json, const struct vb_rank_result *r)
{
    static const char *const unknown[] = {"pid",    "cpus",         "cpu_model",
                                          "kernel", "memory_bytes", "topology"};
    size_t k;

    vb_json_object(json, NULL);
    vb_json_int(json, "rank", r->rank);
    vb_json_text(json, "role", "worker");
    vb_json_text(json, "host", r->host);
    for (k = 0; k < VB_COUNT(unknown); k++)
        vb_json_real(json, unknown[k], (double)NAN);
    vb_json_text(json, "rdma_device", NULL);
    vb_json_object(json, "transports");
    vb_json_end(json);
    vb_json_end(json);
}

static const struct vb_rank_result *worker_of(const struct vb_train_result *result, int rank)
{
    int i;

    for (i = 0; i < result->rows; i++)
        if (result->per_rank[i].rank == rank && !result->per_rank[i].server)
            return &result->per_rank[i];
    return NULL;
}

void cli_train_json_joined(struct vb_json *json, const struct train_run *run,
                           const struct vb_train_result *result)
{
    const struct vb_rank_result *row;
    struct vb_json *began;
    int rank;

    for (rank = run->facts.n_ranks; rank < VB_WORLD_MAX; rank++) {
        began = cli_run_joined(run->dir, rank, run->facts.unix_ns);
        row = worker_of(result, rank);
        if (!vb_json_copy(json, NULL, began, "machine") && row != NULL)
            from_result(json, row);
        vb_json_destroy(began);
    }
}
