/* SPDX-License-Identifier: MIT */
#include "net/wire/wire.h"

#include <string.h>

static void u16_encode(uint16_t value, unsigned char out[2])
{
    out[0] = (unsigned char)value;
    out[1] = (unsigned char)(value >> 8);
}

static uint16_t u16_decode(const unsigned char in[2])
{
    return (uint16_t)(in[0] | in[1] << 8);
}

void vb_wire_u32_encode(uint32_t value, unsigned char out[4])
{
    u16_encode((uint16_t)value, out);
    u16_encode((uint16_t)(value >> 16), out + 2);
}

uint32_t vb_wire_u32_decode(const unsigned char in[4])
{
    return u16_decode(in) | (uint32_t)u16_decode(in + 2) << 16;
}

void vb_wire_u64_encode(uint64_t value, unsigned char out[8])
{
    vb_wire_u32_encode((uint32_t)value, out);
    vb_wire_u32_encode((uint32_t)(value >> 32), out + 4);
}

uint64_t vb_wire_u64_decode(const unsigned char in[8])
{
    return vb_wire_u32_decode(in) | (uint64_t)vb_wire_u32_decode(in + 4) << 32;
}

void vb_wire_call_encode(const struct wire_call *call, unsigned char out[WIRE_CALL_BYTES])
{
    memset(out, 0, WIRE_CALL_BYTES);
    vb_wire_u32_encode(WIRE_MAGIC, out);
    u16_encode(call->version, out + 4);
    u16_encode(call->kind, out + 6);
    vb_wire_u32_encode(call->rank, out + 8);
    vb_wire_u32_encode(call->to, out + 12);
    vb_wire_u32_encode(call->world, out + 16);
    vb_wire_u32_encode(call->epoch, out + 20);
    vb_wire_u32_encode(call->caps, out + 24);
    memcpy(out + 32, call->nonce, WIRE_NONCE);
}

bool vb_wire_call_decode(const unsigned char in[WIRE_CALL_BYTES], struct wire_call *call_p)
{
    if (vb_wire_u32_decode(in) != WIRE_MAGIC)
        return false;
    call_p->version = u16_decode(in + 4);
    call_p->kind = u16_decode(in + 6);
    call_p->rank = vb_wire_u32_decode(in + 8);
    call_p->to = vb_wire_u32_decode(in + 12);
    call_p->world = vb_wire_u32_decode(in + 16);
    call_p->epoch = vb_wire_u32_decode(in + 20);
    call_p->caps = vb_wire_u32_decode(in + 24);
    memcpy(call_p->nonce, in + 32, WIRE_NONCE);
    return call_p->kind >= WIRE_CONTROL && call_p->kind <= WIRE_JOIN;
}

void vb_wire_answer_encode(const struct wire_answer *answer, unsigned char out[WIRE_ANSWER_BYTES])
{
    memset(out, 0, WIRE_ANSWER_BYTES);
    vb_wire_u32_encode(WIRE_MAGIC, out);
    u16_encode(answer->version, out + 4);
    u16_encode(answer->verdict, out + 6);
    vb_wire_u32_encode(answer->rank, out + 8);
    vb_wire_u32_encode(answer->epoch, out + 12);
    vb_wire_u32_encode(answer->caps, out + 16);
    memcpy(out + 24, answer->nonce, WIRE_NONCE);
    memcpy(out + 24 + WIRE_NONCE, answer->proof, WIRE_PROOF);
}

bool vb_wire_answer_decode(const unsigned char in[WIRE_ANSWER_BYTES], struct wire_answer *answer_p)
{
    if (vb_wire_u32_decode(in) != WIRE_MAGIC)
        return false;
    answer_p->version = u16_decode(in + 4);
    answer_p->verdict = u16_decode(in + 6);
    answer_p->rank = vb_wire_u32_decode(in + 8);
    answer_p->epoch = vb_wire_u32_decode(in + 12);
    answer_p->caps = vb_wire_u32_decode(in + 16);
    memcpy(answer_p->nonce, in + 24, WIRE_NONCE);
    memcpy(answer_p->proof, in + 24 + WIRE_NONCE, WIRE_PROOF);
    return true;
}

const char *vb_wire_verdict_str(uint32_t verdict)
{
    static const char bad_rank[] =
        "the rank of the caller is already connected or does not belong to this job; if a rank of "
        "an earlier run has its place, end that, or give all ranks of this run a new --run-id";
    static const char closed[] =
        "no rank can join this job after its start (--elastic off, or it is ending), or a joiner "
        "must call rank 0 instead";
    static const char *const texts[] = {
        [WIRE_WELCOME] = "welcome",
        [WIRE_BAD_VERSION] = "the two programs are different versions of verbena",
        [WIRE_BAD_SECRET] =
            "the secrets differ: all ranks of a run need the same secret and the same --run-id",
        [WIRE_BAD_RANK] = bad_rank,
        [WIRE_BAD_WORLD] = "the two ranks were started with different numbers of ranks",
        [WIRE_BAD_EPOCH] =
            "the epoch of the caller is out of date: that rank is no longer a member",
        [WIRE_CLOSED] = closed,
        [WIRE_FULL] = "no slot is free: the job has as many ranks as it can have",
        [WIRE_BUSY] = "another rank is joining",
    };

    return verdict < VB_COUNT(texts) ? texts[verdict] : "unknown verdict";
}

void vb_wire_frame_encode(uint32_t len_bytes, uint16_t type, unsigned char out[WIRE_FRAME_HEAD])
{
    vb_wire_u32_encode(len_bytes, out);
    u16_encode(type, out + 4);
    u16_encode(0, out + 6);
}

/* The lengths that the payload of each type may have. A type that is not listed has no payload. */
static const struct {
    uint32_t min, max;
} lengths[] = {
    [WIRE_INFO] = {WIRE_INFO_BYTES, WIRE_INFO_BYTES},
    [WIRE_TABLE] = {0, VB_WORLD_MAX *WIRE_INFO_BYTES},
    [WIRE_BEAT] = {WIRE_BEAT_BYTES, WIRE_BEAT_BYTES},
    [WIRE_KEY] = {24 + 16 + 32, 24 + 16 + 32}, /* nonce, tag, key */
    [WIRE_BLOB] = {4, 65536},                  /* at least the tag */
    [WIRE_ABORT] = {0, 512},
    [WIRE_SLOT] = {WIRE_SLOT_BYTES, WIRE_SLOT_BYTES},
    [WIRE_ADMIT] = {WIRE_MEMBER_BYTES, WIRE_MEMBER_BYTES},
    [WIRE_ADMITTED] = {WIRE_ADMITTED_BYTES, WIRE_ADMITTED_BYTES},
    [WIRE_MEMBERS] = {WIRE_MEMBER_BYTES, VB_WORLD_MAX *WIRE_MEMBER_BYTES}, /* at least rank 0 */
    [WIRE_CARD] = {WIRE_CARD_BYTES, WIRE_CARD_BYTES},
    [WIRE_OFFER] = {WIRE_OFFER_BYTES, WIRE_OFFER_BYTES},
    [WIRE_DROPPED] = {0, 512},
    [WIRE_SILENT] = {WIRE_SILENT_BYTES, WIRE_SILENT_BYTES},
    [WIRE_FOLDER] = {VB_FOLDER_TOKEN, VB_FOLDER_TOKEN},
    [WIRE_RECORDS] = {WIRE_RECORDS_BYTES, WIRE_RECORDS_BYTES},
    [WIRE_RECORD] = {WIRE_RECORD_BYTES_MIN, WIRE_RECORD_BYTES_MAX},
    [WIRE_TIME_ASK] = {WIRE_TIME_ASK_BYTES, WIRE_TIME_ASK_BYTES},
    [WIRE_TIME] = {WIRE_TIME_BYTES, WIRE_TIME_BYTES},
    [WIRE_VIEW] = {WIRE_VIEW_BYTES, WIRE_VIEW_BYTES},
    [WIRE_DOORS] = {4, WIRE_DOORS_BYTES_MAX},
    [WIRE_JOB] = {1, WIRE_JOB_BYTES_MAX},
    [WIRE_INVITE] = {WIRE_INVITE_BYTES, WIRE_INVITE_BYTES},
    [WIRE_AWAY] = {0, WIRE_AWAY_BYTES_MAX},
};

bool vb_wire_length_varies(uint16_t type)
{
    return lengths[type].min != lengths[type].max;
}

bool vb_wire_frame_decode(const unsigned char in[WIRE_FRAME_HEAD], int world, uint32_t *len_p,
                          uint16_t *type_p)
{
    uint32_t len = vb_wire_u32_decode(in);
    uint16_t type = u16_decode(in + 4);

    if (type < WIRE_INFO || type > WIRE_LAST || u16_decode(in + 6) != 0)
        return false;
    if (len < lengths[type].min || len > lengths[type].max ||
        (type == WIRE_TABLE && len != (uint32_t)world * WIRE_INFO_BYTES))
        return false;
    *len_p = len;
    *type_p = type;
    return true;
}

/* Offsets in an encoded info: numbers, texts, token, process. */
enum {
    AT_ADDR = 24,
    AT_HOST = AT_ADDR + VB_ADDR_TEXT + 2,
    AT_BOOT_ID = AT_HOST + WIRE_HOST,
    AT_UNIX_NAME = AT_BOOT_ID + WIRE_BOOT_ID,
    AT_TOKEN = AT_UNIX_NAME + WIRE_UNIX_NAME,
    AT_PROCESS = AT_TOKEN + VB_TOKEN_BYTES,
    AT_END = AT_PROCESS + 16,
};

_Static_assert(AT_END <= WIRE_INFO_BYTES, "a rank's info does not fit");

bool vb_wire_info_same_host(const struct wire_info *a, const struct wire_info *b)
{
    return a->boot_id[0] != '\0' && strcmp(a->boot_id, b->boot_id) == 0 && a->netns != 0 &&
           a->netns == b->netns;
}

bool vb_wire_info_same_process(const struct wire_info *a, const struct wire_info *b)
{
    static const unsigned char unknown[VB_TOKEN_BYTES];

    return memcmp(a->token, unknown, sizeof(unknown)) != 0 &&
           memcmp(a->token, b->token, sizeof(a->token)) == 0;
}

void vb_wire_info_encode(const struct wire_info *info, unsigned char out[WIRE_INFO_BYTES])
{
    memset(out, 0, WIRE_INFO_BYTES);
    vb_wire_u32_encode(info->rank, out);
    vb_wire_u64_encode(info->netns, out + 8);
    vb_wire_u32_encode(info->port, out + 16);
    vb_wire_u32_encode(info->door, out + 20);
    memcpy(out + AT_ADDR, info->addr, sizeof(info->addr));
    memcpy(out + AT_HOST, info->host, sizeof(info->host));
    memcpy(out + AT_BOOT_ID, info->boot_id, sizeof(info->boot_id));
    memcpy(out + AT_UNIX_NAME, info->unix_name, sizeof(info->unix_name));
    memcpy(out + AT_TOKEN, info->token, sizeof(info->token));
    vb_wire_u32_encode(info->process.number, out + AT_PROCESS);
    vb_wire_u32_encode(info->process.ns, out + AT_PROCESS + 4);
    vb_wire_u64_encode(info->process.start, out + AT_PROCESS + 8);
}

/* Copies a text, which must be printable and end within its field. */
static bool text_decode(const unsigned char *in, char *out, size_t size)
{
    size_t i;

    for (i = 0; i < size; i++) {
        out[i] = (char)in[i];
        if (in[i] == '\0')
            return true;
        if (in[i] <= ' ' || in[i] > '~')
            return false;
    }
    return false;
}

bool vb_wire_info_decode(const unsigned char in[WIRE_INFO_BYTES], struct wire_info *info_p)
{
    memset(info_p, 0, sizeof(*info_p));
    info_p->rank = vb_wire_u32_decode(in);
    info_p->netns = vb_wire_u64_decode(in + 8);
    info_p->port = vb_wire_u32_decode(in + 16);
    info_p->door = vb_wire_u32_decode(in + 20);
    memcpy(info_p->token, in + AT_TOKEN, sizeof(info_p->token));
    info_p->process.number = vb_wire_u32_decode(in + AT_PROCESS);
    info_p->process.ns = vb_wire_u32_decode(in + AT_PROCESS + 4);
    info_p->process.start = vb_wire_u64_decode(in + AT_PROCESS + 8);
    return info_p->port > 0 && info_p->port < 65536 && info_p->door < 65536 &&
           text_decode(in + AT_ADDR, info_p->addr, sizeof(info_p->addr)) &&
           text_decode(in + AT_HOST, info_p->host, sizeof(info_p->host)) &&
           text_decode(in + AT_BOOT_ID, info_p->boot_id, sizeof(info_p->boot_id)) &&
           text_decode(in + AT_UNIX_NAME, info_p->unix_name, sizeof(info_p->unix_name));
}
