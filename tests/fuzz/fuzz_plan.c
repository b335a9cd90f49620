/* SPDX-License-Identifier: MIT
 *
 * Fuzzes plan files. A plan that was read, written and read again must be the same.
 *
 * Covers: kernels/choice/choice_plan.c
 */
#include "kernels/choice/choice_priv.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct vb_k_plan *plan)
{
    int i;

    if (plan->n < 0 || plan->n > VB_K_CHOICES_MAX)
        abort();
    for (i = 0; i < plan->n; i++)
        if (vb_k_backend_find(plan->v[i].backend) == NULL ||
            memchr(plan->v[i].layer, '\0', VB_K_NAME) == NULL ||
            vb_k_plan_find(plan, plan->v[i].layer, plan->v[i].pass) != plan->v[i].backend)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vb_k_plan plan, again;
    char *text = fuzz_text(data, size), why[VB_OPTS_WHY] = "", *first, *second;

    if (vb_k_plan_parse(text, &plan, why) == VB_OK) {
        check(&plan);
        first = vb_k_plan_text(&plan);
        if (first == NULL || vb_k_plan_parse(first, &again, why) != VB_OK)
            abort();
        second = vb_k_plan_text(&again);
        if (second == NULL || strcmp(first, second) != 0)
            abort();
        free(first);
        free(second);
    } else if (why[0] == '\0') {
        abort();
    }
    free(text);
    return 0;
}
