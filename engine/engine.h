/* SPDX-License-Identifier: MIT
 *
 * engine/: puts machine, network, kernels and models together: checkpoints and training.
 */
#ifndef VB_ENGINE_H
#define VB_ENGINE_H

#include "base/base.h"
#include "data/data.h"
#include "engine/pub_doctor.h"
#include "engine/pub_launch.h"
#include "kernels/kernels.h"
#include "models/models.h"
#include "net/net.h"
#include "topo/topo.h"

#include "engine/pub_bench.h"
#include "engine/pub_checkpoint.h"
#include "engine/pub_eval.h"
#include "engine/pub_train.h"

#endif
