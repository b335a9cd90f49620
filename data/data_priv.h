/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of data/ share.
 */
#ifndef VB_DATA_DATA_PRIV_H
#define VB_DATA_DATA_PRIV_H

#include "data/data.h"

#include <stdatomic.h>

#define ROW_MADE_MAX 64 /* maximum number of nonzeros in a generated row */
#define FEATURES_MAX INT32_MAX
/* Weights exist for every feature on every rank, so one wrong index can cost gigabytes: without
 * --features, data may not have more features than this. */
#define FEATURES_UNASKED 100000000
/* Update rules square gradients, which grow with the values: the square of a larger value is
 * infinite, and its weight would never change. */
#define VALUE_MAX 1.8446743e19f

/* Returns the array, enlarged if it is too small for n items of size bytes, or NULL if there is no
 * memory; then the array is unchanged. *cap: how many items the array has room for. */
void *vb_grown(void *array, size_t *cap, size_t n, size_t size);

/* ---- stores (dataset.c) ---------------------------------------------------------------------- */

/* A row. index and value point into the store, or into a struct row_room. */
struct row {
    int n, n_values;
    const uint32_t *index;
    const float *value; /* n_values values; all later entries have the value 1 */
    uint8_t y;
};

static inline float row_value(const struct row *row, int i)
{
    return i < row->n_values ? row->value[i] : 1;
}

/* Memory for a row that is generated when it is read. */
struct row_room {
    uint32_t index[ROW_MADE_MAX];
    float value[ROW_MADE_MAX];
};

struct store_ops {
    void (*close)(struct vb_store *store);
    /* Makes image i, unless pixels is NULL, and returns its class. NULL: the images are in memory.
     */
    int (*image)(const struct vb_store *store, int i, uint8_t *pixels);
    vb_status (*row)(const struct vb_store *store, int i, struct row *row, struct row_room *room);
    /* Says that row i of a mapped file is not what it was when the file was opened. NULL: rows
     * cannot change. */
    vb_status (*changed)(const struct vb_store *store, int i);
    /* Prefetches the contents of row i or, if near is false, its position. May be NULL. */
    void (*soon)(const struct vb_store *store, int i, bool near);
    /* A hash of all samples, or of what they are generated from. */
    uint64_t (*digest)(const struct vb_store *store);
    /* n samples will be read soon or, if wanted is false, not for long. May be NULL. */
    void (*advise)(const struct vb_store *store, int first, int n, bool wanted);
};

/* The first member of every kind of store. The parts of a split set share one store. */
struct vb_store {
    const struct store_ops *ops;
    _Atomic int refs;
    int n;               /* the number of samples */
    uint64_t file_bytes; /* the size of the mapped file; 0: the store has no mapped file */
    uint8_t *pixels;     /* the pixels of images in memory, (n, c, h, w) */
    size_t image_bytes;  /* the size of an image in memory */
    uint16_t *y;         /* the n classes of images in memory */
};

/* Closes a store that has no memory besides pixels and y. */
void vb_store_free(struct vb_store *store);

/* Makes a store of n images that are in the caller's memory, which outlives the store. image_bytes:
 * the size of an image. */
vb_status vb_images_view(const uint8_t *pixels, const uint16_t *y, int n, size_t image_bytes,
                         struct vb_store **store_p);

/* Rows in memory (rows.c). */
struct rows_store {
    struct vb_store base;
    int64_t *at;
    uint32_t *index;
    float *value;
    uint8_t *y;
};

/* Returns the store of a set whose rows are in memory, else NULL. */
const struct rows_store *vb_rows_in_memory(const struct vb_store *store);

/* Makes a store of rows that are in the caller's memory, which outlives the store. */
vb_status vb_rows_view(const struct rows_store *at, int n, struct vb_store **store_p);

/* Returns the number that sample i of a set has in the store. */
static inline int stored(const struct vb_dataset *set, uint32_t i)
{
    return (int)(set->which != NULL ? set->which[i] : i);
}

#define ROWS_AHEAD 4 /* number of rows in each of the three prefetch stages */
/* number of later rows that are being prefetched at the end of a batch */
#define ROWS_BEHIND (3 * ROWS_AHEAD)

/* The numbers of the samples in a batch (which) and of the samples after the batch (behind). */
struct picks {
    const uint32_t *which, *behind;
    int n, n_behind;
    int asked; /* how many of the n samples have already been prefetched */
};

/* Prefetches samples that follow sample i. The caller calls this before it reads sample i. */
void vb_dataset_soon(const struct vb_dataset *set, const struct picks *picks, int i);

/* Does the same as vb_dataset_rows(), with prefetching. */
vb_status vb_dataset_pick_rows(const struct vb_dataset *set, const struct picks *picks,
                               struct vb_rows *rows);

/* Creates images in memory, all 0 until the caller fills store->pixels and store->y. */
vb_status vb_images_create(int n, int c, int h, int w, int classes, struct vb_dataset *set_p);

/* Makes a part of a set from the n samples in which, and takes ownership of which. */
void vb_dataset_part(const struct vb_dataset *set, uint32_t *which, int n,
                     struct vb_dataset *part_p);

vb_status vb_dataset_row(const struct vb_dataset *set, int i, struct row *row,
                         struct row_room *room);

/* Checks the indices of row i that were copied from the store: the file may have changed since it
 * was opened, and the indices will be used as such. */
vb_status vb_dataset_check_row(const struct vb_dataset *set, int i, const uint32_t *index, int n);

static inline uint32_t le32(const uint8_t *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* ---- bytes of a file, plain or gzip (gzip.c) ------------------------------------------------- */

struct stream {
    char *path;
    int fd;
    uint64_t size;  /* the size of the file on disk */
    uint64_t taken; /* the number of bytes that were read from disk */
    uint64_t offset;
    struct z_stream_s *z; /* zlib's decompressor; NULL: the file is not compressed */
    uint8_t *in;          /* compressed bytes; z says which of them are not decompressed yet */
    bool in_member;       /* the next compressed byte belongs to a member that has begun */
    char *buf;            /* buffer for lines */
    size_t cap, from, to;
    bool ended;
    int64_t line; /* the number of the last line that was read, from 1 */
};

vb_status vb_stream_open(const char *path, struct stream **s_p);
void vb_stream_close(struct stream *s); /* the argument may be NULL */
/* Returns the offset of the next byte, after decompression. */
uint64_t vb_stream_offset(const struct stream *s);

/* The most uncompressed bytes that can follow, to check sizes that the file claims. */
uint64_t vb_stream_room(const struct stream *s);
double
vb_stream_done(const struct stream *s); /* the share of the file that has been read, from 0 to 1 */

/* Reads up to len bytes. *got_p is less than len only at the end of the file. */
vb_status vb_stream_read(struct stream *s, void *buf, size_t len, size_t *got_p);

/* Reads exactly len bytes. If the file ends earlier, the error says that it ends within what. */
vb_status vb_stream_exact(struct stream *s, void *buf, size_t len, const char *what);

/* Checks that the file ends here. Fails if more bytes follow, or if the file is truncated. */
vb_status vb_stream_end(struct stream *s);

/* Returns the next line, without its newline, valid until the next call; NULL at the end. */
vb_status vb_stream_line(struct stream *s, char **line_p, size_t *len_p);

/* ---- rows that a reader passes on (rows.c) --------------------------------------------------- */

/* The destination of the rows that a reader reads. */
struct row_sink {
    vb_status (*put)(struct row_sink *sink, const struct row *row);
    int features; /* the requested number or the largest index so far plus 1, whichever is larger */
    int64_t rows, nonzeros, positive;
    int row_max;
    bool zero, minus; /* a row with the label 0, or -1, has been read */
    double done;      /* the reader's progress, from 0 to 1 */
    int file, files;  /* the number of the current file; how many there are, 0: one */
};

/* A row that is being built. */
struct row_buf {
    uint32_t *index;
    float *value;
    int n, cap;
    uint32_t twice; /* after vb_row_buf_sort(): an index that occurred more than once */
};

void vb_row_buf_fini(struct row_buf *buf);
vb_status vb_row_buf_add(struct row_buf *buf, uint32_t index, float value);

/* Sorts entries by index and adds those with equal indices. Returns how many were removed. */
int vb_row_buf_sort(struct row_buf *buf);

/* Returns NULL if a row may have this label, or a text that says what is wrong with the label. */
const char *vb_sink_label(struct row_sink *sink, double label);

/* Checks that data with this largest index, counted from 0, may be read. features: the number that
 * was asked for; 0: none. Returns false, and writes the reason to why, if it may not. */
bool vb_index_fits(int64_t index, int features, char why[VB_OPTS_WHY]);

/* Counts the row and passes it to the sink. */
vb_status vb_sink_put(struct row_sink *sink, const struct row_buf *buf, int y);

/* A reader of text, one row a line. */
struct line_reader {
    struct stream *stream;
    int features;
    struct row_buf row; /* for the current row */
    struct row_sink *sink;
};

/* Calls parse for each line of a file. parse puts the row of the line into the sink. */
typedef vb_status (*line_fn)(struct line_reader *r, char *line, size_t len);
vb_status vb_read_lines(const char *path, int features, line_fn parse, struct row_sink *sink);

/* Sets the progress of the sink from the current position of the reader in the file. */
void vb_sink_tell(struct row_sink *sink, struct stream *s);

/* A sink that keeps all rows in memory. vb_rows_mem_finish() turns the sink into a data set. */
struct rows_mem;
vb_status vb_rows_mem_create(int features, struct rows_mem **mem_p);
struct row_sink *vb_rows_mem_sink(struct rows_mem *mem);
vb_status vb_rows_mem_finish(struct rows_mem *mem, const char *path, struct vb_dataset *set_p);
void vb_rows_mem_destroy(struct rows_mem *mem); /* the argument may be NULL */

/* ---- readers --------------------------------------------------------------------------------- */

vb_status vb_idx_read(const char *images, const char *labels, struct vb_dataset *set_p);
vb_status vb_mnist_open(const char *dir, enum vb_synth_part part, struct vb_dataset *set_p);
vb_status vb_cifar_read(const char *const *paths, int n, struct vb_dataset *set_p);
bool vb_cifar_has_parts(const char *path); /* true for a folder, false for a file */
vb_status vb_cifar_open(const char *path, enum vb_synth_part part, struct vb_dataset *set_p);

/* Put the rows of files into a sink. If features is 0, the data decides (not in criteo). */
vb_status vb_libsvm_read(const char *path, int features, struct row_sink *sink);
vb_status vb_criteo_read(const char *path, int features, struct row_sink *sink);
vb_status vb_tfrecord_read(const char *path, int features, struct row_sink *sink);
vb_status vb_tfrecord_glob(const char *pattern, int features, struct row_sink *sink);

/* A record of a TFRecord file, valid until the next call; NULL at the end of the file. */
struct tfrecord {
    struct stream *stream;
    uint8_t *data;
    size_t len, cap;
    uint64_t at; /* offset of the record in the file */
    int64_t n;   /* number of records read so far */
};
vb_status vb_tfrecord_next(struct tfrecord *t, const uint8_t **data_p, size_t *len_p);
void vb_tfrecord_fini(struct tfrecord *t);

/* ---- what to type if data cannot be read (guess.c) --------------------------------------------
 */

/* Returns the format that a file or folder looks like (enum vb_data_format); -1: none. */
int vb_data_guess(const char *path);

/* Called after the error `st` of a reader: says what may help. Returns st. */
vb_status vb_data_fix(vb_status st, enum vb_data_format format, const char *path);

/* Puts the rows of a libsvm, criteo or TFRecord file into a sink (spec.c). */
vb_status vb_spec_read_rows(const struct vb_data_spec *spec, struct row_sink *sink);

/* ---- tf.Example (example.c) ------------------------------------------------------------------ */

/* A feature of an example, as it is stored in the record. */
struct example_feature {
    const uint8_t *name;
    size_t name_len;
    int list; /* type of the list: 1: bytes, 2: float, 3: int64, 0: empty */
    const uint8_t *data;
    size_t len;
};

/* vb_example_each() calls fn for each feature of an example. These functions and fn return NULL
 * on success, or a text that says what is wrong with the bytes. */
typedef const char *(*example_fn)(void *arg, const struct example_feature *feature);
const char *vb_example_each(const uint8_t *data, size_t len, example_fn fn, void *arg);

/* Calls fn for each number of a float or int64 list, in order. */
typedef const char *(*example_number_fn)(void *arg, int64_t whole, double number);
const char *vb_example_numbers(const struct example_feature *f, example_number_fn fn, void *arg);

/* ---- .csr files (csr.c, csr_write.c) --------------------------------------------------------- */

vb_status vb_csr_open(const char *path, struct vb_dataset *set_p);

/* If the file is larger than at_once bytes, a block is checked only when it is first used. */
vb_status vb_csr_open_lazily(const char *path, size_t at_once, struct vb_dataset *set_p);

struct csr_writer;
vb_status vb_csr_writer_create(const char *path, int features, struct csr_writer **w_p);
struct row_sink *vb_csr_writer_sink(struct csr_writer *w);
/* Completes the file. The caller destroys w next. */
vb_status vb_csr_writer_finish(struct csr_writer *w);
/* Removes the temporary file if vb_csr_writer_finish() did not succeed. */
void vb_csr_writer_destroy(struct csr_writer *w);

/* ---- order (order.c) ------------------------------------------------------------------------- */

/* The sequence of samples in an epoch, in windows that are shuffled one at a time. */
struct order {
    uint64_t seed;
    int n, window; /* numbers of samples */
    bool in_order;
    int64_t epoch;
    int at, len;      /* the first position and the length of the window that is in `list` */
    uint32_t *list;   /* the shuffled samples of the current window */
    uint32_t *chunks; /* order of the chunks in the epoch; unused if one window holds all samples */
    int n_chunks, per_window;
    /* Called for each chunk that will be read soon, or (if wanted is false) is no longer needed.
     * May be NULL. */
    void (*entered)(void *arg, int chunk, bool wanted);
    void *entered_arg;
};

#define ORDER_CHUNK 4096 /* number of neighbouring samples of a file that are read together */

vb_status vb_order_init(struct order *o, uint64_t seed, int n, int window, bool in_order);
void vb_order_fini(struct order *o);
void vb_order_epoch(struct order *o, int64_t epoch);

/* Fills which with the numbers of the samples at n successive positions of the epoch. */
void vb_order_get(struct order *o, int position, int n, uint32_t *which);

/* The same samples, or NULL if they are not known yet; valid until the next get or epoch. */
const uint32_t *vb_order_known(const struct order *o, int position, int n);

#endif
