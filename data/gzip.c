/* SPDX-License-Identifier: MIT
 *
 * Reads bytes and lines of a file, plain or gzip. Offsets count uncompressed bytes. A byte of
 * deflate data expands to at most 1032 bytes, which limits the contents.
 *
 * A gzip file is a sequence of members. zlib's own gzread() ignores whatever follows the last one,
 * so a file with a damaged second member would lose rows without a word. Here only zeros may
 * follow: tapes and some tools pad files with them.
 */
#include "data/data_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER_BYTES 262144
#define DEFLATE_RATIO 1032
#define GZIP_MAGIC 0x1f /* the first byte of a member; the second is 0x8b */
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

static vb_status open_packed(struct stream *s)
{
    s->in = malloc(buffer_bytes(s));
    s->z = calloc(1, sizeof(*s->z));
    if (s->in == NULL || s->z == NULL || inflateInit2(s->z, 16 + MAX_WBITS) != Z_OK) {
        free(s->z); /* vb_stream_close() ends only what was begun */
        s->z = NULL;
        return vb_err(VB_ERR_NO_MEMORY, "%s: no memory to decompress the file", s->path);
    }
    s->in_member = true;
    return VB_OK;
}

static vb_status open_bytes(struct stream *s)
{
    uint8_t magic[2] = {0};
    vb_status st;

    st = open_file(s->path, &s->fd, &s->size);
    if (st != VB_OK)
        return st;
    if (pread(s->fd, magic, sizeof(magic), 0) < 0)
        return vb_err_sys("read %s", s->path);
    return magic[0] == GZIP_MAGIC && magic[1] == 0x8b ? open_packed(s) : VB_OK;
}

vb_status vb_stream_open(const char *path, struct stream **s_p)
{
    struct stream *s = calloc(1, sizeof(*s));
    vb_status st;

    if (s == NULL)
        return vb_err_sys("calloc");
    s->fd = -1;
    s->path = strdup(path);
    st = s->path != NULL ? open_bytes(s) : vb_err_sys("strdup");
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
    if (s->z != NULL)
        inflateEnd(s->z);
    if (s->fd >= 0)
        close(s->fd);
    free(s->z);
    free(s->in);
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

    if (s->z != NULL)
        all = all > UINT64_MAX / DEFLATE_RATIO ? UINT64_MAX : all * DEFLATE_RATIO;
    return all > vb_stream_offset(s) ? all - vb_stream_offset(s) : 0;
}

double vb_stream_done(const struct stream *s)
{
    return s->size > 0 ? (double)s->taken / (double)s->size : 0;
}

static vb_status take(struct stream *s, void *buf, size_t len, size_t *got_p)
{
    ssize_t n;

    do
        n = read(s->fd, buf, len);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return vb_err_sys("read %s", s->path);
    s->taken += (uint64_t)n;
    *got_p = (size_t)n;
    return VB_OK;
}

/* Makes sure that there are compressed bytes, except at the end of the file. */
static vb_status fill(struct stream *s)
{
    vb_status st;
    size_t got = 0;

    if (s->z->avail_in > 0)
        return VB_OK;
    st = take(s, s->in, buffer_bytes(s), &got);
    if (st != VB_OK)
        return st;
    s->z->next_in = s->in;
    s->z->avail_in = (unsigned)got;
    return VB_OK;
}

static vb_status broken(const struct stream *s, const char *why)
{
    return vb_err(VB_ERR_INPUT, "%s: offset %llu: %s", s->path, (unsigned long long)s->offset,
                  why != NULL ? why : "the compressed data is broken");
}

/* Decides what the bytes after a member are: another member, or zeros up to the end of the file. */
static vb_status next_member(struct stream *s)
{
    vb_status st = VB_OK;

    if (s->z->next_in[0] == GZIP_MAGIC) {
        s->in_member = true;
        return inflateReset(s->z) == Z_OK ? VB_OK : broken(s, s->z->msg);
    }
    while (st == VB_OK && s->z->avail_in > 0) {
        if (s->z->next_in[0] != 0)
            return vb_err(VB_ERR_INPUT,
                          "%s: byte %llu of the compressed file: garbage after the compressed data",
                          s->path, (unsigned long long)(s->taken - s->z->avail_in));
        s->z->next_in++;
        s->z->avail_in--;
        st = fill(s);
    }
    return st;
}

/* Decompresses up to len bytes, fewer only at the end of the file. */
static vb_status unpack(struct stream *s, void *buf, size_t len, size_t *got_p)
{
    vb_status st = VB_OK;
    int code;

    s->z->next_out = buf;
    s->z->avail_out = (unsigned)len;
    while (st == VB_OK && s->z->avail_out > 0) {
        st = fill(s);
        if (st != VB_OK || (s->z->avail_in == 0 && !s->in_member))
            break;
        if (s->z->avail_in == 0)
            return broken(s, "the compressed data ends too early");
        if (!s->in_member) {
            st = next_member(s);
            continue;
        }
        code = inflate(s->z, Z_NO_FLUSH);
        s->in_member = code != Z_STREAM_END;
        if (code == Z_MEM_ERROR)
            return vb_err(VB_ERR_NO_MEMORY, "%s: no memory to decompress the file", s->path);
        if (code != Z_OK && code != Z_STREAM_END)
            return broken(s, s->z->msg);
    }
    *got_p = len - s->z->avail_out;
    return st;
}

/* zlib counts bytes in an unsigned int, so a long read is split. */
vb_status vb_stream_read(struct stream *s, void *buf, size_t len, size_t *got_p)
{
    size_t got = 0, part, n = 1;
    vb_status st;

    while (got < len && n > 0) {
        part = len - got < (1u << 30) ? len - got : 1u << 30;
        st = s->z != NULL ? unpack(s, (char *)buf + got, part, &n)
                          : take(s, (char *)buf + got, part, &n);
        if (st != VB_OK)
            return st;
        got += n;
        s->offset += n;
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

const char *vb_gzip_version(void)
{
    return zlibVersion();
}
