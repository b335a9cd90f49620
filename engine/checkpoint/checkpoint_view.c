/* SPDX-License-Identifier: MIT
 *
 * Whose steps a checkpoint has. A rank that the others have left behind may write once more: its
 * disk was slow, it was stopped, or it does not know yet. Its checkpoint can have the highest step
 * of the folder, but the job has made this step again, in a later view.
 */
#include "engine/checkpoint/checkpoint_priv.h"

#include <string.h>

_Static_assert(sizeof(struct vb_checkpoint_view) == CP_VIEW_WORDS * sizeof(uint32_t),
               "the elements of the array are the bytes of the struct");

struct vb_checkpoint_array vb_cp_view_array(const struct vb_checkpoint_view *view)
{
    return (struct vb_checkpoint_array){.name = CP_VIEW,
                                        .type = VB_ARRAY_U32,
                                        .state = true,
                                        .rows = CP_VIEW_WORDS,
                                        .cols = 1,
                                        .data = view};
}

bool vb_cp_view_take(const struct vb_checkpoint_array *a, struct vb_checkpoint_view *view_p)
{
    bool fits = a->type == VB_ARRAY_U32 && a->rows == CP_VIEW_WORDS && a->cols == 1;

    memset(view_p, 0, sizeof(*view_p));
    if (!fits)
        return false;
    memcpy(view_p, a->data, sizeof(*view_p));
    if (view_p->run == 0 || view_p->view == 0)
        memset(view_p, 0, sizeof(*view_p));
    return view_p->run > 0;
}

bool vb_checkpoint_is_later(const struct vb_checkpoint_view *a, const struct vb_checkpoint_view *b)
{
    if (a->run == 0 || b->run == 0 || memcmp(a->job, b->job, sizeof(a->job)) != 0)
        return false;
    if (a->run != b->run)
        return a->run > b->run;
    return a->view != b->view ? a->view > b->view : a->term > b->term;
}

int64_t vb_checkpoint_later(const char *dir, int64_t most, const struct vb_checkpoint_view *than,
                            char *path, size_t size, struct vb_checkpoint_view *view_p)
{
    struct vb_checkpoint_view latest = *than, view;
    char one[PATH_MAX];
    int64_t step, found = -1;

    for (; (step = vb_checkpoint_newest(dir, most, one, sizeof(one))) >= 0; most = step - 1)
        if (vb_cp_view(one, &view) && vb_checkpoint_is_later(&view, &latest) &&
            (size_t)snprintf(path, size, "%s", one) < size) {
            latest = *view_p = view;
            found = step;
        }
    return found;
}

const char *vb_checkpoint_view_text(const struct vb_checkpoint_view *view,
                                    char text[VB_CHECKPOINT_VIEW_TEXT])
{
    snprintf(text, VB_CHECKPOINT_VIEW_TEXT, "view %u of run %u", view->view, view->run);
    return text;
}
