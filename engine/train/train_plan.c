/* SPDX-License-Identifier: MIT
 *
 * Finds the kernel of each layer: from a file, or chosen by rank 0 and sent to all ranks.
 */
#include "engine/train/train_room_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

vb_status vb_train_parse_plan(struct vb_trainer *t, const char *from, const char *text)
{
    char why[VB_OPTS_WHY];

    if (t->kernels.asked == NULL)
        t->kernels.asked = calloc(1, sizeof(*t->kernels.asked));
    if (t->kernels.asked == NULL)
        return vb_err_sys("calloc");
    if (vb_k_plan_parse(text, t->kernels.asked, why) != VB_OK)
        return vb_err(VB_ERR_INPUT, "%s: %s", from, why);
    return VB_OK;
}

/* A plan of the user must not bring in kernels that need --fast-math. The plan of a checkpoint is
 * not checked: it continues what its run has begun, and the settings of both are compared. */
static vb_status check_rounding(const struct vb_trainer *t)
{
    const struct vb_k_choice *choice = vb_k_plan_fast_math(t->kernels.asked);

    if (t->o->fast_math || choice == NULL)
        return VB_OK;
    return vb_err(VB_ERR_USAGE,
                  "%s: layer %s, pass %s: backend %s rounds more than sums of floats do; give "
                  "--fast-math to use it, or leave the line out to choose another",
                  t->o->plan, choice->layer, vb_k_pass_str(choice->pass), choice->backend);
}

vb_status vb_train_read_plan(struct vb_trainer *t)
{
    char *text = malloc(VB_PLAN_BYTES_MAX);
    int fd =
        open(t->o->plan, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    vb_status st;
    size_t n;

    if (text == NULL || file == NULL) {
        st = vb_err_sys("cannot read the plan %s", t->o->plan);
    } else {
        n = fread(text, 1, VB_PLAN_BYTES_MAX - 1, file);
        text[n] = '\0';
        if (n == 0 || ferror(file) || memchr(text, '\0', n) != NULL || n == VB_PLAN_BYTES_MAX - 1)
            st = vb_err(VB_ERR_INPUT, "%s is not a plan", t->o->plan);
        else
            st = vb_train_parse_plan(t, t->o->plan, text);
        if (st == VB_OK)
            st = check_rounding(t);
    }
    if (file != NULL)
        fclose(file);
    free(text);
    return st;
}

vb_status vb_train_tell_plan(struct vb_group *group, const char *text, char **told_p)
{
    uint64_t len = text != NULL ? strlen(text) : 0;
    vb_status st = vb_group_broadcast(group, 0, &len, sizeof(len));
    size_t at, n;
    char *told;

    if (st != VB_OK)
        return st;
    if (len >= VB_PLAN_BYTES_MAX) /* all ranks take this branch */
        return vb_err(VB_ERR_USAGE, "the plan of rank 0 has %llu bytes, but must have less than %d",
                      (unsigned long long)len, VB_PLAN_BYTES_MAX);
    told = calloc(1, len + 1);
    if (told == NULL)
        return vb_err_sys("calloc");
    if (vb_group_rank(group) == 0 && text != NULL)
        memcpy(told, text, len);
    for (at = 0; at < len && st == VB_OK; at += n) {
        n = len - at < VB_RECORD_MAX ? len - at : VB_RECORD_MAX;
        st = vb_group_broadcast(group, 0, told + at, n);
    }
    if (st != VB_OK) {
        free(told);
        return st;
    }
    *told_p = told;
    return VB_OK;
}

/* Rank 0 chooses kernels for all ranks: timings vary between ranks, and different kernels round
 * differently. */
vb_status vb_train_compile(struct vb_trainer *t)
{
    vb_status st = VB_OK;
    char *text = NULL;

    if (t->place.group == NULL)
        return t->ops->compile(t);
    if (t->leads)
        st = t->ops->compile(t);
    if (st == VB_OK)
        st = vb_train_tell_plan(t->place.group, t->kernels.text, &text);
    if (st == VB_OK && !t->leads)
        st = vb_train_parse_plan(t, "the plan of rank 0", text);
    if (st == VB_OK && !t->leads)
        st = t->ops->compile(t);
    free(text);
    return st;
}
