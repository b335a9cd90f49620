/* SPDX-License-Identifier: MIT
 *
 * Finds the roles of the ranks from the options: how many ranks are workers, how many are servers,
 * and whether each worker has its own batches.
 */
#include "engine/train/trainer.h"

int vb_train_shards(const struct vb_async_opts *o)
{
    return o->servers > 0 ? o->servers : 1;
}

int vb_train_replicas(const struct vb_async_opts *o)
{
    return o->replicas > 1 ? o->replicas : 1;
}

int vb_train_servers(const struct vb_async_opts *o)
{
    return vb_train_shards(o) * vb_train_replicas(o);
}

int vb_train_workers(const struct vb_train_opts *o)
{
    if (o->mode != VB_MODE_ASYNC || !o->async.dedicated)
        return o->group.world;
    return o->group.world - vb_train_servers(&o->async);
}

bool vb_train_apart(const struct vb_train_opts *o)
{
    return o->mode == VB_MODE_ASYNC && !(o->async.bounded && o->async.staleness == 0);
}
