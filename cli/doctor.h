/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of the doctor command.
 */
#ifndef VB_CLI_DOCTOR_H
#define VB_CLI_DOCTOR_H

#include "cli/hosts.h"
#include "engine/engine.h"

int cli_doctor_count(const struct vb_check *checks, int n, enum vb_check_level level);
void cli_doctor_print_check(const struct vb_check *check);
void cli_doctor_json_checks(struct vb_json *json, const struct vb_check *checks, int n);

/* Takes part in the examination of all hosts, as the rank that group says; rank 0 prints. Returns
 * the exit code. */
int cli_doctor_hosts(const struct vb_group_opts *group, bool json);

#endif
