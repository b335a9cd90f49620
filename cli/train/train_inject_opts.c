/* SPDX-License-Identifier: MIT
 *
 * The options --inject and --slow of verbena train.
 */
#include "cli/train/cmd_train.h"

#include <math.h>
#include <string.h>

#define ITEM 80           /* longest fault */
#define SECONDS_MAX 86400 /* a day */
#define OFFSET_MAX 1e9    /* seconds */
#define PPM_MAX 1e5

/* How a fault is written: its form, and an example of it. */
struct form {
    const char *name, *form, *example;
};

static const struct form forms[] = {
    [VB_INJECT_KILL] = {"kill:", "kill:RANK@STEP", "kill:1@100"},
    [VB_INJECT_STOP] = {"stop:", "stop:RANK@STEP:SECONDS", "stop:1@100:2.5"},
    [VB_INJECT_SLOW] = {"slow:",
                        "slow:RANKxFACTOR[:PHASE], with a FACTOR from 1 to 1000 and forward, "
                        "backward, data or update as PHASE",
                        "slow:1x3:backward"},
    [VB_INJECT_CLOCK] = {"clock:", "clock:RANK:SECONDS[:PPM]", "clock:1:0.5:100"},
};

static int refuse(const char *item, const struct form *form)
{
    return cli_refuse(&cli_train, "--inject: %.*s must be %s, such as %s", ITEM, item, form->form,
                      form->example);
}

/* Cuts text at the next separator. Returns what follows it, or NULL if there is none. */
static char *cut(char *text, char separator)
{
    char *at = strchr(text, separator);

    if (at == NULL)
        return NULL;
    *at = '\0';
    return at + 1;
}

static bool parse_rank(const char *text, int *rank_p)
{
    int64_t rank;

    if (!vb_parse_int(text, &rank) || rank < 0 || rank >= VB_WORLD_MAX)
        return false;
    *rank_p = (int)rank;
    return true;
}

static bool in_range(const char *text, double min, double max, double *value_p)
{
    return text != NULL && vb_parse_real(text, value_p) && *value_p >= min && *value_p <= max;
}

/* RANK@STEP or RANK@STEP:SECONDS */
static bool parse_moment(char *text, struct vb_inject *inject)
{
    char *step = cut(text, '@'), *seconds = step != NULL ? cut(step, ':') : NULL;

    if (step == NULL || !parse_rank(text, &inject->rank) || !vb_parse_int(step, &inject->step) ||
        inject->step < 1)
        return false;
    if (inject->kind == VB_INJECT_KILL)
        return seconds == NULL;
    return in_range(seconds, 0, SECONDS_MAX, &inject->seconds);
}

static int phase_named(const char *name)
{
    static const enum vb_phase phases[] = {VB_PHASE_DATA, VB_PHASE_FORWARD, VB_PHASE_BACKWARD,
                                           VB_PHASE_UPDATE};
    size_t i;

    for (i = 0; i < VB_COUNT(phases); i++)
        if (strcmp(name, vb_phase_str(phases[i])) == 0)
            return (int)phases[i];
    return -1;
}

/* RANKxFACTOR or RANKxFACTOR:PHASE */
static bool parse_slow(char *text, struct vb_inject *inject)
{
    char *factor = cut(text, 'x'), *phase = factor != NULL ? cut(factor, ':') : NULL;

    inject->phase = phase != NULL ? phase_named(phase) : -1;
    return parse_rank(text, &inject->rank) && in_range(factor, 1, 1000, &inject->factor) &&
           (phase == NULL || inject->phase >= 0);
}

/* RANK:SECONDS or RANK:SECONDS:PPM */
static bool parse_clock(char *text, struct vb_inject *inject)
{
    char *offset = cut(text, ':'), *ppm = offset != NULL ? cut(offset, ':') : NULL;

    return parse_rank(text, &inject->rank) &&
           in_range(offset, -OFFSET_MAX, OFFSET_MAX, &inject->offset_s) &&
           (ppm == NULL || in_range(ppm, -PPM_MAX, PPM_MAX, &inject->ppm));
}

static int parse_item(const char *item, struct vb_inject *inject)
{
    char text[ITEM + 1];
    bool good;
    size_t kind;

    for (kind = 0; kind < VB_COUNT(forms); kind++)
        if (strncmp(item, forms[kind].name, strlen(forms[kind].name)) == 0)
            break;
    if (kind == VB_COUNT(forms))
        return cli_refuse(&cli_train,
                          "--inject: a fault begins with kill:, stop:, slow: or clock:, such as %s",
                          forms[VB_INJECT_KILL].example);
    snprintf(text, sizeof(text), "%s", item + strlen(forms[kind].name));
    *inject = (struct vb_inject){.kind = (enum vb_inject_kind)kind, .phase = -1};
    if (kind == VB_INJECT_SLOW)
        good = parse_slow(text, inject);
    else if (kind == VB_INJECT_CLOCK)
        good = parse_clock(text, inject);
    else
        good = parse_moment(text, inject);
    return good ? -1 : refuse(item, &forms[kind]);
}

static int parse_list(const char *text, struct vb_inject_opts *inject)
{
    char item[ITEM + 1];
    size_t len;
    int rc;

    for (;; text += len + 1) {
        len = strcspn(text, ",");
        if (len > ITEM)
            return cli_refuse(&cli_train, "--inject: %.*s is too long", ITEM, text);
        if (inject->n == VB_INJECT_MAX)
            return cli_refuse(&cli_train, "--inject: at most %d faults", VB_INJECT_MAX);
        memcpy(item, text, len);
        item[len] = '\0';
        rc = parse_item(item, &inject->list[inject->n]);
        if (rc >= 0)
            return rc;
        inject->n++;
        if (text[len] == '\0')
            return -1;
    }
}

int cli_train_inject(const char *text, const char *slow, struct vb_inject_opts *inject)
{
    struct vb_inject *first = &inject->list[0];
    char rest;

    if (slow != NULL) {
        *first = (struct vb_inject){.kind = VB_INJECT_SLOW, .phase = -1};
        if (sscanf(slow, "%d:%lf%c", &first->rank, &first->factor, &rest) != 2 ||
            !(first->factor >= 1 && first->factor <= 1000))
            return cli_refuse(
                &cli_train,
                "--slow must be RANK:FACTOR, with a FACTOR from 1 to 1000; the newer form is "
                "--inject slow:RANKxFACTOR");
        inject->n = 1;
    }
    return text != NULL ? parse_list(text, inject) : -1;
}
