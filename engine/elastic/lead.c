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
    t->shows = true;
    vb_train_saves_lead(t);
    vb_train_event_say(t, "leads", t->step, "");
}

void vb_train_dropped(struct vb_trainer *t)
{
    const struct vb_train_hooks *hooks = &t->o->hooks;

    t->leads = t->shows = false;
    if (hooks->led != NULL && t->o->run.dir != NULL)
        hooks->led(hooks->led_arg, VB_LED_NOT);
}
