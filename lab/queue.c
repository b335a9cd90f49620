/* SPDX-License-Identifier: MIT */
#include "lab/lab.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILL_BYTES 65536

void lab_die(const char *format, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "lab: %s\n", text);
    exit(LAB_FAILED);
}

void *lab_alloc(size_t n, size_t size_bytes)
{
    void *p = calloc(n > 0 ? n : 1, size_bytes);

    if (p == NULL)
        lab_die("out of memory");
    return p;
}

int64_t lab_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void lab_queue_fini(struct lab_queue *q)
{
    free(q->data);
    memset(q, 0, sizeof(*q));
}

static void queue_reserve(struct lab_queue *q, size_t more)
{
    uint8_t *data;
    size_t cap = q->cap > 0 ? q->cap : 4096;

    if (q->head + q->len_bytes + more <= q->cap)
        return;
    /* Moving is cheap only if at least as many bytes were consumed since the last move. */
    if (q->head >= q->len_bytes && q->len_bytes + more <= q->cap) {
        memmove(q->data, q->data + q->head, q->len_bytes);
        q->head = 0;
        return;
    }
    while (cap < q->len_bytes + more)
        cap *= 2;
    if (cap == q->cap)
        cap *= 2;
    data = lab_alloc(cap, 1);
    if (q->len_bytes > 0)
        memcpy(data, q->data + q->head, q->len_bytes);
    free(q->data);
    q->data = data;
    q->head = 0;
    q->cap = cap;
}

void lab_queue_push(struct lab_queue *q, const void *data, size_t len_bytes)
{
    if (len_bytes == 0)
        return;
    queue_reserve(q, len_bytes);
    memcpy(q->data + q->head + q->len_bytes, data, len_bytes);
    q->len_bytes += len_bytes;
}

void lab_queue_drop(struct lab_queue *q, size_t len_bytes)
{
    q->head += len_bytes;
    q->len_bytes -= len_bytes;
    if (q->len_bytes == 0)
        q->head = 0;
}

const uint8_t *lab_queue_head(const struct lab_queue *q)
{
    return q->len_bytes > 0 ? q->data + q->head : NULL;
}

bool lab_queue_fill(struct lab_queue *q, int fd)
{
    ssize_t n;

    queue_reserve(q, FILL_BYTES);
    n = read(fd, q->data + q->head + q->len_bytes, FILL_BYTES);
    if (n > 0)
        q->len_bytes += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

bool lab_queue_flush(struct lab_queue *q, int fd, size_t max)
{
    ssize_t n;

    if (q->len_bytes == 0)
        return true;
    n = write(fd, q->data + q->head, q->len_bytes < max ? q->len_bytes : max);
    if (n > 0)
        lab_queue_drop(q, (size_t)n);
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

/* Both ends have the same kind of CPU, so numbers are sent in the byte order of memory. */
struct head {
    uint16_t type, rank;
    uint32_t len_bytes;
};

#define MAX_BYTES (8U << 20)

void lab_frame_push(struct lab_queue *q, enum lab_frame_type type, int rank, const void *data,
                    size_t len_bytes)
{
    struct head h = {
        .type = (uint16_t)type, .rank = (uint16_t)rank, .len_bytes = (uint32_t)len_bytes};

    if (len_bytes > MAX_BYTES)
        lab_die("a message of %zu bytes is too long (arguments and environment?)", len_bytes);
    lab_queue_push(q, &h, sizeof(h));
    lab_queue_push(q, data, len_bytes);
}

bool lab_frame_next(struct lab_queue *q, struct lab_frame *f_p)
{
    struct head h;

    if (q->len_bytes < sizeof(h))
        return false;
    memcpy(&h, lab_queue_head(q), sizeof(h));
    if (h.len_bytes > MAX_BYTES)
        lab_die("invalid message of %u bytes between host and node", h.len_bytes);
    if (q->len_bytes < sizeof(h) + h.len_bytes)
        return false;
    f_p->type = h.type;
    f_p->rank = h.rank;
    f_p->len_bytes = h.len_bytes;
    f_p->data = lab_queue_head(q) + sizeof(h);
    lab_queue_drop(q, sizeof(h) + h.len_bytes);
    return true;
}
