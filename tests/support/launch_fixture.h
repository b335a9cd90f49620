/* SPDX-License-Identifier: MIT
 *
 * The environment that launchers give to a rank.
 */
#ifndef VB_TESTS_SUPPORT_LAUNCH_FIXTURE_H
#define VB_TESTS_SUPPORT_LAUNCH_FIXTURE_H

#include "launch/launch_priv.h"
#include "tests/support/test.h"

#define TIMEOUT_MS 20000

static const char *const t_variables[] = {"RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "TORCHELASTIC_RUN_ID",
                                          "TORCHELASTIC_RESTART_COUNT",
                                          "SLURM_JOB_ID",
                                          "SLURM_STEP_ID",
                                          "SLURM_PROCID",
                                          "SLURM_LOCALID",
                                          "SLURM_NODEID",
                                          "SLURM_NTASKS",
                                          "SLURM_STEP_NUM_TASKS",
                                          "SLURM_STEP_NODELIST",
                                          "SLURM_JOB_NODELIST",
                                          "SLURM_STEP_TASKS_PER_NODE",
                                          "PMIX_RANK",
                                          "PMIX_NAMESPACE",
                                          "PMI_RANK",
                                          "PMI_SIZE"};

/* Removes all variables of launchers, then sets the variables in "NAME=VALUE NAME=VALUE ...". */
static inline void t_set_environment(const char *text)
{
    char copy[600], *at, *rest = NULL, *equals;
    size_t i;

    for (i = 0; i < VB_COUNT(t_variables); i++)
        unsetenv(t_variables[i]);
    assert_true((size_t)snprintf(copy, sizeof(copy), "%s", text) < sizeof(copy));
    for (at = strtok_r(copy, " ", &rest); at != NULL; at = strtok_r(NULL, " ", &rest)) {
        equals = strchr(at, '=');
        assert_non_null(equals);
        *equals = '\0';
        setenv(at, equals + 1, 1);
    }
}

static inline vb_status t_find(int timeout_ms, struct vb_launch *launch)
{
    struct vb_launch_opts opts = {.timeout_ms = timeout_ms};

    *launch = (struct vb_launch){.root_fd = -1, .rank = -1};
    return vb_launch_find(&opts, launch);
}

#endif
