/* SPDX-License-Identifier: MIT
 *
 * What the files of the sparse allreduce share. sparse_allreduce.c has the call, sparse_open.c
 * opens a context, sparse_merge.c the loops over lists, sparse_split.c decides which rank sums
 * what, sparse_send.c moves lists between ranks, sparse_path.c has the cost model and the dense
 * path, sparse_along.c the shorter way for short lists.
 *
 * Words: a list is an array of *words*. A word has an index in its upper half and the bits of a
 * value in its lower half, so that words compare like their indices and any piece of a list is one
 * piece of memory. The *part* of a list is what lies in the index range of one *owner*, which is a
 * rank. The *sum* is what an owner computes from the parts of all ranks.
 */
#ifndef VB_NET_SPARSE_SPARSE_PRIV_H
#define VB_NET_SPARSE_SPARSE_PRIV_H

#include "net/group/group_inside.h"

#include <string.h>

static inline uint64_t word_of(uint32_t index, uint32_t bits)
{
    return (uint64_t)index << 32 | bits;
}

static inline uint32_t word_index(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

/* ---- loops over lists (sparse_merge.c) --------------------------------------------------------
 *
 * They read each word once and stay inside their arrays whatever the words are: a list may lie in
 * memory that a peer can write.
 */

/* A run of words in ascending order. words is never NULL. */
struct sparse_run {
    const uint64_t *words;
    size_t n;
};

/* Converts a list to words. -0.0 becomes +0.0: see sparse_path.c. */
void vb_sparse_pack(const uint32_t *index, const float *value, size_t n, uint64_t *words);

/* Converts words to a list. Each value goes through vb_sparse_round(). */
void vb_sparse_unpack(const uint64_t *words, size_t n, float divisor, uint32_t *index,
                      float *value);

/* Returns a sum as the caller gets it: divided once, and every NaN the same one. */
float vb_sparse_round(float sum, float divisor);

/* Whether every index is larger than the one before it. */
bool vb_sparse_ascending(const uint32_t *index, size_t n);

/* Whether the indices of words are ascending and all from first to end - 1. */
bool vb_sparse_words_fit(const uint64_t *words, size_t n, uint64_t first, uint64_t end);

uint32_t vb_sparse_largest(const uint32_t *index, size_t n);

/* The number of words with an index below limit, by binary search. */
size_t vb_sparse_below(const uint64_t *words, size_t n, uint64_t limit);

/* Merges ascending runs into one in which equal indices stand in the order of the runs. The result
 * lies in a or b, which have room for all words, or is the only run itself. Overwrites runs. */
struct sparse_run vb_sparse_merge_runs(struct sparse_run *runs, int n_runs, uint64_t *a,
                                       uint64_t *b);

/* Adds up the words of each index, from left to right. out may be in. Returns how many are left. */
size_t vb_sparse_add_up(const uint64_t *in, size_t n, uint64_t *out);

/* Sums runs without duplicates, in the order of the runs. a and b are scratch, as above; out may be
 * a. Returns the number of words of the sum. */
size_t vb_sparse_sum_runs(struct sparse_run *runs, int n_runs, uint64_t *a, uint64_t *b,
                          uint64_t *out);

/* ---- who sums what (sparse_split.c) ---------------------------------------------------------- */

enum sparse_refusal { SPARSE_FINE, SPARSE_TOO_LONG, SPARSE_NOT_ASCENDING, SPARSE_OUT_OF_RANGE };

/* What a rank tells all others about its list. */
struct sparse_head {
    uint32_t seq;
    uint32_t how;      /* enum vb_reduce */
    uint64_t features; /* indices are below this */
    uint64_t n;        /* number of words of the list */
    uint32_t refused;  /* enum sparse_refusal: if the caller's list was invalid, n is 0 */
    uint32_t n_samples;
    uint32_t along; /* 1: the list came with the head, behind the room for samples */
    uint32_t zero;
    uint32_t samples[]; /* every step-th index of the list, beginning with the first */
};

/* Limits for what a rank may send; the same on all ranks. */
struct sparse_limits {
    uint64_t features;
    uint64_t max_nnz;
    uint32_t max_samples;
    uint64_t max_along; /* words of a list that travels with its head */
};

/* Distance between two samples of a list of n words. */
size_t vb_sparse_step(size_t n, uint32_t max_samples);
uint32_t vb_sparse_n_samples(size_t n, uint32_t max_samples);
size_t vb_sparse_head_bytes(uint32_t n_samples);

/* Fills n_samples and samples of a head from its list. */
void vb_sparse_sample(const uint64_t *words, uint32_t max_samples, struct sparse_head *head);

/* Returns what is wrong with a head that a peer sent, or NULL. */
const char *vb_sparse_head_wrong(const struct sparse_head *head,
                                 const struct sparse_limits *limits);

/* Number of words that the parts of a list of at most max_nnz may take, for all owners together. */
size_t vb_sparse_room(size_t max_nnz, uint32_t max_samples, int world);

/* Computed from the heads of all ranks, and therefore the same on all. */
struct sparse_plan {
    int world;
    uint32_t max_samples;
    uint64_t *splits;   /* world + 1: owner o sums indices splits[o] to splits[o + 1] - 1 */
    size_t *low, *high; /* world + 1 rows: bounds for the place of the split in each rank's list */
    struct sparse_run *runs; /* world */
    uint64_t *a, *b;         /* world * max_samples words each */
};

vb_status vb_sparse_plan_init(struct sparse_plan *plan, int world, uint32_t max_samples);
void vb_sparse_plan_fini(struct sparse_plan *plan);

/* heads: of all ranks; vb_sparse_head_wrong() has accepted them. */
void vb_sparse_plan_make(struct sparse_plan *plan, struct sparse_head *const *heads);

/* The maximum number of words of rank's list in the owner's range. */
size_t vb_sparse_part_room(const struct sparse_plan *plan, int rank, int owner);

/* The maximum number of words of the owner's sum. */
size_t vb_sparse_sum_room(const struct sparse_plan *plan, int owner);

/* ---- the context ----------------------------------------------------------------------------- */

/* The figures of the cost model. All ranks use those of rank 0. */
struct sparse_model {
    double note_ns;       /* time of a bare note in one direction */
    double put_ns_byte;   /* cost of a byte in a long put */
    double merge_ns_word; /* cost of merging and adding up a word of two runs */
    double copy_ns_byte;  /* cost of copying a byte that is not in caches */
    uint64_t along;       /* lists up to this number of words travel with their heads; 0: none */
};

/* Offsets in the window, in bytes. Only the length of the list may differ between ranks, so it is
 * last. */
struct sparse_layout {
    size_t head_bytes; /* room for one head */
    size_t slot_bytes; /* room for a head and the list that travels with it */
    size_t heads;      /* 2 of this rank, then 2 sets with one for each rank, used in turn */
    size_t parts;      /* the parts for this owner, in rank order */
    size_t sums;       /* the sums of all owners, in order; this rank's own sum included */
    size_t list;
    size_t len_bytes;
};

/* What has come from one peer. The handler of notes writes it under the group's lock. */
struct sparse_peer {
    const char *mapped; /* its window; NULL: it puts its data into our window */
    uint64_t max_nnz;
    uint32_t heads;               /* number of heads */
    uint32_t begun;               /* number of the last head that was announced or has come */
    uint32_t part_seq, sum_seq;   /* the head that the last complete part or sum belongs to */
    size_t part_words, sum_words; /* words of the last part or sum, so far */
    bool in_part, in_sum;         /* a segment has come and more follow */
    uint32_t probes;
    struct vb_op begun_op, head_op, part_op, sum_op;
};

struct vb_sparse {
    struct vb_group *group;
    int rank, world;
    int channel; /* 0: not open */
    struct vb_sparse_opts opts;
    struct vb_window *win;
    char *base; /* this rank's part of the window */
    struct sparse_layout at;
    struct sparse_limits limits;
    struct sparse_peer *peers;
    struct sparse_plan plan;
    struct sparse_model model;

    struct vb_mem heads_mem, scratch_mem, result_mem;
    struct sparse_head **heads; /* checked copies of the heads of all ranks */
    uint64_t *a, *b;            /* scratch for merging */
    struct sparse_run *runs;    /* one for each rank */
    uint32_t *index;            /* the result */
    float *value;
    size_t room; /* maximum number of elements of the result */

    uint32_t seq;
    vb_status started; /* status of vb_sparse_start(); then its arguments */
    size_t asked;
    enum vb_reduce how;
    char what[40]; /* "sparse allreduce 7" */
    vb_status failed;
    enum vb_sparse_path took;
    uint64_t wire_bytes;
    struct vb_coll *dense; /* opened when it is first needed */
};

/* This rank's list, as words. */
static inline uint64_t *sparse_list(const struct vb_sparse *s)
{
    return (uint64_t *)(s->base + s->at.list);
}

/* ---- moving lists (sparse_send.c) ------------------------------------------------------------ */

enum sparse_kind { SPARSE_HEAD, SPARSE_PART, SPARSE_SUM, SPARSE_PROBE };

/* The handler of notes; arg is the context. */
void vb_sparse_note_came(void *arg, int rank, uint32_t value);

/* Puts to a peer, and waits for room. */
vb_status vb_sparse_put(struct vb_sparse *s, int rank, size_t src, size_t dst, size_t len_bytes,
                        uint32_t value, struct vb_op *op);
vb_status vb_sparse_put_probe(struct vb_sparse *s, int rank, size_t len_bytes);
vb_status vb_sparse_wait_probe(struct vb_sparse *s, int rank, uint32_t n);

vb_status vb_sparse_send_heads(struct vb_sparse *s, size_t len_bytes);
vb_status vb_sparse_send_parts(struct vb_sparse *s);
vb_status vb_sparse_send_sums(struct vb_sparse *s, size_t n);

vb_status vb_sparse_wait_heads(struct vb_sparse *s);
vb_status vb_sparse_wait_part(struct vb_sparse *s, int rank);
vb_status vb_sparse_wait_sum(struct vb_sparse *s, int rank);
vb_status vb_sparse_wait_sent(struct vb_sparse *s); /* until all sources may be overwritten */
bool vb_sparse_is_sent(const struct sparse_peer *peer);

/* Where heads lie in the window, by sequence number. */
size_t vb_sparse_own_head_at(const struct vb_sparse *s);
size_t vb_sparse_head_at(const struct vb_sparse *s, int rank);

/* Where an owner's sum, and a rank's part for an owner, lie in any window. */
size_t vb_sparse_sum_at(const struct vb_sparse *s, int owner);
size_t vb_sparse_part_at(const struct vb_sparse *s, int rank, int owner);

/* The part of a list that lies in an owner's range. */
struct sparse_run vb_sparse_part_of(const struct vb_sparse *s, const uint64_t *list, size_t n,
                                    int owner);

/* Records a failure after which the context can only be closed. Returns st. */
vb_status vb_sparse_fail(struct vb_sparse *s, vb_status st);

/* Logs that a peer broke the protocol, and aborts the group. */
vb_status vb_sparse_broken(struct vb_sparse *s, int rank, const char *why);

/* ---- short lists (sparse_along.c) ------------------------------------------------------------ */

size_t vb_sparse_along_room(
    const struct vb_sparse *s); /* number of words; max_nnz of all ranks must be known */
size_t vb_sparse_take_along(const struct vb_sparse *s, struct sparse_head *head);

/* Whether the lists of all ranks came with their heads; and their sum, as the caller gets it. */
bool vb_sparse_all_along(const struct vb_sparse *s);
vb_status vb_sparse_sum_lists(struct vb_sparse *s, float divisor, size_t *n_p);

/* ---- which way (sparse_path.c) --------------------------------------------------------------- */

#define SPARSE_PROBE_BYTES ((size_t)256 * 1024) /* parts and sums have at least this room */

vb_status vb_sparse_measure(struct vb_sparse *s); /* collective */
double vb_sparse_predict_ns(const struct vb_sparse *s, enum vb_sparse_path path);
enum vb_sparse_path vb_sparse_choose(const struct vb_sparse *s);

/* Sums the lists of all ranks as vectors of all features. */
vb_status vb_sparse_dense_sum(struct vb_sparse *s, float divisor, size_t *n_p);
void vb_sparse_dense_close(struct vb_sparse *s);

#endif
