/* SPDX-License-Identifier: MIT
 *
 * Chrome's JSON: a list of objects, one a line. Times are microseconds with three digits, so
 * nanoseconds are kept.
 */
#include "record/trace/trace_out_priv.h"

static void put_string(FILE *file, const char *text)
{
    (void)putc('"', file);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < 32)
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            (void)putc(*text, file);
    (void)putc('"', file);
}

/* Begins an object with the keys that all have. */
static void open_object(struct vb_trace_out *out, char phase)
{
    fprintf(out->file, "%s{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d", out->first ? "\n" : ",\n", phase,
            trace_pid(out), trace_tid(out));
    out->first = false;
}

static void put_name(struct vb_trace_out *out, const char *name)
{
    fprintf(out->file, ",\"name\":");
    put_string(out->file, name);
}

static void put_time(struct vb_trace_out *out, uint64_t ns)
{
    fprintf(out->file, ",\"ts\":%llu.%03llu", (unsigned long long)(ns / 1000),
            (unsigned long long)(ns % 1000));
}

static void put_about(struct vb_trace_out *out, const char *what, const char *name)
{
    open_object(out, 'M');
    put_name(out, what);
    fprintf(out->file, ",\"args\":{\"name\":");
    put_string(out->file, name);
    fprintf(out->file, "}}");
}

static void begin_file(struct vb_trace_out *out)
{
    fprintf(out->file, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
}

static void end_file(struct vb_trace_out *out)
{
    fprintf(out->file, "\n]}\n");
}

static void write_process(struct vb_trace_out *out, const char *name)
{
    put_about(out, "process_name", name);
}

static void write_track(struct vb_trace_out *out, const char *name, uint64_t begin_ns)
{
    (void)begin_ns;
    if (out->kind != VB_TRACK_COUNTER)
        put_about(out, "thread_name", name);
}

/* An arrow is an object of its own, which belongs to the slice that is open at its time. */
static void put_arrows(struct vb_trace_out *out, const struct vb_trace_item *item)
{
    uint32_t i;

    for (i = 0; i < item->n_arrows; i++) {
        open_object(out, i < item->n_ended ? 'f' : 's');
        put_name(out, "arrow");
        put_time(out, item->ns);
        fprintf(out->file, ",\"cat\":\"arrow\",\"id\":%llu%s}", (unsigned long long)item->arrow + i,
                i < item->n_ended ? ",\"bp\":\"e\"" : "");
    }
}

static void write_item(struct vb_trace_out *out, const struct vb_trace_item *item)
{
    static const char phases[] = {[VB_ITEM_BEGIN] = 'B',
                                  [VB_ITEM_END] = 'E',
                                  [VB_ITEM_INSTANT] = 'i',
                                  [VB_ITEM_COUNTER] = 'C'};

    open_object(out, phases[item->type]);
    if (item->name != NULL)
        put_name(out, item->name);
    put_time(out, item->ns);
    if (item->type == VB_ITEM_INSTANT)
        fprintf(out->file, ",\"s\":\"t\"");
    if (item->bytes > 0)
        fprintf(out->file, ",\"args\":{\"bytes\":%llu}", (unsigned long long)item->bytes);
    if (item->type == VB_ITEM_COUNTER) {
        put_name(out, out->track_name);
        fprintf(out->file, ",\"args\":{\"value\":%.6g}", item->value);
    }
    fprintf(out->file, "}");
    put_arrows(out, item);
}

const struct trace_format vb_trace_json = {.begin = begin_file,
                                           .process = write_process,
                                           .track = write_track,
                                           .item = write_item,
                                           .end = end_file};
