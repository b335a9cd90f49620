/* SPDX-License-Identifier: MIT
 *
 * Handles completions. Only a receive completion means that a peer's data has arrived.
 */
#include "net/verbs/verbs_priv.h"

#include <arpa/inet.h>
#include <string.h>

#define TAG_RECV (UINT64_C(1) << 63)
#define TAG_RANK_SHIFT 44
#define TAG_LOW ((UINT64_C(1) << TAG_RANK_SHIFT) - 1)
#define TAG_RANK_MASK UINT64_C(0x3ff) /* 10 bits, enough for VB_WORLD_MAX */
#define TAG_EPOCH_SHIFT (TAG_RANK_SHIFT + 10)
#define TAG_EPOCH_MASK UINT64_C(0x1ff)

_Static_assert(VB_WORLD_MAX <= TAG_RANK_MASK + 1, "a rank does not fit");

uint64_t vb_verbs_ep_tag(int rank, uint32_t epoch)
{
    return (uint64_t)rank << TAG_RANK_SHIFT | (epoch & TAG_EPOCH_MASK) << TAG_EPOCH_SHIFT;
}

uint64_t vb_verbs_send_tag(const struct verbs_ep *ep, uint64_t seq)
{
    return ep->tag | (seq & TAG_LOW);
}

uint64_t vb_verbs_recv_tag(const struct verbs_ep *ep, uint32_t slot)
{
    return TAG_RECV | ep->tag | slot;
}

static const char *const likely_causes[] = {
    [IBV_WC_RETRY_EXC_ERR] =
        "no answer: the host, process or link of the peer is gone, or UDP port 4791 is blocked",
    [IBV_WC_RNR_RETRY_EXC_ERR] =
        "the peer had no receive posted, although credits should prevent that",
    [IBV_WC_REM_ACCESS_ERR] =
        "the peer refused the access: the window is gone, too short, or does not allow the access",
    [IBV_WC_REM_INV_REQ_ERR] = "the device of the peer did not understand the request",
    [IBV_WC_REM_OP_ERR] = "the device of the peer failed",
    [IBV_WC_REM_ABORT_ERR] = "the peer aborted the operation",
    [IBV_WC_LOC_PROT_ERR] = "memory of this rank is not registered for this operation",
    [IBV_WC_LOC_LEN_ERR] = "a message has an invalid length",
    [IBV_WC_LOC_QP_OP_ERR] = "the RDMA device of this host failed",
    [IBV_WC_FATAL_ERR] = "the RDMA device of this host failed",
    [IBV_WC_GENERAL_ERR] = "the RDMA device of this host failed",
};

static const char *operation(const struct verbs_ep *ep, uint64_t tag)
{
    const struct verbs_flights *f = &ep->tx.flights;
    uint64_t i;

    if (tag & TAG_RECV)
        return "a receive";
    for (i = f->begin; i != f->end; i++)
        if (f->entries[i % f->size].seq == (tag & TAG_LOW))
            return f->entries[i % f->size].read ? "an RDMA read" : "an RDMA write";
    return "a small RDMA write";
}

static void completion_failed(struct verbs_ep *ep, const struct ibv_wc *wc)
{
    const char *cause = NULL;

    if (wc->status < VB_COUNT(likely_causes))
        cause = likely_causes[wc->status];
    if (wc->status == IBV_WC_WR_FLUSH_ERR)
        vb_verbs_ep_fail(ep, VB_ERR_PEER, "the peer closed the connection");
    else
        vb_verbs_ep_fail(ep, VB_ERR_PEER, "%s failed: %s (vendor code 0x%x): %s",
                         operation(ep, wc->wr_id), ibv_wc_status_str(wc->status), wc->vendor_err,
                         cause != NULL ? cause : "the connection broke");
}

/* Ends all ops up to work request seq, because completions come in order. */
static void sends_completed(struct verbs_ep *ep, uint64_t seq)
{
    struct verbs_flights *f = &ep->tx.flights;
    struct verbs_flight *first;

    ep->tx.completed = seq;
    for (; f->begin != f->end; f->begin++) {
        first = &f->entries[f->begin % f->size];
        if (first->seq > seq)
            break;
        if (first->read)
            vb_traffic_received(ep->dev->opts.traffic, first->len);
        ep->reads.n -= first->read;
        ep->reads.bytes -= first->len;
        if (first->op != NULL)
            done_list_add(&ep->dev->done, first->op, VB_OK);
    }
}

static bool take_note(struct verbs_ep *ep, uint32_t value, struct vb_raw_event *ev)
{
    if (ep->state == VERBS_CONNECTING) {
        vb_verbs_ep_fail(ep, VB_ERR_INPUT, "the peer sent a note before the connection was made");
        return false;
    }
    ep->rx.owed++;
    *ev = (struct vb_raw_event){.type = VB_RAW_NOTE, .rank = ep->rank, .note = value};
    return true;
}

static void take_hello(struct verbs_ep *ep, const struct verbs_hello *hello)
{
    if (ep->state != VERBS_CONNECTING || ep->has_hello) {
        vb_verbs_ep_fail(ep, VB_ERR_INPUT, "the peer sent a second greeting");
        return;
    }
    ep->hello = *hello;
    ep->has_hello = true;
    ep->tx.credits = hello->credits;
}

static void take_credits(struct verbs_ep *ep, uint32_t n)
{
    if (n > ep->hello.credits - ep->tx.credits)
        vb_verbs_ep_fail(ep, VB_ERR_INPUT, "the peer returned %u credits, but only %u were in use",
                         n, ep->hello.credits - ep->tx.credits);
    else
        ep->tx.credits += n;
}

static bool take_message(struct verbs_ep *ep, const unsigned char *bytes, size_t len,
                         struct vb_raw_event *ev)
{
    struct verbs_hello hello;
    uint32_t value = 0;

    switch (vb_verbs_message_read(bytes, len, &hello, &value)) {
    case VERBS_HELLO:
        take_hello(ep, &hello);
        return false;
    case VERBS_CREDIT:
        take_credits(ep, value);
        return false;
    case VERBS_PROBED:
        ep->has_probe = true;
        return false;
    case VERBS_NOTE:
        return take_note(ep, value, ev);
    default:
        vb_verbs_ep_fail(ep, VB_ERR_INPUT, "the peer sent an unknown message of %zu bytes", len);
        return false;
    }
}

static bool receive_completed(struct verbs_ep *ep, uint32_t slot, const struct ibv_wc *wc,
                              struct vb_raw_event *ev)
{
    const char *at = ep->rx.memory.ptr + (size_t)slot * VERBS_MESSAGE_BYTES;
    bool imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM, event;

    vb_traffic_received(ep->dev->opts.traffic, wc->byte_len + (imm ? sizeof(wc->imm_data) : 0));
    if (imm)
        event = take_note(ep, ntohl(wc->imm_data), ev);
    else
        event = take_message(ep, (const unsigned char *)at, wc->byte_len, ev);
    ep->rx.n_posted++;
    ep->rx.wrs[slot].next = ep->rx.to_post;
    ep->rx.to_post = &ep->rx.wrs[slot];
    return event;
}

bool vb_verbs_completed(struct verbs_dev *dev, const struct ibv_wc *wc, struct vb_raw_event *ev)
{
    int rank = (int)(wc->wr_id >> TAG_RANK_SHIFT & TAG_RANK_MASK);
    struct verbs_ep *ep = rank < dev->opts.world ? dev->eps[rank] : NULL;

    if (ep == NULL || ep->tag != (wc->wr_id & ~TAG_RECV & ~TAG_LOW))
        return false; /* the completion belongs to an old connection */
    if (wc->wr_id & TAG_RECV)
        ep->rx.n_posted--;
    if (ep->state == VERBS_DEAD)
        return false;
    if (wc->status != IBV_WC_SUCCESS) {
        completion_failed(ep, wc);
        return false;
    }
    vb_device_heard(&dev->opts, rank); /* a completed send was acknowledged by the peer */
    if (wc->wr_id & TAG_RECV)
        return receive_completed(ep, (uint32_t)(wc->wr_id & TAG_LOW), wc, ev);
    sends_completed(ep, wc->wr_id & TAG_LOW);
    return false;
}
