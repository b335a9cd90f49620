/* SPDX-License-Identifier: MIT
 *
 * Reads bytes and lines of a file, plain or gzip, which zlib detects. Offsets count uncompressed
 * bytes. A byte of deflate data expands to at most 1032 bytes, which limits the contents.
 */
#include "data/data_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER_BYTES 262144
#define DEFLATE_RATIO 1032
#define LINE_BYTES_MAX ((size_t)64 << 20)

static vb_status open_file(const char *path, int *fd_p, uint64_t *size_p)
{
    struct stat info;
    vb_status st;
    int fd;

    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    if (fd < 0)
        return vb_err_sys("open %s", path);
    if (fstat(fd, &info) != 0) {
        st = vb_err_sys("stat %s", path);
    } else if (!S_ISREG(info.st_mode)) {
        st = vb_err(VB_ERR_INPUT, "%s is not a regular file", path);
    } else {
        *fd_p = fd;
        *size_p = (uint64_t)info.st_size;
        return VB_OK;
    }
    close(fd);
    return st;
}

/* Returns the size of the buffer. A small file needs only a small buffer. */
static size_t buffer_bytes(const struct stream *s)
{
    return s->size < BUFFER_BYTES ? (size_t)s->size + 64 : BUFFER_BYTES;
}

static vb_status open_gz(struct stream *s)
{
    vb_status st;
    int fd = -1;

    st = open_file(s->path, &fd, &s->size);
    if (st != VB_OK)
        return st;
    s->gz = gzdopen(fd, "rb");
    if (s->gz == NULL) {
        close(fd);
        return vb_err(VB_ERR_NO_MEMORY, "%s: no memory for the read buffer", s->path);
    }
    gzbuffer(s->gz, (unsigned)buffer_bytes(s));
    s->packed = gzdirect(s->gz) == 0;
    return VB_OK;
}

vb_status vb_stream_open(const char *path, struct stream **s_p)
{
    struct stream *s = calloc(1, sizeof(*s));
    vb_status st;

    if (s == NULL)
        return vb_err_sys("calloc");
    s->path = strdup(path);
    st = s->path != NULL ? open_gz(s) : vb_err_sys("strdup");
    if (st != VB_OK) {
        vb_stream_close(s);
        return st;
    }
    *s_p = s;
    return VB_OK;
}

void vb_stream_close(struct stream *s)
{
    if (s == NULL)
        return;
    if (s->gz != NULL)
        gzclose_r(s->gz);
    free(s->buf);
    free(s->path);
    free(s);
}

uint64_t vb_stream_offset(const struct stream *s)
{
    return s->offset - (s->to - s->from);
}

uint64_t vb_stream_room(const struct stream *s)
{
    uint64_t all = s->size;

    if (s->packed)
        all = all > UINT64_MAX / DEFLATE_RATIO ? UINT64_MAX : all * DEFLATE_RATIO;
    return all > vb_stream_offset(s) ? all - vb_stream_offset(s) : 0;
}

double vb_stream_done(struct stream *s)
{
    z_off_t at = gzoffset(s->gz);

    return at >= 0 && s->size > 0 ? (double)at / (double)s->size : 0;
}

static vb_status broken(struct stream *s)
{
    int code = Z_OK;
    const char *why = gzerror(s->gz, &code);

    if (code == Z_ERRNO)
        return vb_err_sys("read %s", s->path);
    if (code == Z_BUF_ERROR)
        why = "the compressed data ends too early";
    else if (strncmp(why, s->path, strlen(s->path)) == 0)
        why += strlen(s->path);
    return vb_err(VB_ERR_INPUT, "%s: offset %llu: %s", s->path, (unsigned long long)s->offset,
                  why[0] != '\0' ? why : "the compressed data is broken");
}

/* zlib counts bytes in an unsigned int, so a long read is split. */
vb_status vb_stream_read(struct stream *s, void *buf, size_t len, size_t *got_p)
{
    size_t got = 0, part;
    int n, code;

    while (got < len) {
        part = len - got < (1u << 30) ? len - got : 1u << 30;
        n = gzread(s->gz, (char *)buf + got, (unsigned)part);
        if (n < 0)
            return broken(s);
        got += (size_t)n;
        s->offset += (uint64_t)n;
        if ((size_t)n < part) {
            (void)gzerror(s->gz, &code);
            if (code != Z_OK && code != Z_STREAM_END)
                return broken(s);
            break;
        }
    }
    *got_p = got;
    return VB_OK;
}

vb_status vb_stream_exact(struct stream *s, void *buf, size_t len, const char *what)
{
    size_t got;
    vb_status st = vb_stream_read(s, buf, len, &got);

    if (st != VB_OK || got == len)
        return st;
    return vb_err(VB_ERR_INPUT, "%s: offset %llu: the file ends within %s", s->path,
                  (unsigned long long)s->offset, what);
}

vb_status vb_stream_end(struct stream *s)
{
    uint64_t at = s->offset;
    char byte;
    size_t got;
    vb_status st = vb_stream_read(s, &byte, 1, &got);

    if (st != VB_OK || got == 0)
        return st;
    return vb_err(VB_ERR_INPUT, "%s: offset %llu: unexpected bytes after the end of the data",
                  s->path, (unsigned long long)at);
}

/* Makes space after the buffered bytes: moves them to the front or enlarges the buffer. */
static vb_status make_room(struct stream *s)
{
    size_t cap;
    char *buf;

    if (s->from > 0) {
        memmove(s->buf, s->buf + s->from, s->to - s->from);
        s->to -= s->from;
        s->from = 0;
    }
    if (s->to + 1 < s->cap)
        return VB_OK;
    cap = s->cap == 0 ? buffer_bytes(s) : s->cap * 2;
    if (cap > 2 * LINE_BYTES_MAX)
        return vb_err(VB_ERR_INPUT, "%s: line %lld: the line is longer than %zu bytes", s->path,
                      (long long)s->line + 1, LINE_BYTES_MAX);
    buf = realloc(s->buf, cap);
    if (buf == NULL)
        return vb_err_sys("realloc");
    s->buf = buf;
    s->cap = cap;
    return VB_OK;
}

/* Reads more bytes into the buffer. One byte stays free for the zero after the last line. */
static vb_status read_more(struct stream *s)
{
    size_t want, got = 0;
    vb_status st = make_room(s);

    if (st != VB_OK)
        return st;
    want = s->cap - 1 - s->to;
    st = vb_stream_read(s, s->buf + s->to, want, &got);
    if (st != VB_OK)
        return st;
    s->to += got;
    s->ended = got < want;
    return VB_OK;
}

vb_status vb_stream_line(struct stream *s, char **line_p, size_t *len_p)
{
    size_t looked = 0;
    vb_status st;
    char *end;

    for (;;) {
        end = s->to > s->from + looked
                  ? memchr(s->buf + s->from + looked, '\n', s->to - s->from - looked)
                  : NULL;
        looked = s->to - s->from;
        if (end != NULL || (s->ended && looked > 0)) {
            *line_p = s->buf + s->from;
            *len_p = end != NULL ? (size_t)(end - *line_p) : looked;
            (*line_p)[*len_p] = '\0';
            s->from = end != NULL ? s->from + *len_p + 1 : s->to;
            s->line++;
            return VB_OK;
        }
        if (s->ended) {
            *line_p = NULL;
            *len_p = 0;
            return VB_OK;
        }
        st = read_more(s);
        if (st != VB_OK)
            return st;
    }
}
