/* SPDX-License-Identifier: MIT
 *
 * The operations of a run, read and summed up for verbena ops (ops.c, ops_peak.c).
 */
#ifndef VB_CLI_OPS_H
#define VB_CLI_OPS_H

#include "record/record.h"

enum { OPS_ALL = -1, OPS_EACH = -2 }; /* instead of a rank */

enum ops_by { OPS_BY_OP, OPS_BY_LAYER, OPS_BY_PASS };

struct ops_row {
    int rank; /* OPS_ALL: the sum of all ranks */
    struct vb_trace_op op;
    struct vb_trace_sum sum;
    double flops, moved;            /* of all calls */
    double share;                   /* of the time of training, 0 to 1 */
    double gflop_s, gb_s, peak_pct; /* 0: not known */
    double peak_gflop_s, peak_gb_s;
    bool overlaps; /* runs beside other operations */
};

/* What a host can do with so many threads. */
struct ops_peak {
    char host[64];
    int threads;
    double gflop_s, gb_s;
};

#define OPS_PEAKS 64

struct ops_list {
    struct ops_row *rows; /* longest first */
    int n, room;
    int n_ranks;
    double seconds; /* of training, the mean of ranks */
    struct ops_peak peaks[OPS_PEAKS];
    int n_peaks;
};

vb_status cli_ops_read(const char *dir, int rank, enum ops_by by, struct ops_list *list);
void cli_ops_free(struct ops_list *list);

/* Returns the peak of a host: from the run folder, or measured now if it is this host. NULL: not
 * known. */
const struct ops_peak *cli_ops_peak(const char *dir, const char *host, int threads,
                                    struct ops_list *list);

#endif
