/* SPDX-License-Identifier: MIT */
#include "lab/lab.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINE_BYTES 8192

static void put_line(struct lab_output *o, struct lab_lines *l, const void *data, size_t len_bytes)
{
    lab_queue_push(&o->err, l->prefix, strlen(l->prefix));
    lab_queue_push(&o->err, lab_queue_head(&l->part), l->part.len_bytes);
    lab_queue_drop(&l->part, l->part.len_bytes);
    lab_queue_push(&o->err, data, len_bytes);
    lab_queue_push(&o->err, "\n", 1);
}

void lab_output_lines(struct lab_output *o, struct lab_lines *l, const void *data, size_t len_bytes)
{
    const char *p = data, *end;
    size_t n;

    while (len_bytes > 0 && (end = memchr(p, '\n', len_bytes)) != NULL) {
        n = (size_t)(end - p);
        put_line(o, l, p, n);
        p += n + 1;
        len_bytes -= n + 1;
    }
    lab_queue_push(&l->part, p, len_bytes);
    if (l->part.len_bytes > MAX_LINE_BYTES)
        lab_output_end(o, l);
}

void lab_output_end(struct lab_output *o, struct lab_lines *l)
{
    if (l->part.len_bytes > 0)
        put_line(o, l, NULL, 0);
    lab_queue_fini(&l->part);
}

void lab_output_say(struct lab_output *o, const char *format, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    lab_queue_push(&o->err, "lab: ", 5);
    lab_queue_push(&o->err, text, strlen(text));
    lab_queue_push(&o->err, "\n", 1);
}

void lab_output_flush(struct lab_output *o, int timeout_ms)
{
    int64_t until_ms = lab_now_ms() + timeout_ms;
    struct pollfd p[2];
    int64_t left_ms;

    while (o->out.len_bytes > 0 || o->err.len_bytes > 0) {
        p[0] = (struct pollfd){.fd = o->out.len_bytes > 0 ? STDOUT_FILENO : -1, .events = POLLOUT};
        p[1] = (struct pollfd){.fd = o->err.len_bytes > 0 ? STDERR_FILENO : -1, .events = POLLOUT};
        left_ms = until_ms - lab_now_ms();
        if (left_ms <= 0 || (poll(p, 2, (int)left_ms) > 0 && (p[0].revents | p[1].revents) == 0))
            return;
        /* After poll(), a write of PIPE_BUF bytes never blocks. */
        if (p[0].revents != 0 && !lab_queue_flush(&o->out, STDOUT_FILENO, 4096))
            lab_queue_fini(&o->out);
        if (p[1].revents != 0 && !lab_queue_flush(&o->err, STDERR_FILENO, 4096))
            lab_queue_fini(&o->err);
    }
}
