/* SPDX-License-Identifier: MIT */
#include "net/wire/wire_door.h"

#include <limits.h>
#include <string.h>

_Static_assert(WIRE_DOORS_BYTES_MAX == 4 + VB_DOORS_TEXT - 1, "the addresses have another size");
_Static_assert(WIRE_INVITE_BYTES == 24 + VB_ROOT_TEXT, "an invitation has another size");
_Static_assert(WIRE_JOB_BYTES_MAX == VB_JOB_BYTES_MAX, "the text of a job has another size");

static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

size_t vb_wire_doors_encode(const struct wire_doors *doors, unsigned char out[WIRE_DOORS_BYTES_MAX])
{
    size_t len = strnlen(doors->text, sizeof(doors->text) - 1);

    vb_wire_u32_encode(doors->waits, out);
    memcpy(out + 4, doors->text, len);
    return 4 + len;
}

bool vb_wire_doors_decode(const unsigned char *in, size_t len_bytes, struct wire_doors *doors_p)
{
    if (len_bytes < 4 || len_bytes > WIRE_DOORS_BYTES_MAX || vb_wire_u32_decode(in) > 1)
        return false;
    doors_p->waits = vb_wire_u32_decode(in) == 1;
    memcpy(doors_p->text, in + 4, len_bytes - 4);
    doors_p->text[len_bytes - 4] = '\0';
    return strlen(doors_p->text) == len_bytes - 4 && is_printable(doors_p->text);
}

void vb_wire_invite_encode(const struct vb_invitation *inv, unsigned char out[WIRE_INVITE_BYTES])
{
    memset(out, 0, WIRE_INVITE_BYTES);
    vb_wire_u32_encode((uint32_t)inv->rank, out);
    vb_wire_u32_encode((uint32_t)inv->world, out + 4);
    vb_wire_u32_encode((uint32_t)inv->id, out + 8);
    vb_wire_u64_encode((uint64_t)inv->step, out + 16);
    memcpy(out + 24, inv->root, strnlen(inv->root, VB_ROOT_TEXT - 1));
}

bool vb_wire_invite_decode(const unsigned char in[WIRE_INVITE_BYTES], struct vb_invitation *inv_p)
{
    uint32_t rank = vb_wire_u32_decode(in), world = vb_wire_u32_decode(in + 4);
    uint32_t id = vb_wire_u32_decode(in + 8);
    uint64_t step = vb_wire_u64_decode(in + 16);

    if (world < 2 || world > VB_WORLD_MAX || rank == 0 || rank >= world || id > INT_MAX ||
        vb_wire_u32_decode(in + 12) != 0 || step > INT64_MAX)
        return false;
    memset(inv_p, 0, sizeof(*inv_p));
    inv_p->rank = (int)rank;
    inv_p->world = (int)world;
    inv_p->id = (int)id;
    inv_p->step = (int64_t)step;
    memcpy(inv_p->root, in + 24, VB_ROOT_TEXT);
    return memchr(inv_p->root, '\0', VB_ROOT_TEXT) != NULL && inv_p->root[0] != '\0' &&
           is_printable(inv_p->root);
}
