/* SPDX-License-Identifier: MIT
 *
 * The specification of layers in double precision: tensors and sums. The error of a whole model is
 * measured against it.
 */
#include "kernels/exact/reference.h"

#define LAYER_REF vb_k_layer_ref64
#define LAYER_ARGS vb_k_args64
#define REAL double
#define SUM double
#define POW pow
#include "kernels/exact/layer_ref.c" /* NOLINT(bugprone-suspicious-include) */
