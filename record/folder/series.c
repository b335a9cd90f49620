/* SPDX-License-Identifier: MIT */
#include "record/folder/series.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define COLS_MAX 128
#define NAME_MAX_BYTES 48
#define CHUNK_BYTES 65536

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "rows are written as they lie in memory");

static const char *const type_names[] = {"u64", "i64", "f64", "u32", "i32", "f32"};

static size_t type_bytes(enum vb_col_type type)
{
    return type <= VB_COL_F64 ? 8 : 4;
}

size_t vb_series_head(const struct vb_series_kind *kind, char head[VB_SERIES_HEAD_MAX])
{
    size_t len, bytes = 0;
    int i;

    len = (size_t)snprintf(head, VB_SERIES_HEAD_MAX, VB_SERIES_MAGIC "\nkind %s %d\nrow %zu\n",
                           kind->name, kind->version, kind->row_bytes);
    for (i = 0; i < kind->n_cols; i++) {
        bytes += type_bytes(kind->cols[i].type);
        len += (size_t)snprintf(head + len, VB_SERIES_HEAD_MAX - len, "col %s %s %s\n",
                                kind->cols[i].name, type_names[kind->cols[i].type],
                                kind->cols[i].unit);
    }
    VB_ASSERT(bytes == kind->row_bytes && len + 5 < VB_SERIES_HEAD_MAX);
    (void)bytes;
    len += (size_t)snprintf(head + len, VB_SERIES_HEAD_MAX - len, "end\n");
    return len;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct col {
    char name[NAME_MAX_BYTES];
    enum vb_col_type type;
    size_t offset;
};

struct vb_series {
    int fd;
    char path[512];
    char name[NAME_MAX_BYTES];
    size_t head_bytes, row_bytes;
    struct col cols[COLS_MAX];
    int n_cols;
    /* rows that were read last */
    int64_t first, n;
    char chunk[CHUNK_BYTES];
};

static vb_status bad(const struct vb_series *s, size_t offset, const char *what)
{
    return vb_err(VB_ERR_INPUT, "%s: byte %zu: %s", s->path, offset, what);
}

static bool parse_col(struct vb_series *s, const char *line)
{
    struct col *col = &s->cols[s->n_cols];
    char type[8];
    size_t i;

    if (s->n_cols == COLS_MAX || sscanf(line, "col %47s %7s", col->name, type) != 2)
        return false;
    for (i = 0; i < VB_COUNT(type_names) && strcmp(type, type_names[i]) != 0; i++)
        ;
    if (i == VB_COUNT(type_names))
        return false;
    col->type = (enum vb_col_type)i;
    col->offset = s->n_cols > 0 ? col[-1].offset + type_bytes(col[-1].type) : 0;
    s->n_cols++;
    return true;
}

/* Lines of other words are for newer readers. */
static bool parse_line(struct vb_series *s, const char *line)
{
    if (strncmp(line, "kind ", 5) == 0)
        return sscanf(line, "kind %47s", s->name) == 1;
    if (strncmp(line, "row ", 4) == 0)
        return sscanf(line, "row %zu", &s->row_bytes) == 1;
    return strncmp(line, "col ", 4) != 0 || parse_col(s, line);
}

static vb_status parse_head(struct vb_series *s, char *head)
{
    char *line = head, *end;
    size_t bytes = 0;

    for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        if (line == head ? strcmp(line, VB_SERIES_MAGIC) != 0 : !parse_line(s, line))
            return bad(s, (size_t)(line - head), "is not the head of a series");
        if (strcmp(line, "end") == 0)
            break;
    }
    if (end == NULL)
        return bad(s, 0, "has no head of a series; the run may have ended before it was written");
    s->head_bytes = (size_t)(end + 1 - head);
    if (s->n_cols > 0)
        bytes = s->cols[s->n_cols - 1].offset + type_bytes(s->cols[s->n_cols - 1].type);
    if (bytes == 0 || bytes != s->row_bytes)
        return bad(s, 0, "the columns do not add up to a row");
    return VB_OK;
}

bool vb_series_is(const char *path)
{
    char begin[VB_SERIES_MAGIC_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is = fd >= 0 && pread(fd, begin, sizeof(begin), 0) == (ssize_t)sizeof(begin) &&
              memcmp(begin, VB_SERIES_MAGIC, sizeof(begin)) == 0;

    if (fd >= 0)
        close(fd);
    return is;
}

vb_status vb_series_open(const char *path, struct vb_series **series_p)
{
    char head[VB_SERIES_HEAD_MAX + 1];
    struct vb_series *s = calloc(1, sizeof(*s));
    vb_status st = VB_OK;
    ssize_t n = 0;

    if (s == NULL)
        return vb_err_sys("calloc");
    snprintf(s->path, sizeof(s->path), "%s", path);
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0 || (n = pread(s->fd, head, VB_SERIES_HEAD_MAX, 0)) < 0)
        st = vb_err_sys("%s", path);
    if (st == VB_OK) {
        head[n] = '\0';
        st = parse_head(s, head);
    }
    if (st == VB_OK)
        *series_p = s;
    else
        vb_series_close(s);
    return st;
}

void vb_series_close(struct vb_series *s)
{
    if (s == NULL)
        return;
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

const char *vb_series_name(const struct vb_series *s)
{
    return s->name;
}

int vb_series_col(const struct vb_series *s, const char *name)
{
    int i;

    for (i = 0; i < s->n_cols; i++)
        if (strcmp(s->cols[i].name, name) == 0)
            return i;
    return -1;
}

int64_t vb_series_rows(struct vb_series *s)
{
    struct stat info;

    if (fstat(s->fd, &info) != 0 || info.st_size < (off_t)s->head_bytes)
        return 0;
    return (int64_t)((size_t)info.st_size - s->head_bytes) / (int64_t)s->row_bytes;
}

int64_t vb_series_end(struct vb_series *s)
{
    return (int64_t)s->head_bytes + vb_series_rows(s) * (int64_t)s->row_bytes;
}

/* Reads a chunk that begins with this row. Returns false if the row does not exist. */
static bool load(struct vb_series *s, int64_t row)
{
    size_t whole = CHUNK_BYTES / s->row_bytes * s->row_bytes;
    ssize_t n;

    if (row < 0 || row > INT64_MAX / (int64_t)s->row_bytes - (int64_t)s->head_bytes)
        return false;
    if (row >= s->first && row < s->first + s->n)
        return true;
    n = pread(s->fd, s->chunk, whole, (off_t)s->head_bytes + (off_t)row * (off_t)s->row_bytes);
    s->first = row;
    s->n = n > 0 ? n / (ssize_t)s->row_bytes : 0;
    return s->n > 0;
}

double vb_series_value(struct vb_series *s, int64_t row, int col)
{
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
        uint32_t u32;
        int32_t i32;
        float f32;
    } v;

    if (col < 0 || col >= s->n_cols || !load(s, row))
        return (double)NAN;
    memcpy(&v, s->chunk + (size_t)(row - s->first) * s->row_bytes + s->cols[col].offset,
           type_bytes(s->cols[col].type));
    switch (s->cols[col].type) {
    case VB_COL_U64:
        return (double)v.u64;
    case VB_COL_I64:
        return (double)v.i64;
    case VB_COL_F64:
        return v.f64;
    case VB_COL_U32:
        return v.u32;
    case VB_COL_I32:
        return v.i32;
    default:
        return (double)v.f32;
    }
}
