/* SPDX-License-Identifier: MIT
 *
 * Softmax at a level of instructions.
 */
#ifndef VB_SOFTMAX_PRIV_H
#define VB_SOFTMAX_PRIV_H

#include "kernels/level_priv.h"

#define vb_softmax_rows VB_AT_LEVEL(vb_softmax_rows)
vb_softmax_fn vb_softmax_rows; /* kernels/softmax_rows.c */

#endif
