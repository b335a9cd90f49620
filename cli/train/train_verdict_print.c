/* SPDX-License-Identifier: MIT
 *
 * The verdict on a run, as text and as the object `bottleneck` of the result.
 */
#include "cli/train/cmd_train.h"

#include <math.h>

static void json_causes(struct vb_json *json, const struct vb_bottleneck *b)
{
    int i;

    vb_json_array(json, "causes");
    for (i = 0; i < b->n_causes; i++) {
        vb_json_object(json, NULL);
        vb_json_text(json, "resource", vb_resource_str(b->causes[i].resource));
        vb_json_real(json, "share", b->causes[i].share);
        vb_json_end(json);
    }
    vb_json_end(json);
}

static void json_evidence(struct vb_json *json, const struct vb_bottleneck *b)
{
    int i;

    vb_json_array(json, "evidence");
    for (i = 0; i < b->n_evidence; i++) {
        const struct vb_evidence *e = &b->evidence[i];

        vb_json_object(json, NULL);
        vb_json_text(json, "name", e->name);
        vb_json_real(json, "value", e->value);
        vb_json_real(json, "ceiling", e->ceiling);
        vb_json_text(json, "unit", e->unit);
        vb_json_end(json);
    }
    vb_json_end(json);
}

static void json_advice(struct vb_json *json, const struct vb_bottleneck *b)
{
    int i;

    vb_json_array(json, "advice");
    for (i = 0; i < b->n_advice; i++) {
        vb_json_object(json, NULL);
        vb_json_text(json, "change", b->advice[i].change);
        vb_json_real(json, "steps_per_s", b->advice[i].steps_per_s);
        vb_json_real(json, "samples_per_s", b->advice[i].samples_per_s);
        vb_json_end(json);
    }
    vb_json_end(json);
}

void cli_train_json_bottleneck(struct vb_json *json, const struct vb_bottleneck *b)
{
    if (b->why[0] == '\0') {
        vb_json_text(json, "bottleneck", NULL);
        return;
    }
    vb_json_object(json, "bottleneck");
    vb_json_text(json, "resource", vb_resource_str(b->resource));
    vb_json_real(json, "share", b->share);
    vb_json_text(json, "why", b->why);
    vb_json_text(json, "kind", b->kind[0] != '\0' ? b->kind : NULL);
    if (b->rank >= 0)
        vb_json_int(json, "rank", b->rank);
    else
        vb_json_text(json, "rank", NULL);
    json_causes(json, b);
    json_evidence(json, b);
    json_advice(json, b);
    vb_json_end(json);
}

/* Prints a rate with three digits, but never with an exponent. */
static void print_rate(double rate)
{
    printf(rate < 1000 ? "%.3g" : "%.0f", rate);
}

/* With another batch or number of ranks a step has another number of samples. Then steps a second
 * say little, and the change is told in samples a second. */
static void print_advice(const struct vb_advice *advice, double steps_per_s, double samples_per_s)
{
    double gain = advice->samples_per_s / samples_per_s;
    bool same_step = fabs(gain * steps_per_s / advice->steps_per_s - 1) < 1e-6;

    printf("%s: about ", advice->change);
    print_rate(same_step ? advice->steps_per_s : advice->samples_per_s);
    printf(" %s instead of ", same_step ? "steps/s" : "samples/s");
    print_rate(same_step ? steps_per_s : samples_per_s);
}

void cli_train_print_bottleneck(const struct vb_bottleneck *b, double steps_per_s,
                                double samples_per_s)
{
    int i;

    if (b->why[0] == '\0')
        return;
    printf("\nbottleneck  %s%s%s%s, %.0f %%: %s", vb_resource_str(b->resource),
           b->kind[0] != '\0' ? " (" : "", b->kind, b->kind[0] != '\0' ? ")" : "", 100 * b->share,
           b->why);
    for (i = 0; i < b->n_advice; i++) {
        printf("\n%-11s ", i == 0 ? "advice" : "");
        print_advice(&b->advice[i], steps_per_s, samples_per_s);
    }
}
