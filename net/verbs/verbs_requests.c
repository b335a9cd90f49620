/* SPDX-License-Identifier: MIT
 *
 * Requests to connect that no one has answered yet. A request stays until this rank waits for the
 * rank that sent it, because only then the key of the pair is known. Until then anybody can claim
 * to be a rank. So each rank has places of its own: callers that claim one rank never take the
 * place of another, and all ranks of a job can call at the same time.
 */
#include "net/verbs/verbs_priv.h"

#include "net/control/sock.h"

#include <stdlib.h>
#include <string.h>

#define REFUSALS_LOGGED 16

static int n_places(const struct verbs_dev *dev)
{
    return dev->requests.list != NULL ? dev->opts.world * VERBS_PLACES : 0;
}

vb_status vb_verbs_requests_open(struct verbs_dev *dev)
{
    dev->requests.list =
        calloc((size_t)dev->opts.world * VERBS_PLACES, sizeof(*dev->requests.list));
    return dev->requests.list != NULL ? VB_OK : vb_err_sys("calloc");
}

void vb_verbs_requests_close(struct verbs_dev *dev)
{
    int i;

    for (i = 0; i < n_places(dev); i++)
        if (dev->requests.list[i].id != NULL)
            rdma_destroy_id(dev->requests.list[i].id);
    free(dev->requests.list);
}

struct verbs_request *vb_verbs_request_place(struct verbs_request *list, int rank)
{
    struct verbs_request *first = &list[rank * VERBS_PLACES], *oldest = first;
    int i;

    for (i = 0; i < VERBS_PLACES; i++) {
        if (first[i].id == NULL)
            return &first[i];
        if (first[i].number < oldest->number)
            oldest = &first[i];
    }
    return oldest;
}

/* The event that brought the request must be acknowledged before. */
static void refuse(struct verbs_dev *dev, struct verbs_request *request, const char *why)
{
    struct sock_addr from = {.len = sizeof(struct sockaddr_in6)};
    char text[SOCK_TEXT];

    memcpy(&from.sa, rdma_get_peer_addr(request->id), sizeof(struct sockaddr_in6));
    vb_sock_text(&from, text);
    if (dev->requests.n_refused++ < REFUSALS_LOGGED)
        VB_LOG_WARN("refused an RDMA connection from %s: %s", text, why);
    (void)rdma_reject(request->id, NULL, 0);
    rdma_destroy_id(request->id);
    request->id = NULL;
}

const char *vb_verbs_request_read(const struct verbs_dev *dev, const struct rdma_cm_event *event,
                                  struct verbs_request *request_p)
{
    const struct rdma_conn_param *param = &event->param.conn;
    const struct verbs_call *from = &request_p->from;
    const char *bad;

    *request_p = (struct verbs_request){.id = event->id,
                                        .responder_resources = param->responder_resources,
                                        .initiator_depth = param->initiator_depth};
    bad = vb_verbs_call_read(param->private_data, param->private_data_len, VERBS_CALL_REQUEST,
                             &request_p->from);
    if (bad != NULL)
        return bad;
    memcpy(request_p->call, param->private_data, VERBS_CALL_BYTES);
    if (from->rank == dev->opts.rank || from->rank >= dev->opts.world)
        return "the caller claims a rank that may not connect to this rank";
    if (dev->eps[from->rank] != NULL && dev->eps[from->rank]->cm.id != NULL)
        return "the rank of the caller is already connected";
    return NULL;
}

void vb_verbs_request_keep(struct verbs_dev *dev, struct verbs_request *request, const char *bad)
{
    struct verbs_request *place;

    if (bad != NULL) {
        refuse(dev, request, bad);
        return;
    }
    place = vb_verbs_request_place(dev->requests.list, request->from.rank);
    if (place->id != NULL)
        refuse(dev, place, "newer callers claim to be the same rank");
    request->number = ++dev->requests.n_seen;
    *place = *request;
}

void vb_verbs_request_withdraw(struct verbs_dev *dev, const struct rdma_cm_id *id)
{
    int i;

    for (i = 0; i < n_places(dev); i++)
        if (dev->requests.list[i].id == id)
            refuse(dev, &dev->requests.list[i], "the caller gave up the connection");
}

/* Returns why the request cannot be the one of the rank in link; NULL: it is. */
static const char *not_of(const struct verbs_dev *dev, const struct verbs_request *request,
                          const struct vb_link *link)
{
    if (!vb_verbs_call_request_verify(request->call, dev->opts.rank, link->key))
        return "the caller does not know the job's secret";
    if (request->from.epoch != link->epoch || request->from.port >= VERBS_PORTS_MAX)
        return "the caller has a different epoch of the group than this rank, or an invalid port";
    return NULL;
}

/* If a rank has called twice, it has given up the older request. */
struct verbs_request *vb_verbs_request_of(struct verbs_dev *dev, const struct vb_link *link)
{
    struct verbs_request *request = &dev->requests.list[link->rank * VERBS_PLACES], *newest = NULL;
    const char *why;
    int i;

    for (i = 0; i < VERBS_PLACES; i++, request++) {
        if (request->id == NULL)
            continue;
        why = not_of(dev, request, link);
        if (why != NULL)
            refuse(dev, request, why);
        else if (newest == NULL || request->number > newest->number)
            newest = request;
    }
    return newest;
}
