/* SPDX-License-Identifier: MIT
 *
 * The numbers of the fields are those of TensorBoard's event.proto and summary.proto.
 */
#include "record/board/events.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define HEAD_BYTES 12 /* of a record: its length and the checksum of the length */
#define TAIL_BYTES 4
#define HOST_BYTES 24

enum {
    EVENT_WALL = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_GRAPH = 4,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7
};
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_HISTO = 5, VALUE_METADATA = 9 };
enum {
    HISTO_MIN = 1,
    HISTO_MAX = 2,
    HISTO_NUM = 3,
    HISTO_SUM = 4,
    HISTO_SQUARES = 5,
    HISTO_LIMIT = 6,
    HISTO_BUCKET = 7
};

/* ---- names ----------------------------------------------------------------------------------- */

/* Names are sorted by readers, so the time comes first. Containers can have the same host name and
 * process number, so there are random bits, too. */
void vb_events_init(struct vb_events *ev, struct vb_recorder *rec, const char *folder,
                    int64_t first_step, unsigned char *bytes)
{
    char host[HOST_BYTES + 1] = "";
    uint64_t random;
    char *c;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
        random = vb_clock_ns(); /* the kernel has no random bits yet */
    (void)gethostname(host, HOST_BYTES);
    for (c = host; *c != '\0'; c++)
        if (*c == '/' || *c == '.')
            *c = '-';
    *ev = (struct vb_events){.rec = rec, .first_step = first_step, .bytes = bytes};
    snprintf(ev->file, sizeof(ev->file), "%sevents.out.tfevents.%010lld.%s.%d.%016llx", folder,
             (long long)time(NULL), host, (int)getpid(), (unsigned long long)random);
}

/* ---- records --------------------------------------------------------------------------------- */

static uint32_t masked_crc(const void *bytes, size_t n)
{
    uint32_t crc = vb_crc32c(0, bytes, n);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void begin_event(struct vb_events *ev, double wall_s, int64_t step)
{
    ev->msg = (struct vb_proto){.bytes = ev->bytes + HEAD_BYTES,
                                .size = VB_EVENT_BYTES - HEAD_BYTES - TAIL_BYTES};
    vb_proto_double(&ev->msg, EVENT_WALL, wall_s);
    if (step != 0) /* as everywhere in this format, 0 is what is not written */
        vb_proto_int(&ev->msg, EVENT_STEP, (uint64_t)step);
}

static vb_status write_event(struct vb_events *ev)
{
    uint64_t len = ev->msg.len;
    vb_status st = VB_ERR_USAGE;
    uint32_t crc;

    if (!ev->msg.cut) {
        memcpy(ev->bytes, &len, 8);
        crc = masked_crc(ev->bytes, 8);
        memcpy(ev->bytes + 8, &crc, 4);
        crc = masked_crc(ev->msg.bytes, len);
        memcpy(ev->msg.bytes + len, &crc, TAIL_BYTES);
        st = vb_recorder_append(ev->rec, ev->file, ev->bytes, HEAD_BYTES + len + TAIL_BYTES);
    }
    ev->lost += st != VB_OK;
    return st;
}

/* A file begins with its version. The start of a session makes readers drop later steps of earlier
 * files. */
static vb_status begin_file(struct vb_events *ev, double wall_s)
{
    vb_status st;
    size_t session;

    if (ev->begun)
        return VB_OK;
    begin_event(ev, wall_s, 0);
    vb_proto_text(&ev->msg, EVENT_VERSION, "brain.Event:2");
    st = write_event(ev);
    if (st != VB_OK)
        return st;
    ev->begun = true;
    begin_event(ev, wall_s, ev->first_step);
    session = vb_proto_begin(&ev->msg, EVENT_SESSION);
    vb_proto_int(&ev->msg, 1, 1); /* START */
    vb_proto_end(&ev->msg, session);
    return write_event(ev);
}

/* ---- values ---------------------------------------------------------------------------------- */

void vb_events_begin(struct vb_events *ev, double wall_s, int64_t step)
{
    (void)begin_file(ev, wall_s);
    begin_event(ev, wall_s, step);
    ev->summary = vb_proto_begin(&ev->msg, EVENT_SUMMARY);
    ev->n_values = 0;
}

static size_t begin_value(struct vb_events *ev, const char *tag)
{
    size_t value = vb_proto_begin(&ev->msg, 1);

    vb_proto_text(&ev->msg, VALUE_TAG, tag);
    ev->n_values++;
    return value;
}

void vb_events_scalar(struct vb_events *ev, const char *tag, double value)
{
    size_t begin = begin_value(ev, tag);

    vb_proto_float(&ev->msg, VALUE_SIMPLE, (float)value);
    vb_proto_end(&ev->msg, begin);
}

/* Returns the next bucket to be shown: several empty ones become one. */
static int next_bucket(const struct vb_histogram *h, int b, int last)
{
    if (b < last && h->bucket[b] == 0)
        while (b + 1 < last && h->bucket[b + 1] == 0)
            b++;
    return b;
}

static void put_buckets(struct vb_proto *msg, const struct vb_histogram *h)
{
    int first = 0, last = VB_HISTOGRAM_BUCKETS - 1, b;
    size_t array;

    while (first < last && h->bucket[first] == 0)
        first++;
    while (last > first && h->bucket[last] == 0)
        last--;
    array = vb_proto_begin(msg, HISTO_LIMIT);
    for (b = next_bucket(h, first, last); b <= last; b = next_bucket(h, b + 1, last))
        vb_proto_packed_double(msg, vb_histogram_limit(b));
    vb_proto_end(msg, array);
    array = vb_proto_begin(msg, HISTO_BUCKET);
    for (b = next_bucket(h, first, last); b <= last; b = next_bucket(h, b + 1, last))
        vb_proto_packed_double(msg, h->bucket[b]);
    vb_proto_end(msg, array);
}

void vb_events_histogram(struct vb_events *ev, const char *tag, const struct vb_histogram *h)
{
    size_t value, histo;

    if (h->n == 0)
        return;
    value = begin_value(ev, tag);
    histo = vb_proto_begin(&ev->msg, VALUE_HISTO);
    vb_proto_double(&ev->msg, HISTO_MIN, h->min);
    vb_proto_double(&ev->msg, HISTO_MAX, h->max);
    vb_proto_double(&ev->msg, HISTO_NUM, (double)h->n);
    vb_proto_double(&ev->msg, HISTO_SUM, h->sum);
    vb_proto_double(&ev->msg, HISTO_SQUARES, h->squares);
    put_buckets(&ev->msg, h);
    vb_proto_end(&ev->msg, histo);
    vb_proto_end(&ev->msg, value);
}

void vb_events_plugin(struct vb_events *ev, const char *tag, const char *plugin,
                      const struct vb_proto *content)
{
    size_t value = begin_value(ev, tag), metadata, data;

    metadata = vb_proto_begin(&ev->msg, VALUE_METADATA);
    data = vb_proto_begin(&ev->msg, 1);
    vb_proto_text(&ev->msg, 1, plugin);
    vb_proto_bytes(&ev->msg, 2, content->bytes, content->len);
    vb_proto_end(&ev->msg, data);
    vb_proto_end(&ev->msg, metadata);
    vb_proto_end(&ev->msg, value);
    ev->msg.cut = ev->msg.cut || content->cut;
}

vb_status vb_events_end(struct vb_events *ev)
{
    if (ev->n_values == 0)
        return VB_OK;
    vb_proto_end(&ev->msg, ev->summary);
    if (!ev->begun) { /* the first record could not be written: a file without it cannot be read */
        ev->lost++;
        return VB_AGAIN;
    }
    return write_event(ev);
}

vb_status vb_events_graph(struct vb_events *ev, double wall_s, const struct vb_proto *graph)
{
    vb_status st = begin_file(ev, wall_s);

    if (st != VB_OK)
        return st;
    begin_event(ev, wall_s, 0);
    vb_proto_bytes(&ev->msg, EVENT_GRAPH, graph->bytes, graph->len);
    ev->msg.cut = ev->msg.cut || graph->cut;
    return write_event(ev);
}
