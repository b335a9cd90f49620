/* SPDX-License-Identifier: MIT
 *
 * Reads .csr files, which are mapped. The header and the table are checked when a file is opened,
 * each block when it is first used or, if the file is small, when it is opened.
 *
 * Somebody may overwrite the file while it is mapped. So the header and the table are copies, and
 * whatever is read from a block and decides where memory is read or written is checked each time.
 */
#include "data/csr_priv.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* number of 32-bit words to prefetch; the CPU itself prefetches the rest of a row */
#define SOON_WORDS 128
#define LINE_WORDS (VB_CACHE_LINE / sizeof(uint32_t))
/* maximum size of a file whose blocks are all checked when it is opened */
#define CHECK_AT_ONCE ((size_t)1 << 30)

struct csr_store {
    struct vb_store base;
    char *path;
    const uint8_t *map;
    size_t len;
    struct csr_head head;
    struct csr_block *blocks;
    /* for each block: the block has been checked; two threads may check the same block */
    _Atomic bool *good;
};

/* The arrays of a block. */
struct view {
    const uint32_t *at, *words;
    uint32_t n_words;
};

static vb_status refuse(const struct csr_store *s, uint64_t offset, const char *what)
{
    return vb_err(VB_ERR_INPUT, "%s: offset %llu: %s", s->path, (unsigned long long)offset, what);
}

static struct view view_of(const struct csr_store *s, const struct csr_block *b)
{
    struct view v;

    v.at = (const uint32_t *)(const void *)(s->map + b->offset);
    v.words = v.at + b->n + 1;
    v.n_words = b->words;
    return v;
}

/* Reads a word of the file once, so that what was checked is what is used. */
static inline uint32_t read_once(const uint32_t *word)
{
    return *(const volatile uint32_t *)word;
}

/* Returns row r of a block, which has at least one word; n is -1 if the row is not within the block
 * or has more values than entries. */
static inline struct row row_at(struct view v, uint32_t r)
{
    uint32_t at = read_once(&v.at[r]), end = read_once(&v.at[r + 1]), head, n_words, n_values;

    if (at >= end || end > v.n_words)
        return (struct row){.n = -1};
    head = read_once(&v.words[at]);
    n_words = end - at - 1;
    n_values = head / 2;
    if (n_values > n_words - n_values || n_values > n_words)
        return (struct row){.n = -1};
    return (struct row){.n = (int)(n_words - n_values),
                        .n_values = (int)n_values,
                        .index = v.words + at + 1,
                        .value = (const float *)(const void *)(v.words + end - n_values),
                        .y = head % 2};
}

static vb_status check_head(const struct csr_store *s)
{
    const struct csr_head *h = &s->head;

    if (memcmp(h->magic, CSR_MAGIC, sizeof(h->magic)) != 0)
        return refuse(s, 0, "this is not a .csr file");
    if (h->version != CSR_VERSION)
        return refuse(s, 8, "the version of the format is not 2: convert the data again");
    if (h->crc != csr_head_crc(*h))
        return refuse(s, 12, "the checksum of the header is wrong");
    if (h->rows == 0 || h->rows > INT32_MAX || h->features == 0 || h->features > FEATURES_MAX ||
        h->row_max > h->features || h->n_blocks > h->rows)
        return refuse(s, 16, "the header has impossible sizes");
    if (h->table < sizeof(*h) || h->table > s->len || h->table % 8 != 0 ||
        s->len - h->table != (uint64_t)h->n_blocks * sizeof(struct csr_block))
        return refuse(s, 48, "the file is not as long as its header says");
    return VB_OK;
}

/* Checks that there are no gaps between the blocks, neither in the file nor in the row numbers. */
static vb_status check_table(const struct csr_store *s)
{
    uint64_t offset = sizeof(s->head), first = 0, nonzeros = 0;
    const struct csr_block *b;
    uint32_t i, most = 0;

    if (vb_crc32c(0, s->blocks, s->len - s->head.table) != s->head.table_crc)
        return refuse(s, s->head.table, "the checksum of the table of blocks is wrong");
    for (i = 0; i < s->head.n_blocks; i++) {
        b = &s->blocks[i];
        if (b->offset != offset || b->first != first || b->n == 0 || b->n > CSR_BLOCK_ROWS ||
            csr_block_bytes(b) > s->head.table - offset || b->words < b->n ||
            b->nnz > b->words - b->n)
            return refuse(s, s->head.table + i * sizeof(*b),
                          "a block does not begin where the block before it ends, or its sizes are "
                          "impossible");
        offset += csr_block_bytes(b);
        first += b->n;
        nonzeros += b->nnz;
        most = b->nnz > most ? b->nnz : most;
    }
    if (s->head.row_max > most) /* a batch allocates memory for rows of this length */
        return refuse(s, 44, "the longest row that the header announces does not fit into a block");
    if (offset != s->head.table || first != s->head.rows || nonzeros != s->head.nonzeros)
        return refuse(s, 16, "the blocks do not match the header");
    return VB_OK;
}

static const char *wrong_row(const struct csr_head *h, const struct row *row)
{
    int i;

    if (row->n < 0)
        return "a row ends before it begins, or has more values than entries";
    if ((uint32_t)row->n > h->row_max)
        return "a row is longer than the header says";
    for (i = 0; i < row->n; i++) {
        if (row->index[i] >= h->features || (i > 0 && row->index[i] <= row->index[i - 1]))
            return "an index is out of range or out of order";
        if (i < row->n_values && !(fabsf(row->value[i]) <= VALUE_MAX))
            return "a value is not finite, or its square is infinite as a float";
    }
    return NULL;
}

/* Checks the checksum, and the rows: a faulty writer can give wrong rows a correct checksum. */
static vb_status check_block(const struct csr_store *s, uint32_t number)
{
    const struct csr_block *b = &s->blocks[number];
    struct view v = view_of(s, b);
    const char *wrong = NULL;
    uint64_t nonzeros = 0;
    struct row row;
    uint32_t i;

    if (vb_crc32c(0, s->map + b->offset, csr_block_bytes(b)) != b->crc)
        return refuse(s, b->offset, "the checksum of a block is wrong");
    if (v.at[0] != 0 || v.at[b->n] != b->words)
        return refuse(s, b->offset, "the rows of a block do not match the size of the block");
    for (i = 0; i < b->n && wrong == NULL; i++) {
        row = row_at(v, i);
        wrong = wrong_row(&s->head, &row);
        nonzeros += (uint64_t)row.n;
    }
    if (wrong == NULL && nonzeros != b->nnz)
        wrong = "the rows of a block do not match the size of the block";
    if (wrong != NULL)
        return refuse(s, b->offset, wrong);
    atomic_store_explicit(&s->good[number], true,
                          memory_order_relaxed); /* relaxed: the flag orders nothing else */
    return VB_OK;
}

static uint32_t search_block(const struct csr_store *s, uint64_t row, uint32_t low)
{
    uint32_t high = s->head.n_blocks, middle;

    while (high - low > 1) {
        middle = low + (high - low) / 2;
        if (s->blocks[middle].first <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Returns the number of the block that contains a row. The row cannot be in a block before the
 * guess. If rows are short, the row is in the guessed block. */
static inline uint32_t block_of(const struct csr_store *s, uint64_t row)
{
    uint32_t guess = (uint32_t)(row / CSR_BLOCK_ROWS);

    return row - s->blocks[guess].first < s->blocks[guess].n ? guess : search_block(s, row, guess);
}

static vb_status csr_changed(const struct vb_store *base, int i)
{
    return vb_err(
        VB_ERR_INPUT,
        "%s: row %d: the file changed while it was in use: write a new file and rename it "
        "instead of overwriting this one",
        ((const struct csr_store *)base)->path, i);
}

static vb_status csr_row(const struct vb_store *base, int i, struct row *row, struct row_room *room)
{
    const struct csr_store *s = (const struct csr_store *)base;
    uint32_t number = block_of(s, (uint64_t)i);
    const struct csr_block *b = &s->blocks[number];
    vb_status st;

    (void)room;
    if (!atomic_load_explicit(&s->good[number], memory_order_relaxed)) {
        st = check_block(s, number);
        if (st != VB_OK)
            return st;
    }
    *row = row_at(view_of(s, b), (uint32_t)((uint64_t)i - b->first));
    return row->n >= 0 && (uint32_t)row->n <= s->head.row_max ? VB_OK : csr_changed(base, i);
}

/* Prefetches the position of row i in its block or, if near is true, the first words of the row. */
static void csr_soon(const struct vb_store *base, int i, bool near)
{
    const struct csr_store *s = (const struct csr_store *)base;
    uint32_t number = block_of(s, (uint64_t)i), r, j, at, end;
    struct view v = view_of(s, &s->blocks[number]);

    if (!atomic_load_explicit(&s->good[number], memory_order_relaxed))
        return; /* the position of the row is not checked yet and may be anything */
    r = (uint32_t)((uint64_t)i - s->blocks[number].first);
    if (!near) {
        __builtin_prefetch(&v.at[r]);
        return;
    }
    at = read_once(&v.at[r]);
    end = read_once(&v.at[r + 1]);
    if (at >= end || end > v.n_words)
        return; /* the file has changed, as csr_row() will say */
    end = end - at < SOON_WORDS ? end : at + SOON_WORDS;
    for (j = at; j < end; j += LINE_WORDS)
        __builtin_prefetch(&v.words[j]);
    __builtin_prefetch(&v.words[end - 1]);
}

/* Reads the pages of rows ahead, or releases them. A page that is still needed is read again. */
static void csr_advise(const struct vb_store *base, int first, int n, bool wanted)
{
    const struct csr_store *s = (const struct csr_store *)base;
    const struct csr_block *b = &s->blocks[block_of(s, (uint64_t)first)];
    const struct csr_block *last = &s->blocks[block_of(s, (uint64_t)first + (uint64_t)n - 1)];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), from = b->offset / page * page;
    size_t to = last->offset + csr_block_bytes(last);

    (void)madvise((void *)(s->map + from), to - from, wanted ? MADV_WILLNEED : MADV_DONTNEED);
}

static void csr_close(struct vb_store *base)
{
    struct csr_store *s = (struct csr_store *)base;

    vb_file_unmap(s->map, s->len);
    free(s->blocks);
    free(s->good);
    free(s->path);
    free(s);
}

/* The table has the checksum of each block, and a block is checked before it is used. */
static uint64_t csr_digest(const struct vb_store *base)
{
    const struct csr_store *s = (const struct csr_store *)base;

    return vb_hash64(vb_hash64(0, &s->head, sizeof(s->head)), s->blocks, s->len - s->head.table);
}

static const struct store_ops csr_ops = {.close = csr_close,
                                         .row = csr_row,
                                         .changed = csr_changed,
                                         .soon = csr_soon,
                                         .digest = csr_digest,
                                         .advise = csr_advise};

static vb_status map_file(struct csr_store *s)
{
    struct stat info;
    vb_status st = VB_OK;
    int fd;

    fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        st = vb_err_sys("open %s", s->path);
    } else if (!S_ISREG(info.st_mode)) {
        st = vb_err(VB_ERR_INPUT, "%s is not a regular file", s->path);
    } else if ((size_t)info.st_size < sizeof(struct csr_head)) {
        st = refuse(s, (uint64_t)info.st_size, "the file ends within the header");
    } else {
        s->map = vb_file_map(fd, (size_t)info.st_size, s->path);
        s->len = (size_t)info.st_size;
        s->base.file_bytes = (uint64_t)info.st_size;
        if (s->map == NULL)
            st = vb_err_sys("map %s", s->path);
    }
    if (fd >= 0)
        close(fd);
    return st;
}

static vb_status open_store(struct csr_store *s, size_t at_once)
{
    vb_status st = map_file(s);
    uint32_t i;

    if (st != VB_OK)
        return st;
    memcpy(&s->head, s->map, sizeof(s->head));
    st = check_head(s);
    if (st != VB_OK)
        return st;
    s->blocks = malloc(s->len - s->head.table);
    s->good = calloc(s->head.n_blocks, sizeof(*s->good));
    if (s->blocks == NULL || s->good == NULL)
        return vb_err_sys("malloc");
    memcpy(s->blocks, s->map + s->head.table, s->len - s->head.table);
    st = check_table(s);
    for (i = 0; st == VB_OK && s->len <= at_once && i < s->head.n_blocks; i++)
        st = check_block(s, i);
    return st;
}

vb_status vb_csr_open_lazily(const char *path, size_t at_once, struct vb_dataset *set_p)
{
    struct csr_store *s = calloc(1, sizeof(*s));
    vb_status st;

    if (s == NULL)
        return vb_err_sys("calloc");
    s->base.ops = &csr_ops;
    atomic_init(&s->base.refs, 1);
    s->path = strdup(path);
    st = s->path != NULL ? open_store(s, at_once) : vb_err_sys("strdup");
    if (st != VB_OK) {
        csr_close(&s->base);
        return st;
    }
    s->base.n = (int)s->head.rows;
    *set_p = (struct vb_dataset){.kind = VB_DATA_ROWS,
                                 .n = (int)s->head.rows,
                                 .features = (int)s->head.features,
                                 .classes = 2,
                                 .row_max = (int)s->head.row_max,
                                 .store = &s->base};
    return VB_OK;
}

vb_status vb_csr_open(const char *path, struct vb_dataset *set_p)
{
    return vb_csr_open_lazily(path, CHECK_AT_ONCE, set_p);
}
