/* SPDX-License-Identifier: MIT */
#include "net/view/view_priv.h"
#include "net/wire/wire.h"

static unsigned char *set_encode(const struct view_set *set, unsigned char *out)
{
    int i;

    for (i = 0; i < VIEW_WORDS; i++)
        vb_wire_u64_encode(set->words[i], out + (size_t)8 * i);
    return out + VIEW_SET_BYTES;
}

static unsigned char *view_encode(const struct view *view, unsigned char *out)
{
    vb_wire_u32_encode(view->epoch, out);
    vb_wire_u32_encode(view->holder, out + 4);
    vb_wire_u64_encode(view->term, out + 8);
    vb_wire_u64_encode(view->step, out + 16);
    return set_encode(&view->members, out + 24);
}

void vb_view_encode(const struct view_message *message, unsigned char out[VIEW_MESSAGE_BYTES])
{
    unsigned char *to = out + 24;

    vb_wire_u32_encode(message->kind, out);
    vb_wire_u32_encode(0, out + 4);
    vb_wire_u64_encode(message->term, out + 8);
    vb_wire_u64_encode(message->step, out + 16);
    to = view_encode(&message->view, to);
    to = view_encode(&message->value, to);
    to = set_encode(&message->suspects, to);
    (void)set_encode(&message->proved, to);
}

static const unsigned char *set_decode(const unsigned char *in, struct view_set *set_p)
{
    int i;

    for (i = 0; i < VIEW_WORDS; i++)
        set_p->words[i] = vb_wire_u64_decode(in + (size_t)8 * i);
    return in + VIEW_SET_BYTES;
}

static const unsigned char *view_decode(const unsigned char *in, struct view *view_p)
{
    view_p->epoch = vb_wire_u32_decode(in);
    view_p->holder = vb_wire_u32_decode(in + 4);
    view_p->term = vb_wire_u64_decode(in + 8);
    view_p->step = vb_wire_u64_decode(in + 16);
    return set_decode(in + 24, &view_p->members);
}

static bool view_is_sound(const struct view *view, const struct view_message *message, int world)
{
    struct view_set all = view_first(world);

    return view->epoch > 0 && view->epoch < UINT32_MAX && view->term <= message->term &&
           view->step < TERM_MAX && view_within(&view->members, &all) &&
           view->holder < (uint32_t)world && view_has(&view->members, (int)view->holder);
}

/* Only a promise or a proposal has a value. A view only shrinks: nobody joins between steps yet. */
static bool value_is_sound(const struct view_message *message, int world)
{
    static const struct view none; /* all zero */
    const struct view *value = &message->value;

    if (value->epoch == 0)
        return message->kind != VIEW_PROPOSE && memcmp(value, &none, sizeof(none)) == 0;
    if (message->kind == VIEW_PROPOSE ? value->term != message->term
                                      : message->kind != VIEW_PROMISE)
        return false;
    return view_is_sound(value, message, world) && value->epoch == message->view.epoch + 1 &&
           view_within(&value->members, &message->view.members);
}

bool vb_view_decode(const unsigned char in[VIEW_MESSAGE_BYTES], int world,
                    struct view_message *message_p)
{
    const unsigned char *from = in + 24;

    memset(message_p, 0, sizeof(*message_p));
    message_p->kind = vb_wire_u32_decode(in);
    message_p->term = vb_wire_u64_decode(in + 8);
    message_p->step = vb_wire_u64_decode(in + 16);
    from = view_decode(from, &message_p->view);
    from = view_decode(from, &message_p->value);
    from = set_decode(from, &message_p->suspects);
    (void)set_decode(from, &message_p->proved);
    return message_p->kind >= VIEW_REPORT && message_p->kind <= VIEW_KIND_LAST &&
           vb_wire_u32_decode(in + 4) == 0 && message_p->term < TERM_MAX &&
           message_p->step < TERM_MAX && view_is_sound(&message_p->view, message_p, world) &&
           value_is_sound(message_p, world) &&
           view_within(&message_p->suspects, &message_p->view.members) &&
           view_within(&message_p->proved, &message_p->suspects);
}
