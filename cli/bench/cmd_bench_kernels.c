/* SPDX-License-Identifier: MIT */
#include "cli/bench/cmd_bench_kernels.h"
#include "cli/cli.h"
#include "cli/model_names.h"
#include "topo/topo.h"

int cli_bench_kernels_find(const char *model, const struct vb_layer_table **table_p)
{
    struct cli_names names = cli_table_names();
    int code =
        cli_find_model(&cli_bench, "bench kernels needs a model: --model", model, &names, &model);

    if (code < 0)
        *table_p = vb_layer_table_find(model);
    return code;
}

static vb_status pin(struct vb_bench_kernels *o, struct vb_topo **topo_p,
                     struct vb_placement **placement_p)
{
    struct vb_placement_want want = {.ranks = 1, .threads = o->threads};
    struct vb_topo_source this_machine = {0};
    vb_status st = vb_topo_open(&this_machine, topo_p);

    if (st == VB_OK)
        st = vb_placement_create(*topo_p, &want, placement_p);
    if (st == VB_OK)
        st = vb_placement_pin_team(*topo_p, *placement_p, 0);
    if (st == VB_OK)
        o->threads = (*placement_p)->threads;
    return st;
}

int cli_bench_kernels(struct vb_bench_kernels *o)
{
    struct vb_topo *topo = NULL;
    struct vb_placement *placement = NULL;
    vb_status st = pin(o, &topo, &placement);

    if (st == VB_OK)
        st = vb_bench_kernels(o);
    vb_placement_destroy(placement);
    vb_topo_close(topo);
    return cli_finish(cli_exit_code(st));
}
