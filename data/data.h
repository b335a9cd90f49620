/* SPDX-License-Identifier: MIT
 *
 * data/: the data that a model is trained on: readers, generators, shuffling, sharding, and a
 * loader that prepares the next batches.
 *
 * Every random choice is a function of a seed and a number (of a sample, a pixel or an epoch), not
 * of earlier choices. So it is the same on every rank, thread and machine.
 */
#ifndef VB_DATA_DATA_H
#define VB_DATA_DATA_H

#include "base/base.h"

/* ---- data sets ------------------------------------------------------------------------------- */

enum vb_data_kind {
    VB_DATA_IMAGES, /* images with 8-bit pixels, stored unchanged; each has a class */
    VB_DATA_ROWS,   /* sparse rows; each has a label of 0 or 1 */
};

struct vb_store; /* holds the samples: memory, a mapped file, or a generator */

/* A set of samples. Several threads may read it at the same time. */
struct vb_dataset {
    enum vb_data_kind kind;
    int n;
    int features;      /* images: c * h * w; rows: all indices are below it */
    int classes;       /* rows: 2 */
    int c, h, w;       /* images only */
    int row_max;       /* rows: the largest number of nonzeros in a row */
    float mean, scale; /* a pixel p becomes (p - mean) * scale; the defaults are 0 and 1/255 */
    struct vb_store *store;
    uint32_t *which; /* the store's numbers of the samples in this set; NULL: the whole store */
};

/* Sparse rows in contiguous memory, which the caller owns. Row i has the entries at[i] ... at[i +
 * 1] - 1; its indices ascend. */
struct vb_rows {
    int n;
    int64_t *at;     /* (n + 1) */
    uint32_t *index; /* (at[n]) */
    float *value;    /* (at[n]) */
    uint8_t *y;      /* (n), 0 or 1 */
    int64_t room;    /* the number of entries that index and value have room for */
};

/* Does nothing if *set is all zero or already destroyed. */
void vb_dataset_destroy(struct vb_dataset *set);

/* Copies n images, selected by their numbers, as floats. x: (n, c, h, w), may be NULL; y: (n). */
void vb_dataset_pick(const struct vb_dataset *set, const uint32_t *which, int n, float *x,
                     uint16_t *y);

/* Copies one image as it is stored. pixels: (c, h, w). Returns its class. */
int vb_dataset_image(const struct vb_dataset *set, int i, uint8_t *pixels);

/* Copies n rows by their numbers; n * row_max entries are enough. Fails if their file is broken. */
vb_status vb_dataset_rows(const struct vb_dataset *set, const uint32_t *which, int n,
                          struct vb_rows *rows);

/* Splits a set at random into a test share and a training set. The choice depends only on the seed.
 * The set still belongs to the caller, who may destroy it before the two parts. */
vb_status vb_dataset_split(const struct vb_dataset *set, double test_share, uint64_t seed,
                           struct vb_dataset *train_p, struct vb_dataset *test_p);

/* ---- specifications -------------------------------------------------------------------------- */

#define VB_DATA_SYNTH_DEFAULT 20000
#define VB_DATA_SYNTH_MAX 1000000
#define VB_DATA_ROWS_MAX 1000000000 /* synthetic rows, which are not stored */

enum vb_data_format {
    VB_DATA_SYNTH,
    VB_DATA_MNIST,
    VB_DATA_CIFAR10,
    VB_DATA_TFRECORD,
    VB_DATA_LIBSVM,
    VB_DATA_CRITEO,
    VB_DATA_CSR,
};

enum vb_synth_kind { VB_SYNTH_DIGITS, VB_SYNTH_CIFAR, VB_SYNTH_IMAGENET, VB_SYNTH_CRITEO };

struct vb_data_spec {
    enum vb_data_format format;
    const char *path; /* borrowed from the parsed text */
    int features; /* criteo, synthetic rows: buckets; other rows: the least number; 0: not given */
    int n_train;  /* synthetic data only */
    int n_test;
    enum vb_synth_kind synth;
    bool kind_given, n_given, test_given;
};

/* Parses mnist:DIR, cifar10:DIR, tfrecord:GLOB, libsvm:FILE, criteo:FILE, csr:FILE, synth, synth:N
 * or synth:KEY=VALUE,... with the keys kind (digits, cifar, imagenet, criteo), n, test and
 * features. On VB_ERR_USAGE why contains one line, which is not logged. */
vb_status vb_data_spec_parse(const char *text, struct vb_data_spec *spec_p, char why[VB_OPTS_WHY]);

/* Sets the kind of synthetic data that the model needs, if the user did not give one. */
void vb_data_spec_prefer(struct vb_data_spec *spec, enum vb_synth_kind kind);

const char *vb_data_format_str(enum vb_data_format format);

/* The parts of data that has parts. They have no sample in common. */
enum vb_synth_part { VB_SYNTH_TRAIN, VB_SYNTH_TEST };

/* Opens one part. Some data has no parts (libsvm, criteo, csr, tfrecord, a single file of
 * CIFAR-10). Both parts are then the whole data. */
vb_status vb_data_open(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                       struct vb_dataset *set_p);

struct vb_data_ask {
    struct vb_data_spec data;
    const struct vb_data_spec *test; /* NULL: the test part, or a share of the data */
    double test_share;               /* 0: use the test part */
    bool no_test; /* the caller does not evaluate: if there is no test part, one sample is enough */
    uint64_t seed;
};

/* Opens the training data and the test data. Both have the same kind and size of samples. */
vb_status vb_data_open_both(const struct vb_data_ask *ask, struct vb_dataset *train_p,
                            struct vb_dataset *test_p);

/* ---- synthetic data -------------------------------------------------------------------------- */

#define VB_SYNTH_SIDE 28
#define VB_SYNTH_FEATURES (VB_SYNTH_SIDE * VB_SYNTH_SIDE)
#define VB_SYNTH_CLASSES 10
#define VB_SYNTH_ROW_FEATURES 33762578
#define VB_SYNTH_ROW_FEATURES_MIN 1000

/* For all generators, the first n samples of a part do not depend on n. */

/* Draws n digits of 28 x 28 pixels, about as hard as MNIST for a linear model. */
vb_status vb_synth_create(uint64_t seed, enum vb_synth_part part, int n, struct vb_dataset *set_p);

/* n images of 3 x side x side, generated when read: side 32, 10 classes, or 224, 1000 classes. */
vb_status vb_synth_images(uint64_t seed, enum vb_synth_part part, int n, int side, int classes,
                          struct vb_dataset *set_p);

/* Provides n rows like Criteo's. Each row is generated when it is read. */
vb_status vb_synth_rows(uint64_t seed, enum vb_synth_part part, int n, int features,
                        struct vb_dataset *set_p);

/* Computes the share of the first n labels that the model behind vb_synth_rows() predicts
 * correctly. A trained model can exceed it only by luck. Returns false for any other set. */
bool vb_synth_planted(const struct vb_dataset *set, int n, double *accuracy_p);

/* ---- files of rows --------------------------------------------------------------------------- */

/* Called from time to time; done is from 0 to 1. */
typedef void (*vb_data_progress_fn)(void *arg, double done, int64_t rows);

struct vb_data_written {
    int64_t rows, nonzeros, positive;
    int features;
};

/* Writes rows, one at a time, to a .csr file, complete or not at all. progress may be NULL. */
vb_status vb_data_convert(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                          const char *path, vb_data_progress_fn progress, void *arg,
                          struct vb_data_written *written_p);

/* Writes images and their classes as two IDX files. */
vb_status vb_idx_write(const struct vb_dataset *set, const char *images, const char *labels);

/* ---- facts ----------------------------------------------------------------------------------- */

struct vb_data_facts {
    int64_t nonzeros; /* rows: of all rows; images: pixels that are not 0 */
    int row_min, row_max;
    double least, most; /* of the values, or of the pixels */
    int64_t *count;     /* (classes), the number of samples in each class */
};

/* Reads every sample. The caller releases the facts with vb_data_facts_fini(). */
vb_status vb_data_look(const struct vb_dataset *set, struct vb_data_facts *facts_p);
void vb_data_facts_fini(struct vb_data_facts *facts);

/* ---- order ----------------------------------------------------------------------------------- */

/* Fills the order of n samples in an epoch: a permutation of 0 ... n-1. */
void vb_order_fill(uint64_t seed, int64_t epoch, int n, uint32_t *order);

/* A rank's share in n items. Neighbours have neighbouring shares; sizes differ by at most 1. */
void vb_share(int n, int rank, int world, int *first_p, int *n_p);

/* ---- loading --------------------------------------------------------------------------------- */

struct vb_loader;

struct vb_loader_opts {
    const struct vb_dataset *set; /* borrowed until the loader is closed */
    uint64_t seed;
    int global_batch; /* samples of all ranks in one step */
    int rank, world;
    int ahead;      /* batches that a thread prepares in advance, at most 8; 0: no thread */
    int window;     /* samples that are shuffled together, for files larger than memory; 0: all */
    bool in_order;  /* do not shuffle; used to evaluate */
    bool no_x;      /* images: only their numbers and classes */
    int timeout_ms; /* how long to wait for a batch; 0: one minute */
    void (*on_start)(void *arg); /* the thread calls this first, to pin itself; may be NULL */
    void *on_start_arg;
};

/* This rank's share of a step. Memory behind the n samples is zero. */
struct vb_batch {
    int64_t epoch, step; /* step is counted within the epoch */
    int n;               /* samples of this rank; may be 0 in the last step of an epoch */
    int n_global;    /* samples of all ranks; less than global_batch in the last step of an epoch */
    uint32_t *which; /* (n), the numbers of the samples in the set */
    const uint32_t *soon; /* (n_soon), the numbers of the next step's samples, if known */
    int n_soon;           /* 0 if a thread prepares the batches */
    float *x;             /* images: (n, c, h, w); NULL with no_x */
    uint16_t *y;          /* images: (n) */
    struct vb_rows rows;  /* rows only */
};

/* An epoch contains every sample once. It has ceil(n / global_batch) steps. */
vb_status vb_loader_open(const struct vb_loader_opts *opts, struct vb_loader **loader_p);
void vb_loader_close(struct vb_loader *loader);          /* accepts NULL */
int64_t vb_loader_steps(const struct vb_loader *loader); /* the number of steps in an epoch */

/* Selects the batch that vb_loader_next() returns next. The current batch becomes invalid. */
vb_status vb_loader_seek(struct vb_loader *loader, int64_t epoch, int64_t step);

/* Returns the next batch. It is valid until the next call. Epochs follow each other without end.
 * Only one thread at a time may call this. It allocates nothing. */
vb_status vb_loader_next(struct vb_loader *loader, const struct vb_batch **batch_p);

/* Prefetches row i of the next batch, if the row is known. A caller that computes meanwhile calls
 * it for one row after the other, from 0. Does nothing if a thread prepares the batches. */
void vb_loader_soon(struct vb_loader *loader, int i);

/* Returns the batch after the current one, or NULL if it is not ready. Without a thread it is made
 * now. It is borrowed until the next call of vb_loader_next(). */
const struct vb_batch *vb_loader_peek(struct vb_loader *loader);

#endif
