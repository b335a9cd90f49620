/* SPDX-License-Identifier: MIT
 *
 * What doctor finds out between hosts.
 */
#ifndef VB_CLI_DOCTOR_EXAM_H
#define VB_CLI_DOCTOR_EXAM_H

#include "bench/bench.h"
#include "cli/doctor/cmd_doctor.h"

struct doctor_host {
    int rank;
    char name[64];
    bool rdma; /* the host has a port that verbs can use */
    int n;
    struct vb_check checks[VB_CHECKS_MAX];
    char names[VB_CHECKS_MAX][24]; /* names of the checks of another rank */
};

struct doctor_exam {
    struct doctor_host own;
    struct doctor_host *hosts;
    int n_hosts;
    int *ranks; /* the ranks between which pairs are measured */
    int n_ranks;
    int n_pairs; /* number of measurements of all pairs over all transports */
    struct vb_pair *pairs;
    struct vb_op ops[VB_BENCH_PAIR_OPS];
    struct vb_check checks[VB_CHECKS_MAX]; /* checks of the pairs */
    int n_checks;
    struct vb_kind kind, *kinds;         /* of this host; one for each host */
    struct vb_check same[VB_CHECKS_MAX]; /* checks of what should be the same on all hosts */
    int n_same;
    vb_status rdma; /* status of the test over RDMA; VB_OK also if there was no test */
};

/* Returns how many checks of all hosts, and between them, have this level. */
int cli_doctor_exam_count(const struct doctor_exam *e, enum vb_check_level level);

void cli_doctor_exam_print(const struct doctor_exam *e);
vb_status cli_doctor_exam_json(const struct doctor_exam *e);

#endif
