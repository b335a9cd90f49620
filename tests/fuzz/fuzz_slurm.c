/* SPDX-License-Identifier: MIT
 *
 * Fuzzes lists of hosts and of tasks in Slurm's environment variables. If a list is accepted, its
 * first host must be a valid host name.
 *
 * Covers: launch/launch_slurm.c
 */
#include "launch/launch_priv.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t hosts = 0, tasks = 0, node;
    char *text, first[64];
    size_t room;

    if (size < 2)
        return 0;
    room = 1 + data[0] % sizeof(first);
    node = data[1];
    text = fuzz_text(data + 2, size - 2);
    if (vb_slurm_hosts_parse(text, first, room, &hosts) &&
        (hosts < 1 || hosts > 1000000 || strlen(first) >= room || first[0] == '-' ||
         first[0] == '\0' || strpbrk(first, " ,[];/$") != NULL))
        abort();
    if (vb_slurm_tasks_parse(text, node, &tasks) && (tasks < 1 || tasks > VB_WORLD_MAX))
        abort();
    free(text);
    return 0;
}
