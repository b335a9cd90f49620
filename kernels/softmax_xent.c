/* SPDX-License-Identifier: MIT
 *
 * Softmax with cross-entropy, by the best that this CPU has.
 */
#include "kernels/level_priv.h"

double vb_k_softmax_xent(float *logits, const uint16_t *y, size_t n, int classes, int *correct_p)
{
    return vb_k_level()->softmax(logits, y, n, classes, correct_p);
}
