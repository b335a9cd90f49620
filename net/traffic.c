/* SPDX-License-Identifier: MIT */
#include "net/traffic.h"

static uint64_t count_of(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void link_read(const struct vb_traffic_link *link, uint64_t *sent, uint64_t *received)
{
    if (link->ours != NULL) {
        *sent += count_of(&link->ours->sent);
        *received += count_of(&link->ours->received);
    }
    if (link->theirs != NULL) { /* what the peer has received is what this rank has sent */
        *sent += count_of(&link->theirs->received);
        *received += count_of(&link->theirs->sent);
    }
}

void vb_traffic_init(struct vb_traffic *traffic)
{
    pthread_mutex_init(&traffic->lock, NULL);
}

void vb_traffic_fini(struct vb_traffic *traffic)
{
    pthread_mutex_destroy(&traffic->lock);
}

void vb_traffic_add(struct vb_traffic *traffic, struct vb_traffic_link *link)
{
    if (traffic == NULL)
        return;
    pthread_mutex_lock(&traffic->lock);
    link->next = traffic->links;
    traffic->links = link;
    pthread_mutex_unlock(&traffic->lock);
}

void vb_traffic_remove(struct vb_traffic *traffic, struct vb_traffic_link *link)
{
    struct vb_traffic_link **at;

    if (traffic == NULL)
        return;
    pthread_mutex_lock(&traffic->lock);
    for (at = &traffic->links; *at != NULL && *at != link; at = &(*at)->next)
        ;
    if (*at == link) {
        *at = link->next;
        link_read(link, &traffic->sent, &traffic->received);
    }
    pthread_mutex_unlock(&traffic->lock);
}

void vb_traffic_read(struct vb_traffic *traffic, uint64_t *sent_p, uint64_t *received_p)
{
    const struct vb_traffic_link *link;

    pthread_mutex_lock(&traffic->lock);
    *sent_p = traffic->sent + count_of(&traffic->flow.sent);
    *received_p = traffic->received + count_of(&traffic->flow.received);
    for (link = traffic->links; link != NULL; link = link->next)
        link_read(link, sent_p, received_p);
    pthread_mutex_unlock(&traffic->lock);
}
