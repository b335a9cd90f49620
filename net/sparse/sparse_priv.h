/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of the sparse allreduce share.
 *
 * Terms: a list is an array of 64-bit *words*. A word has an index in its upper half and the bits
 * of a value in its lower half, so that the order of words is the order of their indices, and any
 * range of a list is contiguous in memory. Each rank is the *owner* of a range of indices. A *part*
 * is the words of one rank's list that lie in the range of one owner. A *sum* is the result that an
 * owner computes from the parts of all ranks.
 */
#ifndef VB_NET_SPARSE_SPARSE_PRIV_H
#define VB_NET_SPARSE_SPARSE_PRIV_H

#include "base/trace.h"
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
 * These functions read each word once, and stay inside their arrays whatever the words are, because
 * a list may lie in memory that a peer can write.
 */

/* A run of words in ascending order. words is never NULL. */
struct sparse_run {
    const uint64_t *words;
    size_t n;
};

/* Converts a list to words. -0.0 becomes +0.0; sparse_path.c explains why. */
void vb_sparse_pack(const uint32_t *index, const float *value, size_t n, uint64_t *words);

/* Converts words to a list. Each value goes through vb_sparse_round(). */
void vb_sparse_unpack(const uint64_t *words, size_t n, float divisor, uint32_t *index,
                      float *value);

/* Returns sum / divisor. If the result is a NaN, it is always the same NaN. */
float vb_sparse_round(float sum, float divisor);

bool vb_sparse_ascending(const uint32_t *index, size_t n); /* each index is larger than the last */

/* Returns whether the indices of words are ascending and all of them are from first to end - 1. */
bool vb_sparse_words_fit(const uint64_t *words, size_t n, uint64_t first, uint64_t end);

uint32_t vb_sparse_largest(const uint32_t *index, size_t n);

/* Returns the number of words with an index below limit. Uses a binary search. */
size_t vb_sparse_below(const uint64_t *words, size_t n, uint64_t limit);

/* Merges ascending runs into one run, in which words with equal indices are in the order of the
 * runs. The result lies in a or b, which have space for all words, or is the only run. Overwrites
 * the array runs. */
struct sparse_run vb_sparse_merge_runs(struct sparse_run *runs, int n_runs, uint64_t *a,
                                       uint64_t *b);

/* Replaces all words with the same index by one word with their sum, added from left to right. out
 * may be in. Returns the number of words in out. */
size_t vb_sparse_add_up(const uint64_t *in, size_t n, uint64_t *out);

/* Sums runs without duplicates, in the order of the runs. a and b are scratch memory and must be
 * large enough for all words; out may be a. Returns the number of words of the sum. */
size_t vb_sparse_sum_runs(struct sparse_run *runs, int n_runs, uint64_t *a, uint64_t *b,
                          uint64_t *out);

/* ---- index ranges of the owners (sparse_split.c) --------------------------------------------- */

enum sparse_refusal { SPARSE_FINE, SPARSE_TOO_LONG, SPARSE_NOT_ASCENDING, SPARSE_OUT_OF_RANGE };

/* The description of its list that a rank sends to all others. */
struct sparse_head {
    uint32_t seq;
    uint32_t how;      /* enum vb_reduce */
    uint64_t features; /* number of features; all indices are smaller */
    uint64_t n;        /* number of words of the list */
    uint32_t refused;  /* enum sparse_refusal: why the caller's list is invalid; n is then 0 */
    uint32_t n_samples;
    uint32_t along; /* 1: the list is sent with the head, behind the space for samples */
    uint32_t zero;
    uint32_t samples[]; /* every step-th index of the list, from the first on (vb_sparse_step()) */
};

/* Limits for the data that a rank may send. */
struct sparse_limits {
    uint64_t features;
    uint64_t max_nnz;
    uint32_t max_samples;
    uint64_t max_along; /* maximum number of words of a list that is sent with its head */
};

/* Returns the number of words from one sample to the next in a list of n words. */
size_t vb_sparse_step(size_t n, uint32_t max_samples);
uint32_t vb_sparse_n_samples(size_t n, uint32_t max_samples);
size_t vb_sparse_head_bytes(uint32_t n_samples);

/* Fills in n_samples and samples of a head from the words of the list. */
void vb_sparse_sample(const uint64_t *words, uint32_t max_samples, struct sparse_head *head);

/* Returns a text that says what is wrong with a head that a peer sent, or NULL. */
const char *vb_sparse_head_wrong(const struct sparse_head *head,
                                 const struct sparse_limits *limits);

/* Returns the maximum number of words in the places of all parts of a list of max_nnz words. */
size_t vb_sparse_room(size_t max_nnz, uint32_t max_samples, int world);

/* The plan of one call: which owner sums which indices. It is the same on all ranks. */
struct sparse_plan {
    int world;
    uint32_t max_samples;
    uint64_t *splits; /* world + 1 elements: owner o sums indices splits[o] to splits[o + 1] - 1 */
    size_t *low, *high;      /* for each split and rank: bounds of the split's place in the list */
    struct sparse_run *runs; /* one for each rank */
    uint64_t *a, *b;         /* scratch memory for merging samples */
};

vb_status vb_sparse_plan_init(struct sparse_plan *plan, int world, uint32_t max_samples);
void vb_sparse_plan_fini(struct sparse_plan *plan);

/* Makes the plan from the heads of all ranks, which vb_sparse_head_wrong() has accepted. */
void vb_sparse_plan_make(struct sparse_plan *plan, struct sparse_head *const *heads);

/* Returns the maximum number of words of a rank's list that can lie in the owner's range. */
size_t vb_sparse_part_room(const struct sparse_plan *plan, int rank, int owner);

/* Returns the maximum number of words of the owner's sum. */
size_t vb_sparse_sum_room(const struct sparse_plan *plan, int owner);

/* ---- the context ----------------------------------------------------------------------------- */

/* The figures of the cost model. All ranks use the figures that rank 0 has measured. */
struct sparse_model {
    double note_ns;       /* time of a note without data, in one direction */
    double put_ns_byte;   /* cost of a byte in a long put */
    double merge_ns_word; /* cost of each word when two runs are summed */
    double copy_ns_byte;  /* cost of copying a byte that is not in caches */
    uint64_t along; /* maximum number of words of a list that is sent with its head; 0: none is */
};

/* The layout of the window, in bytes. The list is last: only its length may differ between ranks.
 */
struct sparse_layout {
    size_t head_bytes; /* length of the space for one head */
    size_t slot_bytes; /* length of the space for a head and the list that is sent with it */
    size_t heads; /* 2 slots of this rank, then 2 sets with one slot for each rank; used in turn */
    size_t parts; /* the parts that the ranks send to this rank, in rank order */
    size_t sums;  /* the sums of all owners, in the order of ranks */
    size_t list;
    size_t len_bytes;
};

/* The last part or sum that has come. */
struct sparse_incoming {
    uint32_t seq; /* call number of the last complete one */
    size_t words; /* number of words that have come */
    bool open;    /* it has begun to come, but more segments follow */
};

/* The state of one peer. The handler of notes writes these fields under the group's lock. */
struct sparse_peer {
    int rank;           /* its rank in the group */
    const char *mapped; /* the window of the peer; NULL: not mapped, so the peer puts data here */
    uint64_t max_nnz;
    uint32_t heads; /* number of heads that have come */
    uint32_t begun; /* sequence number of the last head that was announced or has come */
    struct sparse_incoming part, sum;
    uint32_t probes;
    struct vb_op begun_op, head_op, part_op, sum_op;
};

struct vb_sparse {
    struct vb_group *group;
    int rank, world; /* the place of this rank in the view of the group; number of places */
    int n_peers;     /* number of ranks at the start */
    int channel;     /* 0: no channel is open */
    struct group_follower follower;
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
    uint64_t *a, *b;            /* scratch memory for merging */
    struct sparse_run *runs;    /* one for each rank */
    uint32_t *index;            /* the result */
    float *value;
    size_t room; /* maximum number of elements of the result */

    uint32_t seq, first_seq; /* the number of the last call; of the last call before this view */
    vb_status started;       /* status of vb_sparse_start(), whose arguments follow */
    size_t asked;
    enum vb_reduce how;
    uint64_t begin_ns; /* of the sum that is under way, for the trace; 0: nothing is measured */
    char what[40];     /* "sparse allreduce 7" */
    vb_status failed;
    enum vb_sparse_path took;
    uint64_t wire_bytes;
    struct vb_coll *dense; /* for the dense path */
    bool dense_torn;       /* its data has numbers of a call that has not ended */
};

static inline int group_rank(const struct vb_sparse *s, int rank)
{
    return s->peers[rank].rank;
}

static inline const char *host_of(const struct vb_sparse *s, int rank)
{
    return vb_group_host(s->group, group_rank(s, rank));
}

static inline uint64_t *sparse_list(const struct vb_sparse *s)
{
    return (uint64_t *)(s->base + s->at.list);
}

/* ---- moving lists (sparse_send.c) ------------------------------------------------------------ */

enum sparse_kind { SPARSE_HEAD, SPARSE_PART, SPARSE_SUM, SPARSE_PROBE };

void vb_sparse_note_came(void *arg, int rank, uint32_t value); /* arg is the context */

/* Puts to a peer. Waits until the put is taken. */
vb_status vb_sparse_put(struct vb_sparse *s, int rank, size_t src, size_t dst, size_t len_bytes,
                        uint32_t value, struct vb_op *op);
vb_status vb_sparse_put_probe(struct vb_sparse *s, int rank, size_t len_bytes);
vb_status vb_sparse_wait_probe(struct vb_sparse *s, int rank, uint32_t n);

vb_status vb_sparse_send_heads(struct vb_sparse *s, size_t len_bytes);
vb_status vb_sparse_send_parts(struct vb_sparse *s);
vb_status vb_sparse_send_sums(struct vb_sparse *s, size_t n);

vb_status vb_sparse_wait_heads(struct vb_sparse *s);
/* Waits until a part or sum of a rank has come: in is a field of the rank's struct sparse_peer. */
vb_status vb_sparse_wait_list(struct vb_sparse *s, int rank, const struct sparse_incoming *in);
vb_status vb_sparse_wait_sent(struct vb_sparse *s); /* until all puts are done */
bool vb_sparse_is_sent(const struct sparse_peer *peer);

/* Return the offset of this rank's own head, or of the head of another rank, in this call. */
size_t vb_sparse_own_head_at(const struct vb_sparse *s);
size_t vb_sparse_head_at(const struct vb_sparse *s, int rank);

/* Return the offset of an owner's sum in all windows, and of a rank's part in the window of the
 * owner. */
size_t vb_sparse_sum_at(const struct vb_sparse *s, int owner);
size_t vb_sparse_part_at(const struct vb_sparse *s, int rank, int owner);

/* Returns the part of a list that lies in an owner's range. */
struct sparse_run vb_sparse_part_of(const struct vb_sparse *s, const uint64_t *list, size_t n,
                                    int owner);

/* Records a failure after which the context can only be closed. Returns st. */
vb_status vb_sparse_fail(struct vb_sparse *s, vb_status st);

/* Logs that a peer violated the protocol, aborts the group, and returns the failure. */
vb_status vb_sparse_broken(struct vb_sparse *s, int rank, const char *why);

/* ---- when members change (sparse_regroup.c) -------------------------------------------------- */

void vb_sparse_follow(struct vb_sparse *s);

/* Fails if a member is gone. */
vb_status vb_sparse_check_members(struct vb_sparse *s);

/* ---- short lists (sparse_allreduce.c) -------------------------------------------------------- */

/* Copies the list behind its head. Returns the length of head and list together. */
size_t vb_sparse_take_along(const struct vb_sparse *s, struct sparse_head *head);

/* Returns whether the lists of all ranks came with their heads. */
bool vb_sparse_all_along(const struct vb_sparse *s);

/* ---- the choice of the path (sparse_path.c) -------------------------------------------------- */

#define SPARSE_PROBE_BYTES ((size_t)256 * 1024) /* minimum space for parts and for sums */

vb_status vb_sparse_measure(struct vb_sparse *s); /* all ranks call this */
double vb_sparse_predict_ns(const struct vb_sparse *s, enum vb_sparse_path path);
enum vb_sparse_path vb_sparse_choose(const struct vb_sparse *s);

/* Opens the dense allreduce if the context may need it later, when ranks may be gone. */
vb_status vb_sparse_open_dense(struct vb_sparse *s);

/* Makes the data of the dense allreduce empty again after a call that has not ended. */
void vb_sparse_mend_dense(struct vb_sparse *s);

/* Sums the lists of all ranks with a dense allreduce, as vectors that have all features. */
vb_status vb_sparse_dense_sum(struct vb_sparse *s, float divisor, size_t *n_p);

#endif
