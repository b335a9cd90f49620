/* SPDX-License-Identifier: MIT
 *
 * Handles the rows that a reader passes on: builds a row entry by entry, and provides a sink that
 * keeps all rows in memory.
 */
#include "data/data_priv.h"

#include <stdlib.h>
#include <string.h>

#define TELL_EVERY 1024 /* number of lines between two reports of progress */

/* A new capacity for at least n items, larger by half, so that items are rarely copied. */
static int64_t next_cap(int64_t n, int64_t cap)
{
    int64_t want = cap + cap / 2 + 64;

    return want < n ? n : want;
}

void *vb_grown(void *array, size_t *cap, size_t n, size_t size)
{
    size_t more = (size_t)next_cap((int64_t)n, (int64_t)*cap);

    if (n <= *cap)
        return array;
    array = reallocarray(array, more, size);
    if (array != NULL)
        *cap = more;
    return array;
}

static bool grow_entries(uint32_t **index, float **value, int64_t cap)
{
    uint32_t *more_index = realloc(*index, (size_t)cap * sizeof(*more_index));
    float *more_value;

    if (more_index == NULL)
        return false;
    *index = more_index;
    more_value = realloc(*value, (size_t)cap * sizeof(*more_value));
    if (more_value == NULL)
        return false;
    *value = more_value;
    return true;
}

void vb_row_buf_fini(struct row_buf *buf)
{
    free(buf->index);
    free(buf->value);
    memset(buf, 0, sizeof(*buf));
}

vb_status vb_row_buf_add(struct row_buf *buf, uint32_t index, float value)
{
    int64_t cap = next_cap(buf->n + 1, buf->cap);

    if (buf->n == INT32_MAX / 2)
        return vb_err(VB_ERR_INPUT, "a row has more than %d entries", buf->n);
    if (buf->n == buf->cap) {
        if (!grow_entries(&buf->index, &buf->value, cap))
            return vb_err_sys("realloc");
        buf->cap = (int)cap;
    }
    buf->index[buf->n] = index;
    buf->value[buf->n++] = value;
    return VB_OK;
}

static bool ascends(const struct row_buf *buf)
{
    int i;

    for (i = 1; i < buf->n; i++)
        if (buf->index[i] <= buf->index[i - 1])
            return false;
    return true;
}

static void swap(struct row_buf *buf, int a, int b)
{
    uint32_t index = buf->index[a];
    float value = buf->value[a];

    buf->index[a] = buf->index[b];
    buf->value[a] = buf->value[b];
    buf->index[b] = index;
    buf->value[b] = value;
}

static void sink_down(struct row_buf *buf, int root, int n)
{
    int child;

    for (; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && buf->index[child + 1] > buf->index[child])
            child++;
        if (buf->index[root] >= buf->index[child])
            return;
        swap(buf, root, child);
    }
}

/* Uses heapsort, which needs no extra memory and is fast for every order of the entries. */
int vb_row_buf_sort(struct row_buf *buf)
{
    int i, n = buf->n, kept = 0;

    if (ascends(buf))
        return 0;
    for (i = n / 2 - 1; i >= 0; i--)
        sink_down(buf, i, n);
    for (i = n - 1; i > 0; i--) {
        swap(buf, 0, i);
        sink_down(buf, 0, i);
    }
    for (i = 1; i < n; i++) {
        if (buf->index[i] == buf->index[kept]) {
            buf->twice = buf->index[i];
            buf->value[kept] += buf->value[i];
            continue;
        }
        kept++;
        buf->index[kept] = buf->index[i];
        buf->value[kept] = buf->value[i];
    }
    buf->n = kept + 1;
    return n - buf->n;
}

const char *vb_sink_label(struct row_sink *sink, double label)
{
    if (label != 1 && label != 0 && label != -1)
        return "the label must be 0 or 1, or -1 or 1";
    sink->zero |= label == 0;
    sink->minus |= label == -1;
    return sink->zero && sink->minus
               ? "the labels must be 0 and 1, or -1 and 1, and the data has both 0 and -1"
               : NULL;
}

bool vb_index_fits(int64_t index, int features, char why[VB_OPTS_WHY])
{
    int64_t most = features > 0 ? features : FEATURES_UNASKED;

    if (index < most)
        return true;
    if (features > 0)
        (void)vb_usage(why, "the index is larger than the given number of features");
    else if (index >= FEATURES_MAX)
        (void)vb_usage(why, "the index is too large");
    else
        (void)vb_usage(why,
                       "the index needs %lld weights on every rank; if it is right, allow it with "
                       "--features %lld",
                       (long long)index + 1, (long long)index + 1);
    return false;
}

vb_status vb_sink_put(struct row_sink *sink, const struct row_buf *buf, int y)
{
    struct row row = {
        .n = buf->n, .n_values = buf->n, .index = buf->index, .value = buf->value, .y = (uint8_t)y};

    if (sink->rows == INT32_MAX)
        return vb_err(VB_ERR_INPUT, "more than %d rows", INT32_MAX);
    if (buf->n > 0 && buf->index[buf->n - 1] >= (uint32_t)sink->features)
        sink->features = (int)(buf->index[buf->n - 1] + 1);
    sink->rows++;
    sink->nonzeros += buf->n;
    sink->positive += y;
    sink->row_max = buf->n > sink->row_max ? buf->n : sink->row_max;
    return sink->put(sink, &row);
}

void vb_sink_tell(struct row_sink *sink, struct stream *s)
{
    sink->done = (sink->file + vb_stream_done(s)) / (sink->files > 0 ? sink->files : 1);
}

vb_status vb_read_lines(const char *path, int features, line_fn parse, struct row_sink *sink)
{
    struct line_reader r = {.features = features, .sink = sink};
    vb_status st = vb_stream_open(path, &r.stream);
    char *line;
    size_t len;

    if (st != VB_OK)
        return st;
    for (;;) {
        st = vb_stream_line(r.stream, &line, &len);
        if (st != VB_OK || line == NULL)
            break;
        st = parse(&r, line, len);
        if (st != VB_OK)
            break;
        if (r.stream->line % TELL_EVERY == 0)
            vb_sink_tell(sink, r.stream);
    }
    vb_row_buf_fini(&r.row);
    vb_stream_close(r.stream);
    return st;
}

struct rows_mem {
    struct row_sink sink; /* must be the first member: put() casts the address of the sink */
    struct rows_store *store;
    int64_t rows_cap, entries_cap;
};

static void store_close(struct vb_store *base)
{
    struct rows_store *s = (struct rows_store *)base;

    free(s->at);
    free(s->index);
    free(s->value);
    free(s->y);
    free(s);
}

static vb_status store_row(const struct vb_store *base, int i, struct row *row,
                           struct row_room *room)
{
    const struct rows_store *s = (const struct rows_store *)base;

    (void)room;
    row->n = row->n_values = (int)(s->at[i + 1] - s->at[i]);
    row->index = row->n > 0 ? s->index + s->at[i] : NULL;
    row->value = row->n > 0 ? s->value + s->at[i] : NULL;
    row->y = s->y[i];
    return VB_OK;
}

static uint64_t store_digest(const struct vb_store *base)
{
    const struct rows_store *s = (const struct rows_store *)base;
    size_t n = (size_t)base->n, entries = (size_t)s->at[n];
    uint64_t h = vb_hash64(0, s->at, (n + 1) * sizeof(*s->at));

    h = vb_hash64(h, s->y, n);
    if (entries == 0)
        return h;
    h = vb_hash64(h, s->index, entries * sizeof(*s->index));
    return vb_hash64(h, s->value, entries * sizeof(*s->value));
}

static const struct store_ops rows_ops = {
    .close = store_close, .row = store_row, .digest = store_digest};

const struct rows_store *vb_rows_in_memory(const struct vb_store *store)
{
    return store->ops == &rows_ops ? (const struct rows_store *)store : NULL;
}

static void view_close(struct vb_store *store)
{
    free(store);
}

static const struct store_ops view_ops = {
    .close = view_close, .row = store_row, .digest = store_digest};

vb_status vb_rows_view(const struct rows_store *at, int n, struct vb_store **store_p)
{
    struct rows_store *s = malloc(sizeof(*s));

    if (s == NULL)
        return vb_err_sys("malloc");
    *s = *at;
    s->base = (struct vb_store){.ops = &view_ops, .n = n};
    atomic_init(&s->base.refs, 1);
    *store_p = &s->base;
    return VB_OK;
}

static bool grow_rows(struct rows_store *s, int64_t cap)
{
    int64_t *at = realloc(s->at, ((size_t)cap + 1) * sizeof(*at));
    uint8_t *y;

    if (at == NULL)
        return false;
    s->at = at;
    y = realloc(s->y, (size_t)cap);
    if (y == NULL)
        return false;
    s->y = y;
    return true;
}

/* Allocates memory for a new row, which the sink has already counted. */
static bool make_room(struct rows_mem *mem)
{
    int64_t rows = next_cap(mem->sink.rows, mem->rows_cap);
    int64_t entries = next_cap(mem->sink.nonzeros, mem->entries_cap);

    if (mem->sink.rows > mem->rows_cap) {
        if (!grow_rows(mem->store, rows))
            return false;
        mem->rows_cap = rows;
    }
    if (mem->sink.nonzeros > mem->entries_cap) {
        if (!grow_entries(&mem->store->index, &mem->store->value, entries))
            return false;
        mem->entries_cap = entries;
    }
    return true;
}

static vb_status mem_put(struct row_sink *sink, const struct row *row)
{
    struct rows_mem *mem = (struct rows_mem *)sink;
    struct rows_store *s = mem->store;
    int64_t n = sink->rows, end = sink->nonzeros;

    if (!make_room(mem))
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %lld rows; convert them to a .csr file",
                      (long long)n);
    s->at[0] = 0;
    s->at[n] = end;
    s->y[n - 1] = row->y;
    if (row->n > 0) {
        memcpy(s->index + end - row->n, row->index, (size_t)row->n * sizeof(*s->index));
        memcpy(s->value + end - row->n, row->value, (size_t)row->n * sizeof(*s->value));
    }
    return VB_OK;
}

vb_status vb_rows_mem_create(int features, struct rows_mem **mem_p)
{
    struct rows_mem *mem = calloc(1, sizeof(*mem));

    if (mem == NULL)
        return vb_err_sys("calloc");
    mem->store = calloc(1, sizeof(*mem->store));
    if (mem->store == NULL) {
        free(mem);
        return vb_err_sys("calloc");
    }
    mem->store->base.ops = &rows_ops;
    mem->sink.put = mem_put;
    mem->sink.features = features;
    *mem_p = mem;
    return VB_OK;
}

struct row_sink *vb_rows_mem_sink(struct rows_mem *mem)
{
    return &mem->sink;
}

vb_status vb_rows_mem_finish(struct rows_mem *mem, const char *path, struct vb_dataset *set_p)
{
    if (mem->sink.rows == 0)
        return vb_err(VB_ERR_INPUT, "%s has no rows", path);
    *set_p = (struct vb_dataset){.kind = VB_DATA_ROWS,
                                 .n = (int)mem->sink.rows,
                                 .features = mem->sink.features > 0 ? mem->sink.features : 1,
                                 .classes = 2,
                                 .row_max = mem->sink.row_max,
                                 .store = &mem->store->base};
    atomic_init(&mem->store->base.refs, 1);
    mem->store->base.n = (int)mem->sink.rows;
    mem->store = NULL;
    return VB_OK;
}

void vb_rows_mem_destroy(struct rows_mem *mem)
{
    if (mem == NULL)
        return;
    if (mem->store != NULL)
        store_close(&mem->store->base);
    free(mem);
}
