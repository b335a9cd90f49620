/* SPDX-License-Identifier: MIT
 *
 * Synchronous training goes on without ranks that are lost.
 */
#include "engine/train/train_room_priv.h"

const struct vb_recovery *vb_train_recovery(const struct vb_trainer *t, int i)
{
    return i >= 0 && i < t->recoveries.n && i < VB_RECOVERIES ? &t->recoveries.list[i] : NULL;
}
