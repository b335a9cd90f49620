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

const struct vb_transport vb_transport_nobody = {.name = "none"};
