/* SPDX-License-Identifier: MIT
 *
 * verbena ctl RUN add: the rank that reports asks the supervisor of the job for more ranks.
 */
#include "cli/train/cmd_train.h"

#include <string.h>

#define SLICE_MS 200 /* time between two looks whether the run ends */

/* Nobody of ours watches the ranks, or this one is not among them: the user has to start the others
 * as the user has started these. */
static void tell_by_hand(const struct train_adder *a, struct vb_added *added)
{
    char doors[VB_DOORS_TEXT] = "";

    a->doors(a->arg, doors);
    if (doors[0] == '\0')
        snprintf(added->text, sizeof(added->text),
                 "no supervisor of --ranks or --hosts has started the rank that reports, and "
                 "nobody can join this job by hand");
    else
        snprintf(added->text, sizeof(added->text),
                 "no supervisor of --ranks or --hosts has started the rank that reports; start "
                 "each rank yourself, with: verbena train --join %s --secret-file %s%s%s%s",
                 doors, a->secret_file != NULL ? a->secret_file : "FILE",
                 a->run_id != NULL ? " --run-id '" : "", a->run_id != NULL ? a->run_id : "",
                 a->run_id != NULL ? "'" : "");
}

bool cli_train_add(const struct train_adder *a, const char *host, int n,
                   bool (*is_ending)(void *arg), void *arg, struct vb_added *added_p)
{
    uint64_t end_ns = vb_clock_ns() + TRAIN_ADD_S * UINT64_C(1000000000);

    *added_p = (struct vb_added){.done = false};
    if (!vb_launch_ask_to_add(a->launch, host, n)) {
        tell_by_hand(a, added_p);
        return true;
    }
    while (vb_clock_ns() < end_ns && !is_ending(arg))
        if (vb_launch_wait_added(a->launch, SLICE_MS, added_p))
            return true;
    return false;
}
