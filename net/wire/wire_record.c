/* SPDX-License-Identifier: MIT */
#include "net/wire/wire_record.h"

#include <string.h>

#define TIME_MAX (UINT64_C(1) << 62) /* so that differences of times fit a signed number */

void vb_wire_records_encode(const struct wire_records *r, unsigned char out[WIRE_RECORDS_BYTES])
{
    vb_wire_u32_encode(r->state, out);
    vb_wire_u64_encode(r->lost_bytes, out + 4);
    vb_wire_u64_encode(r->lost_rows, out + 12);
}

bool vb_wire_records_decode(const unsigned char in[WIRE_RECORDS_BYTES], struct wire_records *r_p)
{
    r_p->state = vb_wire_u32_decode(in);
    r_p->lost_bytes = vb_wire_u64_decode(in + 4);
    r_p->lost_rows = vb_wire_u64_decode(in + 12);
    return r_p->state >= WIRE_RECORDS_SEES && r_p->state <= WIRE_RECORDS_END;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

bool vb_wire_record_name_ok(const char *file, int rank)
{
    char folder[24];
    size_t len = strnlen(file, VB_RECORD_NAME_MAX + 1), at, i;

    snprintf(folder, sizeof(folder), "rank%d/", rank);
    at = strlen(folder);
    if (len > VB_RECORD_NAME_MAX || strncmp(file, folder, at) != 0)
        return false;
    if (strcmp(file + at, "log.txt") == 0 || strcmp(file + at, "events.jsonl") == 0)
        return true;
    for (i = at; i < len; i++)
        if (!is_name_char(file[i]))
            return false;
    return file[at] != '.' && len > at + 4 && strcmp(file + len - 4, ".bin") == 0;
}

size_t vb_wire_record_encode(const struct wire_record *r, unsigned char out[WIRE_RECORD_BYTES_MAX])
{
    size_t name = strlen(r->file);

    out[0] = r->first;
    out[1] = (unsigned char)name;
    memcpy(out + 2, r->file, name);
    memcpy(out + 2 + name, r->bytes, r->len_bytes);
    return 2 + name + r->len_bytes;
}

bool vb_wire_record_decode(const unsigned char *in, size_t len_bytes, int rank,
                           struct wire_record *r_p)
{
    size_t name;

    if (len_bytes < WIRE_RECORD_BYTES_MIN || in[0] > 1)
        return false;
    name = in[1];
    if (name == 0 || name > VB_RECORD_NAME_MAX || 2 + name >= len_bytes ||
        len_bytes - 2 - name > VB_RECORD_BYTES_MAX || memchr(in + 2, '\0', name) != NULL)
        return false;
    memcpy(r_p->file, in + 2, name);
    r_p->file[name] = '\0';
    r_p->first = in[0] == 1;
    r_p->bytes = in + 2 + name;
    r_p->len_bytes = len_bytes - 2 - name;
    return vb_wire_record_name_ok(r_p->file, rank);
}

void vb_wire_time_encode(const struct vb_clock_exchange *x, unsigned char out[WIRE_TIME_BYTES])
{
    vb_wire_u64_encode(x->asked_ns, out);
    vb_wire_u64_encode(x->received_ns, out + 8);
    vb_wire_u64_encode(x->answered_ns, out + 16);
}

bool vb_wire_time_decode(const unsigned char in[WIRE_TIME_BYTES], struct vb_clock_exchange *x_p)
{
    x_p->asked_ns = vb_wire_u64_decode(in);
    x_p->received_ns = vb_wire_u64_decode(in + 8);
    x_p->answered_ns = vb_wire_u64_decode(in + 16);
    return x_p->asked_ns <= TIME_MAX && x_p->received_ns <= x_p->answered_ns &&
           x_p->answered_ns <= TIME_MAX;
}
