/* SPDX-License-Identifier: MIT */
#include "net/transport.h"

#include <string.h>

vb_status vb_transport_no_address(struct vb_device *dev, struct vb_blob *address_p)
{
    (void)dev;
    memset(address_p, 0, sizeof(*address_p));
    return VB_OK;
}

const char *vb_transport_no_link_text(struct vb_ep *ep)
{
    (void)ep;
    return "";
}

void vb_transport_none_registered(struct vb_device *dev, uint64_t *bytes_p, uint64_t *ns_p)
{
    (void)dev;
    *bytes_p = 0;
    *ns_p = 0;
}

/* ---- nobody ---------------------------------------------------------------------------------- */

static vb_status nobody_put(struct vb_ep *ep, const struct vb_span *src, struct vb_target dst,
                            uint32_t note, struct vb_op *op)
{
    (void)ep;
    (void)src;
    (void)dst;
    (void)note;
    (void)op;
    return VB_ERR_PEER;
}

static vb_status nobody_get(struct vb_ep *ep, const struct vb_span *dst, struct vb_target src,
                            struct vb_op *op)
{
    (void)ep;
    (void)dst;
    (void)src;
    (void)op;
    return VB_ERR_PEER;
}

static void *nobody_ptr(struct vb_remote *rem)
{
    (void)rem;
    return NULL;
}

const struct vb_transport vb_transport_nobody = {
    .name = "none",
    .put = nobody_put,
    .get = nobody_get,
    .remote_ptr = nobody_ptr,
};
