/* SPDX-License-Identifier: MIT
 *
 * Perfetto's protobuf, written by hand. A file is a list of packets. Each track is a sequence of
 * packets of its own: its first packet says which track its events are of and when its clock
 * begins; an event then stores the time since the last one, and the number of its name, which the
 * sequence has stored once. So an event needs few bytes. Field numbers are those of
 * protos/perfetto/trace in https://github.com/google/perfetto.
 */
#include "record/trace/trace_out_priv.h"

#define BUFFER 1024
#define CLOCK_BOOT 6      /* the clock of a trace; its values are those of rank 0 */
#define CLOCK_SEQUENCE 64 /* the first number of clocks that belong to a sequence */
#define STATE_CLEARED 1   /* sequence_flags: what was stored before does not count */
#define BYTES_NAME 1      /* number of the name "bytes" of an annotation */
#define LABEL_OF(item) ((item)->label + 1)

/* A message that is being built. Longer ones are cut: names are short. */
struct message {
    unsigned char bytes[BUFFER];
    size_t n;
};

static void put_byte(struct message *m, unsigned char byte)
{
    if (m->n < BUFFER)
        m->bytes[m->n++] = byte;
}

static void put_varint(struct message *m, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_byte(m, (unsigned char)(value | 128));
    put_byte(m, (unsigned char)value);
}

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2 };

static void put_tag(struct message *m, int field, enum wire wire)
{
    put_varint(m, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_number(struct message *m, int field, uint64_t value)
{
    put_tag(m, field, WIRE_VARINT);
    put_varint(m, value);
}

static void put_fixed(struct message *m, int field, uint64_t value)
{
    int i;

    put_tag(m, field, WIRE_FIXED64);
    for (i = 0; i < 8; i++)
        put_byte(m, (unsigned char)(value >> 8 * i));
}

static void put_bytes(struct message *m, int field, const void *bytes, size_t n)
{
    size_t i;

    put_tag(m, field, WIRE_BYTES);
    put_varint(m, n);
    for (i = 0; i < n; i++)
        put_byte(m, ((const unsigned char *)bytes)[i]);
}

static void put_text(struct message *m, int field, const char *text)
{
    put_bytes(m, field, text, strnlen(text, BUFFER / 4));
}

static void put_message(struct message *m, int field, const struct message *inner)
{
    put_bytes(m, field, inner->bytes, inner->n);
}

static void write_packet(struct vb_trace_out *out, struct message *packet)
{
    struct message head = {.n = 0};

    put_tag(&head, 1, WIRE_BYTES);
    put_varint(&head, packet->n);
    (void)fwrite(head.bytes, 1, head.n, out->file);
    (void)fwrite(packet->bytes, 1, packet->n, out->file);
}

/* ---- tracks ---------------------------------------------------------------------------------- */

static uint64_t process_uuid(const struct vb_trace_out *out)
{
    return (uint64_t)(out->rank + 1) << 16;
}

static uint64_t track_uuid(const struct vb_trace_out *out)
{
    return process_uuid(out) + (uint64_t)out->track + 1;
}

static void write_process(struct vb_trace_out *out, const char *name)
{
    struct message process = {.n = 0}, track = {.n = 0}, packet = {.n = 0};

    put_number(&process, 1, (uint64_t)trace_pid(out));
    put_text(&process, 6, name);
    put_number(&track, 1, process_uuid(out));
    put_message(&track, 3, &process);
    put_message(&packet, 60, &track);
    write_packet(out, &packet);
}

static void describe_track(struct vb_trace_out *out, const char *name)
{
    struct message track = {.n = 0}, part = {.n = 0}, packet = {.n = 0};

    put_number(&track, 1, track_uuid(out));
    if (out->kind == VB_TRACK_THREAD) {
        put_number(&part, 1, (uint64_t)trace_pid(out));
        put_number(&part, 2, (uint64_t)trace_tid(out));
        put_text(&part, 5, name);
        put_message(&track, 4, &part);
    } else {
        put_text(&track, 2, name);
        put_number(&track, 5, process_uuid(out));
        if (out->kind == VB_TRACK_COUNTER)
            put_message(&track, 8, &part);
    }
    put_message(&packet, 60, &track);
    write_packet(out, &packet);
}

static void put_clock(struct message *snapshot, int clock, uint64_t ns, bool incremental)
{
    struct message m = {.n = 0};

    put_number(&m, 1, (uint64_t)clock);
    put_number(&m, 2, ns);
    if (incremental)
        put_number(&m, 3, 1);
    put_message(snapshot, 1, &m);
}

/* The first packet of a sequence. */
static void begin_sequence(struct vb_trace_out *out, uint64_t begin_ns)
{
    struct message snapshot = {.n = 0}, event = {.n = 0}, defaults = {.n = 0}, packet = {.n = 0};

    put_clock(&snapshot, CLOCK_BOOT, begin_ns, false);
    put_clock(&snapshot, CLOCK_SEQUENCE, begin_ns, true);
    put_number(&event, 11, track_uuid(out));
    put_message(&defaults, 11, &event);
    put_number(&defaults, 58, CLOCK_SEQUENCE);
    put_message(&packet, 6, &snapshot);
    put_number(&packet, 10, out->sequence);
    put_number(&packet, 13, STATE_CLEARED);
    put_message(&packet, 59, &defaults);
    put_number(&packet, 87, 1);
    write_packet(out, &packet);
}

static void intern(struct vb_trace_out *out, int field, uint64_t number, const char *name)
{
    struct message entry = {.n = 0}, data = {.n = 0}, packet = {.n = 0};

    put_number(&entry, 1, number);
    put_text(&entry, 2, name);
    put_message(&data, field, &entry);
    put_number(&packet, 10, out->sequence);
    put_message(&packet, 12, &data);
    write_packet(out, &packet);
}

static void write_track(struct vb_trace_out *out, const char *name, uint64_t begin_ns)
{
    describe_track(out, name);
    begin_sequence(out, begin_ns);
    intern(out, 3, BYTES_NAME, "bytes");
}

/* ---- events ---------------------------------------------------------------------------------- */

#define ARROWS_MAX 32 /* of one event; a put has one, a collective one for each rank that waits */

/* Perfetto draws an arrow from the earlier to the later one of two events with the same number. */
static void put_arrows(struct message *event, const struct vb_trace_item *item)
{
    uint32_t i, n = item->n_arrows < ARROWS_MAX ? item->n_arrows : ARROWS_MAX;

    for (i = 0; i < n; i++)
        put_fixed(event, 47, item->arrow + i);
}

static void put_size(struct message *event, uint64_t bytes)
{
    struct message m = {.n = 0};

    put_number(&m, 1, BYTES_NAME);
    put_number(&m, 3, bytes);
    put_message(event, 4, &m);
}

static void write_item(struct vb_trace_out *out, const struct vb_trace_item *item)
{
    struct message event = {.n = 0}, packet = {.n = 0};
    uint64_t bits;

    if (item->name != NULL && item->label < VB_TRACE_LABELS && !out->known[item->label]) {
        intern(out, 2, LABEL_OF(item), item->name);
        out->known[item->label] = 1;
    }
    put_number(&packet, 8, item->ns > out->last_ns ? item->ns - out->last_ns : 0);
    if (item->ns > out->last_ns)
        out->last_ns = item->ns;
    put_number(&packet, 10, out->sequence);
    put_number(&event, 9, (uint64_t)item->type);
    if (item->name != NULL)
        put_number(&event, 10, LABEL_OF(item));
    if (item->bytes > 0)
        put_size(&event, item->bytes);
    put_arrows(&event, item);
    if (item->type == VB_ITEM_COUNTER) {
        memcpy(&bits, &item->value, sizeof(bits));
        put_fixed(&event, 44, bits);
    }
    put_message(&packet, 11, &event);
    write_packet(out, &packet);
}

static void nothing(struct vb_trace_out *out)
{
    (void)out;
}

const struct trace_format vb_trace_perfetto = {.begin = nothing,
                                               .process = write_process,
                                               .track = write_track,
                                               .item = write_item,
                                               .end = nothing};
