/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void vb_sort(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_value);
}
