/* SPDX-License-Identifier: MIT
 *
 * Sends puts and gets. They are queued, then cut into pieces, which are chained and posted when the
 * send queue has space. The last piece of a put carries the note as immediate data, or a message
 * with the note follows. Only one put in half a send queue asks for a completion if the put fits
 * into the work request. A longer put always asks, because its source is free only after that.
 */
#include "net/verbs/verbs_priv.h"

#include <stdlib.h>
#include <string.h>

/* Work requests that are posted with one call. */
struct chain {
    struct ibv_send_wr wrs[VERBS_CHAIN_MAX];
    struct ibv_sge sges[VERBS_CHAIN_MAX];
    unsigned char messages[VERBS_CHAIN_MAX][8];
    int n;
};

static bool queue_empty(const struct verbs_queue *q)
{
    return q->begin == q->end;
}

static bool queue_full(const struct verbs_queue *q)
{
    return q->end - q->begin == q->size;
}

static struct verbs_transfer *queue_first(struct verbs_queue *q)
{
    return &q->entries[q->begin % q->size];
}

static uint64_t send_room(const struct verbs_ep *ep)
{
    return ep->tx.size - (ep->tx.posted - ep->tx.completed);
}

static void flight_add(struct verbs_ep *ep, struct vb_op *op, bool read, size_t len)
{
    struct verbs_flights *f = &ep->tx.flights;

    VB_ASSERT(f->end - f->begin < f->size);
    f->entries[f->end++ % f->size] = (struct verbs_flight){op, ep->tx.posted, read, (uint32_t)len};
}

/* Appends a work request to the chain. Its number is ep->tx.posted. */
static struct ibv_send_wr *chain_add(struct verbs_ep *ep, struct chain *c,
                                     enum ibv_wr_opcode opcode, const void *ptr, size_t len,
                                     uint32_t lkey)
{
    struct ibv_send_wr *wr = &c->wrs[c->n];

    memset(wr, 0, sizeof(*wr));
    c->sges[c->n] = (struct ibv_sge){(uintptr_t)ptr, (uint32_t)len, lkey};
    wr->sg_list = &c->sges[c->n];
    wr->num_sge = len > 0 ? 1 : 0;
    wr->opcode = opcode;
    if (c->n > 0)
        c->wrs[c->n - 1].next = wr;
    c->n++;
    ep->tx.posted++;
    if (opcode != IBV_WR_RDMA_READ)
        vb_traffic_sent(ep->dev->opts.traffic,
                        len + (opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? sizeof(wr->imm_data) : 0));
    wr->wr_id = vb_verbs_send_tag(ep, ep->tx.posted);
    return wr;
}

/* Asks for a completion if must is true. Otherwise asks only once per half send queue. */
static void request_completion(struct verbs_ep *ep, struct ibv_send_wr *wr, bool must)
{
    if (!must && ep->tx.posted - ep->tx.signalled < ep->tx.size / 2)
        return;
    wr->send_flags |= IBV_SEND_SIGNALED;
    ep->tx.signalled = ep->tx.posted;
}

static void add_message(struct verbs_ep *ep, struct chain *c, enum verbs_message_type type,
                        uint32_t value)
{
    unsigned char *message = c->messages[c->n];
    size_t len = vb_verbs_value_pack(type, value, message);
    struct ibv_send_wr *wr = chain_add(ep, c, IBV_WR_SEND, message, len, 0);

    wr->send_flags = IBV_SEND_INLINE;
    request_completion(ep, wr, false);
}

/* Only the piece with the immediate data tells the peer its length. So that the peer can count what
 * it receives, a write of 8 bytes tells how many bytes the other pieces have had so far. */
static void tell_unseen(struct verbs_ep *ep, struct chain *c)
{
    unsigned char *count = c->messages[c->n];
    struct ibv_send_wr *wr;

    if (ep->tx.unseen - ep->tx.told < VERBS_TELL_BYTES)
        return;
    memcpy(count, &ep->tx.unseen, sizeof(ep->tx.unseen));
    wr = chain_add(ep, c, IBV_WR_RDMA_WRITE, count, sizeof(ep->tx.unseen), 0);
    wr->wr.rdma.remote_addr = ep->hello.probe_addr + VERBS_TOLD_AT;
    wr->wr.rdma.rkey = ep->hello.probe_rkey;
    wr->send_flags = IBV_SEND_INLINE;
    request_completion(ep, wr, false);
    ep->tx.told = ep->tx.unseen;
}

/* small: the whole put fits into the work request, so it needs no entry in flights. */
static void add_write(struct verbs_ep *ep, struct chain *c, struct verbs_transfer *s, size_t len,
                      bool small)
{
    bool last = len == s->left;
    struct ibv_send_wr *wr =
        chain_add(ep, c, last && ep->tx.write_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
                  s->local, len, s->lkey);

    wr->wr.rdma.remote_addr = s->remote;
    wr->wr.rdma.rkey = s->rkey;
    wr->imm_data = htonl(s->note);
    wr->send_flags = small ? IBV_SEND_INLINE : 0;
    request_completion(ep, wr, last && !small);
    if (last && !small)
        flight_add(ep, s->op, false, 0);
}

static void put_piece(struct verbs_ep *ep, struct chain *c)
{
    struct verbs_transfer *s = queue_first(&ep->tx.puts);
    size_t len = s->left < ep->tx.piece ? s->left : ep->tx.piece;
    bool last = len == s->left, small = last && !s->begun && len <= ep->tx.inline_max;

    if (!last || !ep->tx.write_imm)
        ep->tx.unseen += len;
    if (last)
        tell_unseen(ep, c);
    if (len > 0 || ep->tx.write_imm)
        add_write(ep, c, s, len, small);
    if (last && !ep->tx.write_imm)
        add_message(ep, c, VERBS_NOTE, s->note);
    s->begun = true;
    s->local += len;
    s->remote += len;
    s->left -= len;
    if (!last)
        return;
    ep->tx.credits--;
    if (small)
        done_list_add(&ep->dev->done, s->op, VB_OK);
    ep->tx.puts.begin++;
}

static void get_piece(struct verbs_ep *ep, struct chain *c)
{
    struct verbs_transfer *s = queue_first(&ep->tx.gets);
    size_t len = s->left < ep->reads.piece ? s->left : ep->reads.piece;
    struct ibv_send_wr *wr = chain_add(ep, c, IBV_WR_RDMA_READ, s->local, len, s->lkey);

    wr->wr.rdma.remote_addr = s->remote;
    wr->wr.rdma.rkey = s->rkey;
    request_completion(ep, wr, true);
    flight_add(ep, len == s->left ? s->op : NULL, true, len);
    ep->reads.n++;
    ep->reads.bytes += len;
    s->local += len;
    s->remote += len;
    s->left -= len;
    if (s->left == 0)
        ep->tx.gets.begin++;
}

static void post(struct verbs_ep *ep, struct chain *c)
{
    struct ibv_send_wr *bad;
    int err;

    if (c->n == 0)
        return;
    err = ibv_post_send(ep->cm.id->qp, c->wrs, &bad);
    if (err != 0) /* siw returns a negative code */
        vb_verbs_ep_fail(ep, VB_ERR_IO, "posting a send failed: %s", strerror(abs(err)));
}

/* A piece of a put may need a work request more for the note, and one that tells its length. */
static bool can_put(const struct verbs_ep *ep, const struct chain *c)
{
    return !queue_empty(&ep->tx.puts) && ep->tx.credits > 0 && c->n + 3 <= VERBS_CHAIN_MAX &&
           send_room(ep) >= VERBS_SEND_RESERVE + 3;
}

static bool can_get(const struct verbs_ep *ep, const struct chain *c)
{
    return !queue_empty(&ep->tx.gets) && ep->reads.n < ep->reads.n_max &&
           ep->reads.bytes < ep->reads.bytes_max && c->n < VERBS_CHAIN_MAX &&
           send_room(ep) >= VERBS_SEND_RESERVE + 1;
}

void vb_verbs_post_queued(struct verbs_ep *ep)
{
    struct chain c;

    while (ep->state == VERBS_OPEN) {
        c.n = 0;
        /* Puts and gets in turn, so that neither starves. */
        while (can_put(ep, &c) || can_get(ep, &c)) {
            if (can_put(ep, &c))
                put_piece(ep, &c);
            if (can_get(ep, &c))
                get_piece(ep, &c);
        }
        if (c.n == 0)
            return;
        post(ep, &c);
    }
}

vb_status vb_verbs_send_message(struct verbs_ep *ep, const void *message, size_t len_bytes)
{
    struct ibv_send_wr *wr;
    struct chain c = {.n = 0};

    if (send_room(ep) < 1)
        return VB_AGAIN;
    wr = chain_add(ep, &c, IBV_WR_SEND, message, len_bytes, 0);
    wr->send_flags = IBV_SEND_INLINE;
    request_completion(ep, wr, false);
    post(ep, &c);
    return ep->status;
}

vb_status vb_verbs_send_probe(struct verbs_ep *ep)
{
    struct chain c = {.n = 0};
    struct ibv_send_wr *wr = chain_add(ep, &c, IBV_WR_RDMA_WRITE, ep->probe.ptr + VERBS_PROBE_BYTES,
                                       VERBS_PROBE_BYTES, ep->probe.mrs[ep->port_index]->lkey);

    wr->wr.rdma.remote_addr = ep->hello.probe_addr;
    wr->wr.rdma.rkey = ep->hello.probe_rkey;
    add_message(ep, &c, VERBS_PROBED, 0);
    request_completion(ep, &c.wrs[c.n - 1], true);
    post(ep, &c);
    return ep->status;
}

vb_status vb_verbs_send_marker(struct verbs_ep *ep)
{
    struct chain c = {.n = 0};

    if (send_room(ep) < 1)
        return VB_AGAIN;
    add_message(ep, &c, VERBS_CREDIT, 0);
    request_completion(ep, &c.wrs[0], true);
    post(ep, &c);
    return ep->status;
}

void vb_verbs_return_credits(struct verbs_ep *ep)
{
    unsigned char message[VERBS_MESSAGE_BYTES];
    size_t len;

    if (ep->state != VERBS_OPEN || ep->rx.owed < ep->rx.owed_max)
        return;
    len = vb_verbs_value_pack(VERBS_CREDIT, ep->rx.owed, message);
    if (vb_verbs_send_message(ep, message, len) == VB_OK)
        ep->rx.owed = 0;
}

void vb_verbs_post_recvs(struct verbs_ep *ep)
{
    struct ibv_recv_wr *bad;
    int err;

    if (ep->rx.to_post == NULL)
        return;
    err = ibv_post_recv(ep->cm.id->qp, ep->rx.to_post, &bad);
    ep->rx.to_post = NULL;
    if (err != 0)
        vb_verbs_ep_fail(ep, VB_ERR_IO, "posting a receive failed: %s", strerror(abs(err)));
}

static vb_status enqueue(struct verbs_ep *ep, struct verbs_queue *q, const struct vb_span *local,
                         struct vb_target target, uint32_t note, struct vb_op *op)
{
    struct verbs_remote *rem = (struct verbs_remote *)target.remote;

    if (ep->state != VERBS_OPEN)
        return ep->status != VB_OK ? ep->status : VB_ERR_PEER;
    if (queue_full(q))
        vb_verbs_post_queued(ep);
    if (queue_full(q))
        return VB_AGAIN;
    q->entries[q->end++ % q->size] =
        (struct verbs_transfer){.op = op,
                                .local = local->ptr,
                                .remote = rem->addr + target.offset,
                                .lkey = rem->local->memory.mrs[ep->port_index]->lkey,
                                .rkey = rem->rkey,
                                .left = local->len_bytes,
                                .note = note};
    vb_verbs_post_queued(ep);
    return VB_OK;
}

vb_status vb_verbs_put(struct vb_ep *vep, const struct vb_span *src, struct vb_target dst,
                       uint32_t note, struct vb_op *op)
{
    return enqueue((struct verbs_ep *)vep, &((struct verbs_ep *)vep)->tx.puts, src, dst, note, op);
}

vb_status vb_verbs_get(struct vb_ep *vep, const struct vb_span *dst, struct vb_target src,
                       struct vb_op *op)
{
    return enqueue((struct verbs_ep *)vep, &((struct verbs_ep *)vep)->tx.gets, dst, src, 0, op);
}
