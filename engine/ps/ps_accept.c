/* SPDX-License-Identifier: MIT
 *
 * A server accepts a push: it copies the head and the keys into its own memory, and checks the
 * copies. A worker on the same host can write to its slot at any time, so nothing that was checked
 * may be read from the slot again.
 */
#include "engine/ps/ps.h"

#include <string.h>

const struct ps_push *vb_ps_push_in(const struct ps_server *s, int worker, int slot)
{
    const char *at = vb_window_ptr(s->slots);

    return (const void *)(at + vb_ps_slot_at(&s->lay, s->k, worker, slot));
}

/* The fence keeps the compiler from reading the slot again instead of the copy. */
static void copy_once(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Checks the number of the push. A worker uses its slots in turn. With a bound of 0 it has only one
 * push under way, and none while the server holds its gradient. */
static bool check_order(const struct ps_server *s, const struct ps_client *client, uint32_t slot,
                        const struct ps_push *head, char *why, size_t size)
{
    uint32_t most = s->job->bound == 0 ? 1 : (uint32_t)s->lay.slots;

    if (head->seq != client->pushes || slot != head->seq % (uint32_t)s->lay.slots) {
        snprintf(why, size, "push number %u in slot %u, expected number %u in slot %u", head->seq,
                 slot, client->pushes, client->pushes % (uint32_t)s->lay.slots);
        return false;
    }
    if (s->k > 0 && ps_has_clocks(s->job) && !(head->flags & PS_NO_GRADIENT) &&
        (head->clock < 0 || (client->next_clock >= 0 && head->clock != client->next_clock))) {
        snprintf(why, size, "push number %u has clock %lld, expected %lld", head->seq,
                 (long long)head->clock, (long long)client->next_clock);
        return false;
    }
    if (client->under_way < most && !client->round.held)
        return true;
    snprintf(why, size, "push number %u came before its predecessor was acknowledged", head->seq);
    return false;
}

static bool check_numbers(const struct ps_server *s, const struct ps_push *head, char *why,
                          size_t size)
{
    size_t most = s->job->max_keys;

    if (head->samples <= INT32_MAX &&
        head->flags <= (PS_BASE_REPLY | PS_NO_GRADIENT | PS_OWN_KEYS) &&
        (!s->job->sparse ||
         (head->n_keys <= most && head->n_values <= most && head->reply_at <= most - head->n_keys)))
        return true;
    snprintf(why, size,
             "push number %u has %u samples, %u values and %u keys at %u, but a batch has at most "
             "%zu keys",
             head->seq, head->samples, head->n_values, head->n_keys, head->reply_at, most);
    return false;
}

/* Copies and checks the keys. */
static bool take_keys(const struct ps_server *s, struct ps_client *client, struct ps_taken *push,
                      char *why, size_t size)
{
    size_t i, n = push->head.n_keys, have = s->lay.n[s->k];
    uint32_t *keys = client->key_space + push->head.seq % (PS_SLOTS_MAX + 1) * s->job->max_keys;
    bool good = true;

    copy_once(keys, push->values + push->head.n_values, n * sizeof(*keys));
    push->keys = keys;
    for (i = 1; i < n; i++)
        good &= keys[i - 1] < keys[i];
    if (good && (n == 0 || keys[n - 1] < have))
        return true;
    for (i = 0; i + 1 < n && keys[i] < have && keys[i] < keys[i + 1]; i++)
        ;
    snprintf(why, size,
             "key %zu of %zu of push number %u is %u: out of order, or out of range (%zu)", i, n,
             push->head.seq, keys[i], have);
    return false;
}

/* Finds the keys of the gradient, which came with it or with the push before. */
static bool find_keys(const struct ps_server *s, const struct ps_client *client,
                      struct ps_taken *push, char *why, size_t size)
{
    bool own = (push->head.flags & PS_OWN_KEYS) != 0;
    const struct ps_taken *from =
        own ? push : &client->taken[(push->head.seq + 1) % (uint32_t)s->lay.slots];
    uint32_t n = own || push->head.seq > 0 ? from->head.n_keys : 0;

    push->gradient = from->keys;
    if ((push->head.flags & PS_NO_GRADIENT) || push->head.n_values == n)
        return true;
    snprintf(why, size, "push number %u has %u values for %u keys", push->head.seq,
             push->head.n_values, n);
    return false;
}

bool vb_ps_accept(struct ps_server *s, int worker, uint32_t slot, char *why, size_t size)
{
    struct ps_client *client = &s->clients[worker];
    const struct ps_push *from;
    struct ps_taken *push;
    struct ps_push head;

    if (slot >= (uint32_t)s->lay.slots) {
        snprintf(why, size, "a push in slot %u, but it has only %d slots", slot, s->lay.slots);
        return false;
    }
    from = vb_ps_push_in(s, worker, (int)slot);
    copy_once(&head, from, sizeof(head));
    if (!check_order(s, client, slot, &head, why, size) || !check_numbers(s, &head, why, size))
        return false;
    push = &client->taken[slot];
    push->head = head;
    push->values = (const float *)(const void *)(from + 1);
    if (s->job->sparse &&
        (!take_keys(s, client, push, why, size) || !find_keys(s, client, push, why, size)))
        return false;
    if (!(head.flags & PS_NO_GRADIENT))
        client->next_clock = head.clock + 1;
    client->pushes++;
    client->under_way++;
    return true;
}
