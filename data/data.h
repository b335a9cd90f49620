/* SPDX-License-Identifier: MIT
 *
 * data/: what a model is trained on, and in which order: readers, generators, shuffling, sharding
 * and a loader that has the next batches ready.
 *
 * Everything random here is a function of a seed and a number (of a sample, a pixel, an epoch), not
 * of what was drawn before, so it is the same on every rank, thread and machine.
 */
#ifndef VB_DATA_H
#define VB_DATA_H

#include "base/base.h"

/* ---- data sets ------------------------------------------------------------------------------- */

enum vb_data_kind {
    VB_DATA_IMAGES, /* pixels of 8 bits, kept as they were read; a class each */
    VB_DATA_ROWS,   /* sparse rows; a label of 0 or 1 each */
};

struct vb_store; /* where the samples are: memory, a mapped file, or a generator */

/* A set of samples. Reading it is free to all threads at once. */
struct vb_dataset {
    enum vb_data_kind kind;
    int n;
    int features;      /* of images: c * h * w; of rows: what indices are below */
    int classes;       /* of rows: 2 */
    int c, h, w;       /* of images */
    int row_max;       /* of rows: most nonzeros in one */
    float mean, scale; /* a pixel p becomes (p - mean) * scale: 0 and 1/255, unless changed */
    struct vb_store *store;
    uint32_t *which; /* part of a store: the numbers of its samples; NULL: all of it */
};

/* Sparse rows in one piece, in the caller's memory. Row i has the entries at[i] ... at[i + 1] - 1;
 * its indices ascend. */
struct vb_rows {
    int n;
    int64_t *at;     /* (n + 1) */
    uint32_t *index; /* (at[n]) */
    float *value;    /* (at[n]) */
    uint8_t *y;      /* (n), 0 or 1 */
    int64_t room;    /* entries that index and value have room for */
};

void vb_dataset_destroy(struct vb_dataset *set); /* all-zero and already destroyed are fine */

/* Copies n images, by their numbers, into one piece, as floats. x: (n, c, h, w), may be NULL; y:
 * (n). */
void vb_dataset_pick(const struct vb_dataset *set, const uint32_t *which, int n, float *x,
                     uint16_t *y);

/* One image as it is stored. pixels: (c, h, w). Returns its class. */
int vb_dataset_image(const struct vb_dataset *set, int i, uint8_t *pixels);

/* Copies n rows, by their numbers, into one piece; n * row_max entries are always enough room.
 * Fails if the file they are in turns out to be broken. */
vb_status vb_dataset_rows(const struct vb_dataset *set, const uint32_t *which, int n,
                          struct vb_rows *rows);

/* Cuts a set in two by chance: a share of it for testing, the rest for training. Which samples go
 * where depends on the seed alone. The set stays the caller's and may be destroyed before them. */
vb_status vb_dataset_split(const struct vb_dataset *set, double test_share, uint64_t seed,
                           struct vb_dataset *train_p, struct vb_dataset *test_p);

/* ---- what was asked for ---------------------------------------------------------------------- */

#define VB_DATA_SYNTH_DEFAULT 20000
#define VB_DATA_SYNTH_MAX 1000000
#define VB_DATA_ROWS_MAX 1000000000 /* made-up rows, which are not kept */

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
    const char *path; /* borrowed from the text */
    int features;     /* criteo, made-up rows: buckets; other rows: at least; 0: not given */
    int n_train;      /* of what is made up */
    int n_test;
    enum vb_synth_kind synth;
    bool kind_given, n_given, test_given;
};

/* mnist:DIR, cifar10:DIR, tfrecord:GLOB, libsvm:FILE, criteo:FILE, csr:FILE, synth, synth:N or
 * synth:KEY=VALUE,... with the keys kind (digits, cifar, imagenet, criteo), n, test, features. On
 * VB_ERR_USAGE why has one line, which is not logged. */
vb_status vb_data_spec_parse(const char *text, struct vb_data_spec *spec_p, char why[VB_OPTS_WHY]);

/* What a model wants of made-up data that was asked for without saying which. */
void vb_data_spec_prefer(struct vb_data_spec *spec, enum vb_synth_kind kind);

const char *vb_data_format_str(enum vb_data_format format);

/* Parts of data that has them; these two have no sample in common. */
enum vb_synth_part { VB_SYNTH_TRAIN, VB_SYNTH_TEST };

/* Opens one part. What has no parts (libsvm, criteo, csr, tfrecord, a single file of CIFAR-10) is
 * all there is for either. */
vb_status vb_data_open(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                       struct vb_dataset *set_p);

struct vb_data_ask {
    struct vb_data_spec data;
    const struct vb_data_spec *test; /* NULL: the part for testing, or a share of the data */
    double test_share;               /* 0: the part for testing */
    bool no_test;                    /* nobody tests: if there is no such part, a sample will do */
    uint64_t seed;
};

/* Opens what to train on and what to test with, which are of the same kind and size. */
vb_status vb_data_open_both(const struct vb_data_ask *ask, struct vb_dataset *train_p,
                            struct vb_dataset *test_p);

/* ---- made-up data ---------------------------------------------------------------------------- */

#define VB_SYNTH_SIDE 28
#define VB_SYNTH_FEATURES (VB_SYNTH_SIDE * VB_SYNTH_SIDE)
#define VB_SYNTH_CLASSES 10
#define VB_SYNTH_ROW_FEATURES 33762578
#define VB_SYNTH_ROW_FEATURES_MIN 1000

/* In all of them the first n of a part are the same whatever n is. */

/* n drawn digits of 28 x 28, like MNIST in shape and about as hard for a linear model. */
vb_status vb_synth_create(uint64_t seed, enum vb_synth_part part, int n, struct vb_dataset *set_p);

/* n images of 3 x side x side, each made when it is asked for: (32, 10 classes) or (224, 1000). */
vb_status vb_synth_images(uint64_t seed, enum vb_synth_part part, int n, int side, int classes,
                          struct vb_dataset *set_p);

/* n rows like Criteo's, each made when it is asked for. */
vb_status vb_synth_rows(uint64_t seed, enum vb_synth_part part, int n, int features,
                        struct vb_dataset *set_p);

/* How many labels of the first n rows the model that they were made with gets right: what no model
 * can beat but by luck. False if the set was not made by vb_synth_rows(). */
bool vb_synth_planted(const struct vb_dataset *set, int n, double *accuracy_p);

/* ---- files of rows --------------------------------------------------------------------------- */

/* Told now and then how far it is: done is 0 to 1. */
typedef void (*vb_data_progress_fn)(void *arg, double done, int64_t rows);

struct vb_data_written {
    int64_t rows, nonzeros, positive;
    int features;
};

/* Writes rows to a .csr file, which is there as a whole or not at all. They are not kept in
 * memory. progress may be NULL. */
vb_status vb_data_convert(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                          const char *path, vb_data_progress_fn progress, void *arg,
                          struct vb_data_written *written_p);

/* Writes images and their classes as two IDX files. */
vb_status vb_idx_write(const struct vb_dataset *set, const char *images, const char *labels);

/* ---- what there is --------------------------------------------------------------------------- */

struct vb_data_facts {
    int64_t nonzeros; /* rows: of all; images: pixels that are not 0 */
    int row_min, row_max;
    double least, most; /* values, or pixels */
    int64_t *count;     /* (classes), samples of each */
};

/* Looks at every sample. To be given back with vb_data_facts_fini(). */
vb_status vb_data_look(const struct vb_dataset *set, struct vb_data_facts *facts_p);
void vb_data_facts_fini(struct vb_data_facts *facts);

/* ---- order ----------------------------------------------------------------------------------- */

/* The order of n samples in an epoch: a permutation of 0 ... n-1. */
void vb_order_fill(uint64_t seed, int64_t epoch, int n, uint32_t *order);

/* The share of a rank in n things: neighbouring ranks have neighbouring shares, which differ by at
 * most 1. */
void vb_share(int n, int rank, int world, int *first_p, int *n_p);

/* ---- loading --------------------------------------------------------------------------------- */

struct vb_loader;

struct vb_loader_opts {
    const struct vb_dataset *set; /* borrowed until the loader is closed */
    uint64_t seed;
    int global_batch; /* samples of all ranks in a step */
    int rank, world;
    int ahead;      /* batches made ahead of need by a thread, at most 8; 0: no thread */
    int window;     /* samples shuffled among each other; 0: all. For files larger than memory */
    bool in_order;  /* not shuffled: for testing */
    bool no_x;      /* of images: only which samples, and their classes */
    int timeout_ms; /* how long to wait for a batch; 0: a minute */
    void (*on_start)(void *arg); /* called first by the thread, to pin it; may be NULL */
    void *on_start_arg;
};

/* This rank's share of a step. Memory behind the n samples is zero. */
struct vb_batch {
    int64_t epoch, step;  /* step of the epoch */
    int n;                /* of this rank; may be 0 in the last step of an epoch */
    int n_global;         /* of all ranks: less than global_batch in the last step of an epoch */
    uint32_t *which;      /* (n), the samples' numbers in the set */
    const uint32_t *soon; /* (n_soon), those of the next step as far as they are known already */
    int n_soon;           /* 0 where a thread makes batches: that one has them ready */
    float *x;             /* images: (n, c, h, w); NULL with no_x */
    uint16_t *y;          /* images: (n) */
    struct vb_rows rows;  /* rows */
};

/* An epoch has every sample once: ceil(n / global_batch) steps. */
vb_status vb_loader_open(const struct vb_loader_opts *opts, struct vb_loader **loader_p);
void vb_loader_close(struct vb_loader *loader);          /* NULL is fine */
int64_t vb_loader_steps(const struct vb_loader *loader); /* in an epoch */

/* The next batch will be this one. The batch handed out last is given back. */
vb_status vb_loader_seek(struct vb_loader *loader, int64_t epoch, int64_t step);

/* Hands out the next batch, the loader's until the next call, which takes it back. Epochs follow
 * each other without end. One thread at a time; allocates nothing. */
vb_status vb_loader_next(struct vb_loader *loader, const struct vb_batch **batch_p);

/* Asks memory for row i of the next batch, if it is known, for a caller that computes meanwhile;
 * one after the other, from 0. Does nothing where a thread makes batches. */
void vb_loader_soon(struct vb_loader *loader, int i);

/* The batch after that, if it is ready; NULL: it is not. Without a thread it is made now. Borrowed
 * until the next call of next(). */
const struct vb_batch *vb_loader_peek(struct vb_loader *loader);

#endif
