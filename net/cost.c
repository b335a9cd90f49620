/* SPDX-License-Identifier: MIT
 *
 * Which algorithm an allreduce takes.
 */
#include "net/coll_priv.h"

#include <stdlib.h>
#include <string.h>

static const char *const algo_names[VB_ALGOS] = {"auto",  "mapped", "gather",  "exchange",
                                                 "chain", "ring",   "halving", "two-level"};

const char *vb_algo_str(enum vb_algo algo)
{
    return (int)algo >= 0 && algo < VB_ALGOS ? algo_names[algo] : "none";
}

bool vb_algo_parse(const char *text, enum vb_algo *algo_p)
{
    int i;

    for (i = 0; i < VB_ALGOS; i++)
        if (strcmp(text, algo_names[i]) == 0) {
            *algo_p = (enum vb_algo)i;
            return true;
        }
    return false;
}

const char *coll_cannot(const struct vb_coll *coll, enum vb_algo algo)
{
    if (algo == VB_ALGO_MAPPED && !coll->all_mapped)
        return "not all ranks share memory";
    if (algo >= VB_ALGO_RING && coll->opts.order != VB_ORDER_ANY)
        return "it does not sum in rank order";
    if (algo >= VB_ALGO_CHAIN && is_narrow(coll))
        return "it sends partial sums, which are not to be rounded to bfloat16";
    if ((algo == VB_ALGO_CHAIN || algo == VB_ALGO_TWO_LEVEL) && !coll->contiguous)
        return "the ranks of a host do not follow each other";
    return NULL;
}

bool vb_coll_can(const struct vb_coll *coll, enum vb_algo algo)
{
    return coll_cannot(coll, algo) == NULL;
}

/* A gather's vector must fit a slot. */
static bool fits(const struct vb_coll *coll, enum vb_algo algo, size_t bytes)
{
    size_t room = coll->slot_bytes - sizeof(struct slot_head);

    return algo != VB_ALGO_GATHER || (is_narrow(coll) ? bytes / 2 : bytes) <= room;
}

enum vb_algo vb_coll_algo(const struct vb_coll *coll, size_t bytes)
{
    if (coll->opts.algo != VB_ALGO_AUTO)
        return fits(coll, coll->opts.algo, bytes) ? coll->opts.algo : VB_ALGO_EXCHANGE;
    if (coll->all_mapped)
        return VB_ALGO_MAPPED;
    return bytes <= 32768 && fits(coll, VB_ALGO_GATHER, bytes) ? VB_ALGO_GATHER : VB_ALGO_EXCHANGE;
}

double vb_coll_predict_us(const struct vb_coll *coll, enum vb_algo algo, size_t bytes)
{
    (void)algo;
    return (double)bytes * coll->world * 1e-3;
}

vb_status cost_open(struct vb_coll *coll)
{
    (void)coll;
    return VB_OK;
}

void cost_close(struct vb_coll *coll)
{
    (void)coll;
}
