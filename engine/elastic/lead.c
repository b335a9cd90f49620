/* SPDX-License-Identifier: MIT
 *
 * The lead of a synchronous job is its lowest member: it shows, warns, saves and reports. If it is
 * lost, the next one takes over. So whatever the lead knows that cannot be found again, every rank
 * that may become the lead knows, too: evaluations, the best parameters, warnings.
 */
#include "engine/train/trainer.h"

bool vb_train_may_lead(const struct vb_trainer *t)
{
    return t->leads || vb_train_is_elastic(t->o);
}

void vb_train_members_changed(struct vb_trainer *t)
{
    if (!t->leads || t->shows)
        return;
    vb_train_record_lead(t);
    t->shows = true;
    vb_train_saves_lead(t);
    vb_train_event_say(t, "leads", t->step, "");
}

bool vb_train_is_over(const struct vb_trainer *t)
{
    int r;

    if (!vb_train_is_elastic(t->o) || t->place.group == NULL)
        return false;
    for (r = 0; r < vb_group_world(t->place.group); r++)
        if (r != t->number && !t->removed[r] && vb_group_end(t->place.group, r) == VB_END_LEFT)
            return true;
    return false;
}

void vb_train_dropped(struct vb_trainer *t)
{
    const struct vb_train_hooks *hooks = &t->o->hooks;

    t->leads = t->shows = false;
    vb_group_forsake(t->place.group);
    if (t->form.other.group != NULL)
        vb_group_forsake(t->form.other.group);
    if (hooks->led != NULL && t->o->run.dir != NULL)
        hooks->led(hooks->led_arg, VB_LED_NOT);
}
