/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>

static const struct {
    vb_status st;
    const char *text;
} status_texts[] = {
    {VB_OK, "success"},
    {VB_AGAIN, "try again"},
    {VB_ERR_USAGE, "invalid usage"},
    {VB_ERR_INPUT, "invalid input"},
    {VB_ERR_NO_MEMORY, "out of memory"},
    {VB_ERR_NO_FILE, "no such file"},
    {VB_ERR_ACCESS, "permission denied"},
    {VB_ERR_IO, "input or output failed"},
    {VB_ERR_TIMEOUT, "timed out"},
    {VB_ERR_PEER, "the peer is gone"},
    {VB_ERR_UNSUPPORTED, "not supported on this host"},
};

const char *vb_status_str(vb_status st)
{
    size_t i;

    for (i = 0; i < VB_COUNT(status_texts); i++)
        if (status_texts[i].st == st)
            return status_texts[i].text;
    return "unknown status";
}

vb_status vb_status_from_errno(int err)
{
    switch (err) {
    case 0:
        return VB_OK;
    case ENOMEM:
        return VB_ERR_NO_MEMORY;
    case ENOENT:
    case ENOTDIR:
        return VB_ERR_NO_FILE;
    case EACCES:
    case EPERM:
    case EROFS:
        return VB_ERR_ACCESS;
    case ETIMEDOUT:
        return VB_ERR_TIMEOUT;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
        return VB_ERR_PEER;
    case ENOSYS:
    case EOPNOTSUPP:
        return VB_ERR_UNSUPPORTED;
    default:
        return VB_ERR_IO;
    }
}
