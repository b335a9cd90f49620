/* SPDX-License-Identifier: MIT
 *
 * kernels/ does the arithmetic of layers, sparse rows, lists of pixels, and update rules. Any
 * thread may call probes and references. Only one thread may use a layer at a time; this thread may
 * open a parallel region (see vb_placement_pin_team() of topo/).
 */
#ifndef VB_KERNELS_KERNELS_H
#define VB_KERNELS_KERNELS_H

#include "kernels/choice/choice.h"
#include "kernels/layer/layer.h"
#include "kernels/pixels/pixels.h"
#include "kernels/exact/reference.h"
#include "kernels/sparse/sparse_model.h"
#include "kernels/update/update.h"

#endif
