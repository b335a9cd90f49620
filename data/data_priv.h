/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of data/.
 */
#ifndef VB_DATA_PRIV_H
#define VB_DATA_PRIV_H

#include "data/data.h"

#include <stdatomic.h>

#define IMAGE_BYTES_MAX (3 * 224 * 224) /* of one that is made when it is asked for */
#define ROW_MADE_MAX 64                 /* nonzeros of a row that is */
#define FEATURES_MAX INT32_MAX

/* ---- stores (dataset.c) ---------------------------------------------------------------------- */

/* One row where it is stored. */
struct row {
    int n, n_values;
    const uint32_t *index;
    const float *value; /* (n_values): those behind are 1 */
    uint8_t y;
};

static inline float row_value(const struct row *row, int i)
{
    return i < row->n_values ? row->value[i] : 1;
}

/* Room for a row that is made when it is asked for. */
struct row_room {
    uint32_t index[ROW_MADE_MAX];
    float value[ROW_MADE_MAX];
};

struct store_ops {
    void (*close)(struct vb_store *store);
    int (*image)(const struct vb_store *store, int i, uint8_t *pixels); /* NULL: in memory */
    vb_status (*row)(const struct vb_store *store, int i, struct row *row, struct row_room *room);
    /* A row will be read soon, or (near) next but a few; may be NULL. */
    void (*soon)(const struct vb_store *store, int i, bool near);
    /* Samples will soon be wanted, or will not for long; may be NULL. */
    void (*advise)(const struct vb_store *store, int first, int n, bool wanted);
};

/* Begins every store; shared by the sets that a set was cut into. */
struct vb_store {
    const struct store_ops *ops;
    _Atomic int refs;
    uint64_t file_bytes; /* of a mapped file */
    uint8_t *pixels;     /* (n, c, h, w), of images in memory */
    uint16_t *y;         /* (n), likewise */
};

/* The number that a sample of a set has in its store. */
static inline int stored(const struct vb_dataset *set, uint32_t i)
{
    return (int)(set->which != NULL ? set->which[i] : i);
}

#define ROWS_AHEAD 4 /* that are on their way from memory, at each of three stages */
#define ROWS_BEHIND (3 * ROWS_AHEAD) /* that can be on their way when a batch is complete */

/* Samples of a batch, by their numbers, and those that will be wanted then. */
struct picks {
    const uint32_t *which, *behind;
    int n, n_behind;
    int asked; /* of the n, so many were asked for before */
};

/* Sample i will be wanted: what is needed to read it, and those behind it, is asked for. */
void dataset_soon(const struct vb_dataset *set, const struct picks *picks, int i);

/* As vb_dataset_rows(). */
vb_status dataset_rows(const struct vb_dataset *set, const struct picks *picks,
                       struct vb_rows *rows);

/* Images in memory, all 0; filled through store->pixels and store->y. */
vb_status images_create(int n, int c, int h, int w, int classes, struct vb_dataset *set_p);

/* A part of a set, by the numbers of its samples, which the part owns from now on. */
void dataset_part(const struct vb_dataset *set, uint32_t *which, int n, struct vb_dataset *part_p);

vb_status dataset_row(const struct vb_dataset *set, int i, struct row *row, struct row_room *room);

/* ---- bytes of a file, plain or gzip (gzip.c) ------------------------------------------------- */

struct stream;

vb_status stream_open(const char *path, struct stream **s_p);
void stream_close(struct stream *s); /* NULL is fine */
const char *stream_path(const struct stream *s);
uint64_t stream_offset(const struct stream *s); /* of the next byte, when unpacked */

/* The most bytes that can follow: what is believed of a size that the file itself tells. */
uint64_t stream_room(const struct stream *s);
double stream_done(struct stream *s); /* 0 to 1 */

/* Fewer than len only at the end of the file. */
vb_status stream_read(struct stream *s, void *buf, size_t len, size_t *got_p);

/* All of len; an end before it is an error that says what was being read. */
vb_status stream_exact(struct stream *s, void *buf, size_t len, const char *what);

/* Fails if anything follows, or if the end is not a proper one. */
vb_status stream_end(struct stream *s);

/* The next line without its newline, ended by zero, the stream's until the next call. NULL: there
 * is none. Lines are counted from 1. */
vb_status stream_line(struct stream *s, char **line_p, size_t *len_p);
int64_t stream_line_number(const struct stream *s);

/* ---- rows on their way from a file (rows.c) -------------------------------------------------- */

/* Where a reader puts rows. */
struct row_sink {
    vb_status (*put)(struct row_sink *sink, const struct row *row);
    int features; /* from the largest index so far, or what was asked for */
    int64_t rows, nonzeros, positive;
    int row_max;
    double done;     /* 0 to 1: how far the reader is */
    int file, files; /* of how many; 0: one */
};

/* A row being put together. */
struct row_buf {
    uint32_t *index;
    float *value;
    int n, cap;
};

void row_buf_fini(struct row_buf *buf);
vb_status row_buf_add(struct row_buf *buf, uint32_t index, float value);

/* Sorts by index. Equal indices are added up; returns how many there were. */
int row_buf_sort(struct row_buf *buf);

/* Counts the row and hands it to the sink. */
vb_status sink_put(struct row_sink *sink, const struct row_buf *buf, int y);

/* Notes how far the reader of a file is. */
void sink_tell(struct row_sink *sink, struct stream *s);

/* A sink that keeps all in memory. Ends as a data set, or is given up. */
struct rows_mem;
vb_status rows_mem_create(int features, struct rows_mem **mem_p);
struct row_sink *rows_mem_sink(struct rows_mem *mem);
vb_status rows_mem_finish(struct rows_mem *mem, const char *path, struct vb_dataset *set_p);
void rows_mem_destroy(struct rows_mem *mem); /* NULL is fine */

/* ---- readers --------------------------------------------------------------------------------- */

vb_status idx_read(const char *images, const char *labels, struct vb_dataset *set_p);
vb_status mnist_open(const char *dir, enum vb_synth_part part, struct vb_dataset *set_p);
vb_status cifar_read(const char *const *paths, int n, struct vb_dataset *set_p);
bool cifar_has_parts(const char *path); /* a folder has; a file is all there is */
vb_status cifar_open(const char *path, enum vb_synth_part part, struct vb_dataset *set_p);

/* These put rows into a sink. features 0: as found. */
vb_status libsvm_read(const char *path, int features, struct row_sink *sink);
vb_status criteo_read(const char *path, int features, struct row_sink *sink);
vb_status tfrecord_read(const char *path, int features, struct row_sink *sink);
vb_status tfrecord_glob(const char *pattern, int features, struct row_sink *sink);

/* One record of a TFRecord file; data is the reader's until the next call, NULL at the end. */
struct tfrecord {
    struct stream *stream;
    uint8_t *data;
    size_t len, cap;
    uint64_t at; /* offset of the record */
    int64_t n;   /* records so far */
};
vb_status tfrecord_next(struct tfrecord *t, const uint8_t **data_p, size_t *len_p);
void tfrecord_fini(struct tfrecord *t);

/* Puts the rows of a file of text or records into a sink (spec.c). */
vb_status spec_read_rows(const struct vb_data_spec *spec, struct row_sink *sink);

/* Whether the data has a part of its own for testing. */
bool spec_has_parts(const struct vb_data_spec *spec);

/* ---- tf.Example (example.c) ------------------------------------------------------------------ */

/* A feature of an example, as it lies in the record. */
struct example_feature {
    const uint8_t *name;
    size_t name_len;
    int list; /* 1 bytes, 2 float, 3 int64, 0 empty */
    const uint8_t *data;
    size_t len;
};

/* Return NULL, or what is wrong with the bytes. fn returns the same. */
typedef const char *(*example_fn)(void *arg, const struct example_feature *feature);
const char *example_each(const uint8_t *data, size_t len, example_fn fn, void *arg);

/* Numbers of a float or int64 list, in order. */
typedef const char *(*example_number_fn)(void *arg, int64_t whole, double number);
const char *example_numbers(const struct example_feature *f, example_number_fn fn, void *arg);

/* ---- .csr files (csr.c, csr_write.c) --------------------------------------------------------- */

vb_status csr_open(const char *path, struct vb_dataset *set_p);

/* Blocks of a file larger than at_once bytes are checked only when they are used. */
vb_status csr_open_lazily(const char *path, size_t at_once, struct vb_dataset *set_p);

struct csr_writer;
vb_status csr_writer_create(const char *path, int features, struct csr_writer **w_p);
struct row_sink *csr_writer_sink(struct csr_writer *w);
vb_status csr_writer_finish(struct csr_writer *w); /* the file is there; w still to be destroyed */
void csr_writer_destroy(struct csr_writer *w);     /* unfinished: nothing is left behind */

/* ---- order (order.c) ------------------------------------------------------------------------- */

/* The sequence of samples in an epoch, cut into windows that are shuffled one at a time. */
struct order {
    uint64_t seed;
    int n, window; /* samples */
    bool in_order;
    int64_t epoch;
    int at, len;      /* the window that is in `list`: its first position, and its length */
    uint32_t *list;   /* (window) */
    uint32_t *chunks; /* order of chunks in the epoch; NULL where the window is all there is */
    int n_chunks, per_window;
    void (*entered)(void *arg, int chunk, bool wanted); /* may be NULL */
    void *entered_arg;
};

#define ORDER_CHUNK 4096 /* samples that follow each other in a file, read together */

vb_status order_init(struct order *o, uint64_t seed, int n, int window, bool in_order);
void order_fini(struct order *o);
void order_epoch(struct order *o, int64_t epoch);

/* The samples at n positions of the epoch. */
void order_get(struct order *o, int position, int n, uint32_t *which);

/* The same where it is kept, until the next call; NULL: it is not known yet. */
const uint32_t *order_known(const struct order *o, int position, int n);

#endif
