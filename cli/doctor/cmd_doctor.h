/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of the doctor command share.
 */
#ifndef VB_CLI_CMD_DOCTOR_H
#define VB_CLI_CMD_DOCTOR_H

#include "cli/job_opts.h"
#include "doctor/doctor.h"

/* Returns how many of the checks have this level. */
int cli_doctor_count(const struct vb_check *checks, int n, enum vb_check_level level);
void cli_doctor_print_check(const struct vb_check *check);
void cli_doctor_json_checks(struct vb_json *json, const struct vb_check *checks, int n);

/* Examines all hosts together with the other ranks; this process is rank group->rank. Rank 0 prints
 * the result. Returns the exit code. */
int cli_doctor_hosts(const struct vb_group_opts *group, bool json);

#endif
