/* SPDX-License-Identifier: MIT
 *
 * The clocks of a run, for run.json.
 */
#include "cli/train/cmd_train.h"

#include <math.h>

void cli_train_json_clocks(struct vb_json *json, const struct vb_train_result *result)
{
    const struct vb_clock_knot *knot;
    uint64_t error;
    int i, k;

    vb_json_array(json, "clocks");
    for (i = 0; i < result->n_clocks; i++) {
        const struct vb_train_clock *clock = &result->clocks[i];

        error = vb_clock_error(&clock->fit);
        vb_json_object(json, NULL);
        vb_json_int(json, "rank", clock->rank);
        vb_json_real(json, "error_us", error == UINT64_MAX ? (double)NAN : (double)error / 1e3);
        vb_json_real(json, "drift_ppm", vb_clock_drift_ppm(&clock->fit));
        vb_json_array(json, "knots");
        for (k = 0; k < clock->fit.n; k++) {
            knot = &clock->fit.knots[k];
            vb_json_object(json, NULL);
            vb_json_int(json, "local_ns", (int64_t)knot->local_ns);
            vb_json_int(json, "offset_ns", knot->offset_ns);
            vb_json_int(json, "error_ns", (int64_t)knot->error_ns);
            vb_json_end(json);
        }
        vb_json_end(json);
        vb_json_end(json);
    }
    vb_json_end(json);
}
