/* SPDX-License-Identifier: MIT */
#include "cli/bench_kernels.h"
#include "cli/cli.h"
#include "cli/models.h"
#include "topo/topo.h"

#include <string.h>

int cli_bench_kernels_find(const char *model, const struct vb_layer_table **table_p)
{
    struct cli_names names = cli_table_names();
    int i;

    if (model == NULL)
        return cli_which(&cli_bench, "kernels of which model? --model", &names);
    i = cli_find_name(&cli_bench, "model", model, names.list, names.n);
    if (i < 0)
        return CLI_USAGE;
    *table_p = vb_layer_table_find(names.list[i]);
    return -1;
}

static vb_status pin(struct vb_bench_kernels *o, struct vb_topo **topo_p, struct vb_plan **plan_p)
{
    struct vb_plan_want want = {.ranks = 1, .threads = o->threads};
    struct vb_topo_source this_machine = {0};
    vb_status st;

    st = vb_topo_open(&this_machine, topo_p);
    if (st == VB_OK)
        st = vb_plan_create(*topo_p, &want, plan_p);
    if (st == VB_OK)
        st = vb_plan_pin_team(*topo_p, *plan_p, 0);
    if (st == VB_OK)
        o->threads = (*plan_p)->threads;
    return st;
}

int cli_bench_kernels(struct vb_bench_kernels *o)
{
    struct vb_topo *topo = NULL;
    struct vb_plan *plan = NULL;
    vb_status st;

    st = pin(o, &topo, &plan);
    if (st == VB_OK)
        st = vb_bench_kernels(o);
    vb_plan_destroy(plan);
    vb_topo_close(topo);
    return cli_finish(cli_exit_code(st));
}
