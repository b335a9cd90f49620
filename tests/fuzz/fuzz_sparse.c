/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the head of a peer's sparse list, and the part of the list that the peer may put into our
 * window. If a head is accepted, there must be enough memory for every list that matches the head.
 * The loops over a list must stay inside their arrays, whatever the list contains.
 *
 * Covers: net/sparse/sparse_merge.c net/sparse/sparse_split.c
 */
#include "net/sparse/sparse_priv.h"
#include "tests/fuzz/fuzz.h"

#define WORLD 3
#define SAMPLES 16u
#define MAX_NNZ 300u
#define MAX_ALONG 100u
#define FEATURES 4096u

struct input {
    const uint8_t *data;
    size_t left;
};

static uint32_t take(struct input *in, size_t len)
{
    uint32_t value = 0;

    if (in->left < len) {
        in->left = 0;
        return 0;
    }
    memcpy(&value, in->data, len);
    in->data += len;
    in->left -= len;
    return value;
}

static void read_head(struct input *in, struct sparse_head *head)
{
    uint32_t i, index = 0, how;

    memset(head, 0, vb_sparse_head_bytes(SAMPLES));
    head->features = FEATURES;
    head->n = take(in, 2) % (MAX_NNZ + 20);
    head->n_samples = vb_sparse_n_samples(head->n, SAMPLES);
    if (take(in, 1) == 0)
        head->n_samples = take(in, 4);
    how = take(in, 1);
    head->refused = how % 16 == 0 ? take(in, 4) : 0;
    head->along = how / 16 % 3;
    for (i = 0; i < head->n_samples && i < SAMPLES; i++) /* most indices are ascending */
        head->samples[i] = take(in, 1) == 0 ? take(in, 4) : (index += 1 + take(in, 2) % 500);
}

/* Checks that the splits are ascending and that all areas fit into the reserved memory. */
static void check_plan(const struct sparse_plan *plan)
{
    size_t sums = 0, rooms;
    int o, r;

    for (r = 0; r < WORLD; r++) {
        for (rooms = 0, o = 0; o < WORLD; o++)
            rooms += vb_sparse_part_room(plan, r, o);
        if (rooms > vb_sparse_room(MAX_NNZ, SAMPLES, WORLD))
            abort();
    }
    for (o = 0; o < WORLD; o++) {
        if (plan->splits[o] > plan->splits[o + 1])
            abort();
        sums += vb_sparse_sum_room(plan, o);
    }
    if (plan->splits[WORLD] != FEATURES || sums > WORLD * vb_sparse_room(MAX_NNZ, SAMPLES, WORLD))
        abort();
}

static void plan_from(struct input *in)
{
    struct sparse_limits limits = {
        .features = FEATURES, .max_nnz = MAX_NNZ, .max_samples = SAMPLES, .max_along = MAX_ALONG};
    struct sparse_head *heads[WORLD];
    struct sparse_plan plan;
    bool fine = true;
    int r;

    for (r = 0; r < WORLD; r++) {
        heads[r] = malloc(vb_sparse_head_bytes(SAMPLES));
        if (heads[r] == NULL)
            abort();
        read_head(in, heads[r]);
        fine = fine && vb_sparse_head_wrong(heads[r], &limits) == NULL;
        if (fine && (heads[r]->along > 1 || (heads[r]->along == 1 && heads[r]->n > MAX_ALONG)))
            abort();
    }
    if (fine && vb_sparse_plan_init(&plan, WORLD, SAMPLES) == VB_OK) {
        vb_sparse_plan_make(&plan, heads);
        check_plan(&plan);
        vb_sparse_plan_fini(&plan);
    }
    for (r = 0; r < WORLD; r++)
        free(heads[r]);
}

static uint64_t *array(size_t n)
{
    uint64_t *words = malloc((n > 0 ? n : 1) * sizeof(*words));

    if (words == NULL)
        abort();
    return words;
}

static void merge_from(struct input *in)
{
    size_t each = in->left / 4 / WORLD, total = each * WORLD, i, n;
    uint64_t *words = array(total), *a = array(total), *b = array(total), *sum = array(total);
    struct sparse_run runs[WORLD], all;
    bool fine = true;
    int r;

    for (i = 0; i < total; i++) { /* most indices are ascending */
        uint32_t before = i % each == 0 ? 0 : word_index(words[i - 1]), gap = take(in, 1);

        words[i] = word_of(before + gap - 1, take(in, 3));
    }
    for (r = 0; r < WORLD; r++) {
        runs[r] = (struct sparse_run){words + (size_t)r * each, each};
        fine = fine && vb_sparse_words_fit(runs[r].words, each, 0, FEATURES);
        if (vb_sparse_below(runs[r].words, each, FEATURES / 2) > each)
            abort();
    }
    n = vb_sparse_sum_runs(runs, WORLD, a, b, sum);
    if (n > total || (fine && !vb_sparse_words_fit(sum, n, 0, FEATURES)))
        abort();
    all = vb_sparse_merge_runs(runs, WORLD, a, b);
    n = vb_sparse_add_up(all.words, all.n, sum);
    if (all.n != total || n > total || (fine && !vb_sparse_words_fit(sum, n, 0, FEATURES)))
        abort();
    free(words);
    free(a);
    free(b);
    free(sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};

    if (size > 20000)
        return 0;
    plan_from(&in);
    merge_from(&in);
    return 0;
}
