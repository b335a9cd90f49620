/* SPDX-License-Identifier: MIT
 *
 * engine/: puts machine, network, kernels and models together: checkpoints and training.
 */
#ifndef VB_ENGINE_ENGINE_H
#define VB_ENGINE_ENGINE_H

#include "engine/bench/engine_bench.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/train/train.h"

#endif
