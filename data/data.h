/* SPDX-License-Identifier: MIT
 *
 * data/ has readers, generators, shuffling, sharding, and a loader that prepares batches. Every
 * random choice depends only on a seed and on the number of a sample, a pixel or an epoch, so it
 * is the same on every rank, thread and machine.
 */
#ifndef VB_DATA_DATA_H
#define VB_DATA_DATA_H

#include "base/base.h"

#include <limits.h>

/* ---- data sets ------------------------------------------------------------------------------- */

enum vb_data_kind {
    VB_DATA_IMAGES, /* images of 8-bit pixels, stored unchanged; each image has a class */
    VB_DATA_ROWS,   /* sparse rows; each row has a label, 0 or 1 */
};

struct vb_store; /* holds the samples in memory or in a mapped file, or generates them */

/* A set of samples. Several threads may read a set at the same time. */
struct vb_dataset {
    enum vb_data_kind kind;
    int n;
    int features;      /* images: c * h * w; rows: every index is below this number */
    int classes;       /* the number of classes; 2 for rows */
    int c, h, w;       /* channels, height and width; images only */
    int row_max;       /* rows: the largest number of nonzeros in a row */
    float mean, scale; /* a pixel p becomes (p - mean) * scale; the defaults are 0 and 1/255 */
    struct vb_store *store;
    uint32_t *which; /* the numbers of the samples in the store; NULL: the whole store */
    bool borrowed;   /* `which` is not freed with the set */
};

/* Sparse rows in the caller's memory. Row i has the entries at[i] to at[i + 1] - 1, ascending. */
struct vb_rows {
    int n;
    int64_t *at;     /* n + 1 elements */
    uint32_t *index; /* at[n] elements */
    float *value;    /* at[n] elements */
    uint8_t *y;      /* n labels, 0 or 1 */
    int64_t room;    /* the number of entries for which index and value have space */
};

/* Does nothing if *set is all zero or already destroyed. */
void vb_dataset_destroy(struct vb_dataset *set);

/* Returns a digest of the contents: all samples with their labels and their order. For a mapped
 * .csr file it covers the header and the table with the checksums of all blocks; for data that is
 * generated on demand, the numbers that it is generated from. */
uint64_t vb_dataset_digest(const struct vb_dataset *set);

/* Copies n images as floats: x is (n, c, h, w) or NULL, y receives the n classes. */
void vb_dataset_pick(const struct vb_dataset *set, const uint32_t *which, int n, float *x,
                     uint16_t *y);

/* Copies the stored pixels, (c, h, w), of image i. Returns its class. */
int vb_dataset_image(const struct vb_dataset *set, int i, uint8_t *pixels);

/* Copies n rows; n * row_max entries are always enough. Fails if the file is broken. */
vb_status vb_dataset_rows(const struct vb_dataset *set, const uint32_t *which, int n,
                          struct vb_rows *rows);

/* Splits a set at random into a training set and a test set. The choice depends only on the
 * seed. The caller still owns the original set and may destroy it before the two parts. */
vb_status vb_dataset_split(const struct vb_dataset *set, double test_share, uint64_t seed,
                           struct vb_dataset *train_p, struct vb_dataset *test_p);

/* ---- specifications -------------------------------------------------------------------------- */

#define VB_DATA_SYNTH_DEFAULT 20000
#define VB_DATA_SYNTH_MAX 1000000
#define VB_DATA_ROWS_MAX 1000000000 /* maximum number of synthetic rows, which are not stored */

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
    const char *path; /* points into the parsed text, which the caller keeps */
    int features;     /* rows: the number of features; 0: not given */
    int n_train;      /* number of training samples; synthetic data only */
    int n_test;
    enum vb_synth_kind synth;
    bool kind_given, n_given, test_given;
};

/* Parses mnist:DIR, cifar10:DIR, tfrecord:GLOB, libsvm:FILE, criteo:FILE, csr:FILE, synth, synth:N
 * or synth:KEY=VALUE,... with the keys kind (digits, cifar, imagenet, criteo), n, test and
 * features. On VB_ERR_USAGE, why has a message of one line, which is not logged. */
vb_status vb_data_spec_parse(const char *text, struct vb_data_spec *spec_p, char why[VB_OPTS_WHY]);

/* Sets the kind of synthetic data that the model needs, if the user did not give a kind. */
void vb_data_spec_prefer(struct vb_data_spec *spec, enum vb_synth_kind kind);

const char *vb_data_format_str(enum vb_data_format format);

/* The two parts of divided data. No sample is in both. */
enum vb_synth_part { VB_SYNTH_TRAIN, VB_SYNTH_TEST };

/* Opens one part of the data, or the whole data if it has no parts (see docs/data.md). */
vb_status vb_data_open(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                       struct vb_dataset *set_p);

/* Returns true if the data has a test part of its own. */
bool vb_data_has_test(const struct vb_data_spec *spec);

#define VB_DATA_TEST_SHARE 0.2 /* a usual share of data that has no test part */

struct vb_data_ask {
    struct vb_data_spec data;
    const struct vb_data_spec *test; /* the test data; NULL: the test part or a share of `data` */
    /* The share of `data` for testing. 0: use the test part; if there is none, the training samples
     * are the test samples, too. */
    double test_share;
    bool no_test; /* without a test part, one test sample is enough: nobody evaluates */
    uint64_t seed;
};

/* Opens training and test data. Fails if their samples differ in kind or image size. */
vb_status vb_data_open_both(const struct vb_data_ask *ask, struct vb_dataset *train_p,
                            struct vb_dataset *test_p);

/* ---- one copy for several processes ---------------------------------------------------------- */

/* Returns true if the data is kept in memory, so that processes of one host can share one copy. The
 * key is then the same in all processes that would read the same files with the same options, and
 * so would get the same data. */
bool vb_data_key(const struct vb_data_ask *ask, uint64_t *key_p);

/* Moves both sets into one piece of sealable memory, which the caller seals and unmaps. */
vb_status vb_data_pack(struct vb_dataset *train, struct vb_dataset *test, struct vb_mem *mem_p);

/* Makes the two sets from packed memory, which outlives them. Fails if the memory is not a packed
 * pair of sets. */
vb_status vb_data_unpack(const void *packed, size_t len_bytes, struct vb_dataset *train_p,
                         struct vb_dataset *test_p);

/* ---- synthetic data -------------------------------------------------------------------------- */

#define VB_SYNTH_SIDE 28
#define VB_SYNTH_FEATURES (VB_SYNTH_SIDE * VB_SYNTH_SIDE)
#define VB_SYNTH_CLASSES 10
#define VB_SYNTH_ROW_FEATURES 33762578
#define VB_SYNTH_ROW_FEATURES_MIN 1000

/* For all generators below, sample i of a part is the same for every n. */

/* Draws n digits of 28 x 28 pixels, about as hard as MNIST for a linear model. */
vb_status vb_synth_create(uint64_t seed, enum vb_synth_part part, int n, struct vb_dataset *set_p);

/* Provides n images of 3 x side x side pixels. Each image is generated when it is read. CIFAR
 * has side 32 and 10 classes, ImageNet side 224 and 1000 classes. */
vb_status vb_synth_images(uint64_t seed, enum vb_synth_part part, int n, int side, int classes,
                          struct vb_dataset *set_p);

/* Provides n rows like Criteo's. Each row is generated when it is read. */
vb_status vb_synth_rows(uint64_t seed, enum vb_synth_part part, int n, int features,
                        struct vb_dataset *set_p);

/* Computes which share of the first n labels the hidden model of vb_synth_rows() predicts, the
 * best that a trained model can do. Returns false if vb_synth_rows() did not make the set. */
bool vb_synth_planted(const struct vb_dataset *set, int n, double *accuracy_p);

/* ---- files of rows --------------------------------------------------------------------------- */

/* A function that is called from time to time to report progress. done is from 0 to 1. */
typedef void (*vb_data_progress_fn)(void *arg, double done, int64_t rows);

struct vb_data_written {
    int64_t rows, nonzeros, positive;
    int features;
};

/* Writes rows to a .csr file. On failure an existing file is unchanged. progress may be NULL. */
vb_status vb_data_convert(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                          const char *path, vb_data_progress_fn progress, void *arg,
                          struct vb_data_written *written_p);

/* Writes images and their classes as two IDX files. */
vb_status vb_idx_write(const struct vb_dataset *set, const char *images, const char *labels);

/* ---- published files ------------------------------------------------------------------------- */

/* A file as its authors publish it. Size and digest are those of the uncompressed file. */
struct vb_published {
    enum vb_data_format format;
    enum vb_synth_part part; /* of data that is a folder */
    const char *name;        /* without .gz */
    uint64_t bytes;
    const char *sha256; /* 64 hexadecimal digits; NULL: the digest is not known */
};

#define VB_PUBLISHED_MAX 5 /* maximum number of files of one part */

/* A file of the user that has the name of a published file. */
struct vb_published_file {
    const struct vb_published *as;
    char path[PATH_MAX];
};

/* Finds the files of a part that have the names of published files. Returns how many there are. */
int vb_data_published(const struct vb_data_spec *spec, enum vb_synth_part part,
                      struct vb_published_file found[VB_PUBLISHED_MAX]);

/* Passes the uncompressed bytes of a file on, in pieces, and stops after the first piece that goes
 * beyond `most` bytes. *bytes_p: how many bytes were passed on. */
typedef void (*vb_data_bytes_fn)(void *arg, const void *bytes, size_t len_bytes);
vb_status vb_data_bytes(const char *path, uint64_t most, vb_data_bytes_fn fn, void *arg,
                        uint64_t *bytes_p);

/* ---- facts ----------------------------------------------------------------------------------- */

struct vb_data_facts {
    int64_t nonzeros; /* the number of values or pixels that are not 0 */
    int row_min, row_max;
    double least, most; /* the smallest and the largest value or pixel */
    int64_t *count;     /* the number of samples in each class */
};

/* Collects facts by reading every sample. vb_data_facts_fini() releases them. */
vb_status vb_data_look(const struct vb_dataset *set, struct vb_data_facts *facts_p);
void vb_data_facts_fini(struct vb_data_facts *facts);

/* ---- order ----------------------------------------------------------------------------------- */

/* Fills order with the order of n samples in an epoch, a permutation of 0 ... n-1. */
void vb_order_fill(uint64_t seed, int64_t epoch, int n, uint32_t *order);

/* A rank's share of n items. Shares of successive ranks are adjacent and differ by at most 1. */
void vb_share(int n, int rank, int world, int *first_p, int *n_p);

/* ---- loading --------------------------------------------------------------------------------- */

struct vb_loader;

struct vb_loader_opts {
    const struct vb_dataset *set; /* borrowed until the loader is closed */
    uint64_t seed;
    int global_batch; /* number of samples of all ranks in one step */
    int rank, world;
    int batch_max;  /* a larger share becomes several batches; 0: a share is one batch */
    int ahead;      /* number of batches that a thread prepares, at most 8; 0: no thread */
    int window;     /* number of samples shuffled together; 0: all, or fewer of a large file */
    bool in_order;  /* samples are not shuffled; used for evaluation */
    bool no_x;      /* images: batches contain only the numbers and classes of the images */
    int timeout_ms; /* maximum time to wait for a batch; 0: one minute */
    void (*on_start)(void *arg); /* the thread calls this first, to pin itself; may be NULL */
    void *on_start_arg;
};

/* The samples of this rank in one step, or a piece of them. After the first n, images are zero and
 * rows empty. */
struct vb_batch {
    int64_t epoch, step;  /* step is the number of the step within the epoch */
    int n;                /* number of samples in this batch */
    int n_share;          /* number of samples of this rank in the step, in all pieces; may be 0 in
                             the last step of an epoch */
    int n_global;         /* number of samples of all ranks; an epoch's last step may have fewer */
    int position;         /* place of the first sample in the order of the epoch */
    int first;            /* place of the first sample among the n_global samples of the step */
    bool more;            /* another piece of this step follows */
    uint32_t *which;      /* the numbers that the n samples have in the set */
    const uint32_t *soon; /* the numbers of the n_soon samples of the next batch; NULL: not known */
    int n_soon;           /* 0 if soon is NULL; always 0 if a thread prepares the batches */
    float *x;             /* images: the pixels, (n, c, h, w); NULL with no_x */
    uint16_t *y;          /* images: the n classes */
    struct vb_rows rows;  /* used only if the samples are rows */
};

/* Opens a loader. An epoch contains every sample once and has ceil(n / global_batch) steps. */
vb_status vb_loader_open(const struct vb_loader_opts *opts, struct vb_loader **loader_p);
void vb_loader_close(struct vb_loader *loader);          /* loader may be NULL */
int64_t vb_loader_steps(const struct vb_loader *loader); /* in an epoch */

/* Selects the step whose batch vb_loader_next() returns next. The current batch becomes invalid. */
vb_status vb_loader_seek(struct vb_loader *loader, int64_t epoch, int64_t step);

/* Does the same, and from this step on takes the share of another rank, or of another number of
 * ranks, of the same global batch. Allocates nothing. If the share no longer fits into a batch, it
 * becomes several. */
vb_status vb_loader_reshare(struct vb_loader *loader, int rank, int world, int64_t epoch,
                            int64_t step);

/* Returns the next batch, valid until the next call, without allocating memory. After the last
 * step of an epoch comes the next epoch. For one thread at a time. */
vb_status vb_loader_next(struct vb_loader *loader, const struct vb_batch **batch_p);

/* Prefetches rows of the next batch after row i, if they are known. A caller calls this while it
 * computes, row after row from row 0. Does nothing if a thread prepares the batches. */
void vb_loader_soon(struct vb_loader *loader, int i);

/* Returns the batch after the current one, or NULL if that batch is not ready. Without a thread,
 * this function makes the batch. The batch is borrowed until the next call of vb_loader_next(). */
const struct vb_batch *vb_loader_peek(struct vb_loader *loader);

/* Returns the version of the library that reads compressed files (gzip.c). */
const char *vb_gzip_version(void);

#endif
