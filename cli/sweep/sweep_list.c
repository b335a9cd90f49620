/* SPDX-License-Identifier: MIT */
#include "cli/sweep/sweep.h"

#include <string.h>

static vb_status add(const char *name, const char *value, struct sweep_list *list,
                     char why[VB_OPTS_WHY])
{
    int i;

    for (i = 0; i < list->n; i++)
        if (strcmp(list->values[i], value) == 0)
            return VB_OK;
    if (list->n == SWEEP_LIST_MAX)
        return vb_usage(why, "--%s: a list has at most %d values", name, SWEEP_LIST_MAX);
    snprintf(list->values[list->n++], SWEEP_VALUE, "%s", value);
    return VB_OK;
}

/* Reads "B", "B+STEP" or "BxFACTOR". */
static bool read_end(char *text, int64_t *end_p, char *op_p, int64_t *by_p)
{
    char *sign = strpbrk(text, "+x");

    *op_p = '+';
    *by_p = 1;
    if (sign != NULL) {
        *op_p = *sign;
        *sign = '\0';
        if (!vb_parse_int(sign + 1, by_p))
            return false;
    }
    return vb_parse_int(text, end_p) && *by_p >= (*op_p == 'x' ? 2 : 1);
}

static vb_status add_range(const char *name, const char *item, char *dots, struct sweep_list *list,
                           char why[VB_OPTS_WHY])
{
    char text[SWEEP_VALUE], first[SWEEP_VALUE];
    int64_t at, end, by;
    vb_status st = VB_OK;
    char op;

    snprintf(first, sizeof(first), "%.*s", (int)(dots - item), item);
    snprintf(text, sizeof(text), "%s", dots + 2);
    if (!vb_parse_int(first, &at) || !read_end(text, &end, &op, &by) || at < 1 || end < at ||
        end > INT64_MAX / 2 || by > INT64_MAX / 2)
        return vb_usage(why,
                        "--%s %s: a range is A..B, A..B+STEP or A..BxFACTOR, whole numbers from 1 "
                        "on, such as 16..1024x2",
                        name, item);
    while (st == VB_OK && at <= end) {
        snprintf(text, sizeof(text), "%lld", (long long)at);
        st = add(name, text, list, why);
        if (op == 'x' && at > end / by)
            break;
        at = op == 'x' ? at * by : at + by;
    }
    return st;
}

vb_status cli_sweep_list(const char *name, const char *text, struct sweep_list *list,
                         char why[VB_OPTS_WHY])
{
    vb_status st = VB_OK;
    char item[SWEEP_VALUE], *dots;
    size_t len;

    list->n = 0;
    while (st == VB_OK) {
        len = strcspn(text, ",");
        if (len == 0)
            return vb_usage(why, "--%s: a value of the list is empty", name);
        if (len >= sizeof(item))
            return vb_usage(why, "--%s: the value %.40s... is too long", name, text);
        memcpy(item, text, len);
        item[len] = '\0';
        dots = strstr(item, "..");
        st = dots != NULL ? add_range(name, item, dots, list, why) : add(name, item, list, why);
        if (text[len] == '\0')
            break;
        text += len + 1;
    }
    return st;
}
