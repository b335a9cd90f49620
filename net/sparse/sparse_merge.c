/* SPDX-License-Identifier: MIT
 *
 * The loops over lists: packing, merging, adding up (docs/collectives.md).
 *
 * The indices of different ranks interleave at random, so a branch on "whose index is smaller"
 * would be mispredicted half of the time. These loops select by arithmetic instead. The merge runs
 * from both ends at once, because two chains of dependent loads hide each other's latency.
 */
#include "net/sparse/sparse_priv.h"

#define MINUS_ZERO 0x80000000u
#define INFINITE 0x7f800000u
#define NAN_BITS 0x7fc00000u

/* ---- lists and words ------------------------------------------------------------------------- */

void vb_sparse_pack(const uint32_t *index, const float *value, size_t n, uint64_t *words)
{
    size_t i;

    for (i = 0; i < n; i++) {
        uint32_t bits = vb_float_bits(value[i]);

        words[i] = word_of(index[i], bits == MINUS_ZERO ? 0 : bits);
    }
}

/* Maps every NaN to the same NaN, because the NaN that an addition returns depends on the processor
 * and on the order of operands that the compiler chose. */
static uint32_t one_nan(uint32_t bits)
{
    return (bits & ~MINUS_ZERO) > INFINITE ? NAN_BITS : bits;
}

float vb_sparse_round(float sum, float divisor)
{
    return vb_bits_float(one_nan(vb_float_bits(sum / divisor)));
}

void vb_sparse_unpack(const uint64_t *words, size_t n, float divisor, uint32_t *index, float *value)
{
    size_t i;

    for (i = 0; i < n; i++) {
        uint64_t word = words[i];

        index[i] = word_index(word);
        value[i] = vb_bits_float(one_nan((uint32_t)word));
    }
    if (divisor == 1.0f)
        return;
    for (i = 0; i < n; i++)
        value[i] = vb_sparse_round(value[i], divisor);
}

bool vb_sparse_ascending(const uint32_t *index, size_t n)
{
    uint32_t wrong = 0;
    size_t i;

    for (i = 1; i < n; i++)
        wrong |= (uint32_t)(index[i - 1] >= index[i]);
    return wrong == 0;
}

bool vb_sparse_words_fit(const uint64_t *words, size_t n, uint64_t first, uint64_t end)
{
    uint64_t wrong = 0;
    size_t i;

    if (n == 0)
        return true;
    for (i = 1; i < n; i++) /* the sign of a difference suits vector instructions */
        wrong |= (words[i] >> 32) - (words[i - 1] >> 32) - 1;
    return wrong >> 63 == 0 && word_index(words[0]) >= first && word_index(words[n - 1]) < end;
}

uint32_t vb_sparse_largest(const uint32_t *index, size_t n)
{
    uint32_t largest = 0;
    size_t i;

    for (i = 0; i < n; i++)
        largest = index[i] > largest ? index[i] : largest;
    return largest;
}

size_t vb_sparse_below(const uint64_t *words, size_t n, uint64_t limit)
{
    size_t low = 0, half;

    while (n > 0) {
        half = n / 2;
        if (word_index(words[low + half]) < limit) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* The rest of two runs, and the rest of the memory for the result. */
struct merging {
    const uint64_t *a, *a_end, *b, *b_end;
    uint64_t *out, *out_end;
};

static size_t least(size_t x, size_t y)
{
    return x < y ? x : y;
}

/* Merges m words at the front and m words at the back. Each run has at least 2 m words left, so no
 * run ends meanwhile. If two words have the same index, the word of run a comes first. */
static void merge_both_ends(struct merging *g, size_t m)
{
    const uint64_t *a = g->a, *a_end = g->a_end, *b = g->b, *b_end = g->b_end;
    uint64_t *out = g->out, *out_end = g->out_end;

    for (; m > 0; m--) {
        uint64_t x = *a, y = *b, u = a_end[-1], v = b_end[-1];
        size_t x_first = x >> 32 <= y >> 32, v_last = u >> 32 <= v >> 32;

        *out++ = vb_choose(x_first, x, y);
        a += x_first;
        b += 1 - x_first;
        *--out_end = vb_choose(v_last, v, u);
        b_end -= v_last;
        a_end -= 1 - v_last;
    }
    *g = (struct merging){a, a_end, b, b_end, out, out_end};
}

static void merge_two(const struct sparse_run *left, const struct sparse_run *right, uint64_t *out)
{
    struct merging g = {left->words, left->words + left->n,   right->words, right->words + right->n,
                        out,         out + left->n + right->n};
    size_t m;

    while ((m = least((size_t)(g.a_end - g.a), (size_t)(g.b_end - g.b)) / 2) > 0)
        merge_both_ends(&g, m);
    while (g.a < g.a_end && g.b < g.b_end) {
        uint64_t x = *g.a, y = *g.b;
        bool x_first = x >> 32 <= y >> 32;

        *g.out++ = x_first ? x : y;
        g.a += x_first;
        g.b += !x_first;
    }
    memcpy(g.out, g.a, (size_t)(g.a_end - g.a) * sizeof(*g.a));
    memcpy(g.out + (g.a_end - g.a), g.b, (size_t)(g.b_end - g.b) * sizeof(*g.b));
}

/* Merges each pair of neighbouring runs into to. A last run without a neighbour is copied. Returns
 * the number of runs left. */
static int merge_pairs(struct sparse_run *runs, int n_runs, uint64_t *to)
{
    int i, n = 0;

    for (i = 0; i < n_runs; i += 2) {
        struct sparse_run right = {runs[i].words, 0};
        size_t len;

        if (i + 1 < n_runs)
            right = runs[i + 1];
        len = runs[i].n + right.n;
        merge_two(&runs[i], &right, to);
        runs[n++] = (struct sparse_run){to, len};
        to += len;
    }
    return n;
}

struct sparse_run vb_sparse_merge_runs(struct sparse_run *runs, int n_runs, uint64_t *a,
                                       uint64_t *b)
{
    uint64_t *to = a;

    while (n_runs > 1) {
        n_runs = merge_pairs(runs, n_runs, to);
        to = to == a ? b : a;
    }
    return runs[0];
}

/* ---- adding up ------------------------------------------------------------------------------- */

size_t vb_sparse_add_up(const uint64_t *in, size_t n, uint64_t *out)
{
    uint32_t index, next;
    float sum, value, more;
    size_t i, at = 0;
    bool same;

    if (n == 0)
        return 0;
    index = word_index(in[0]);
    sum = vb_bits_float((uint32_t)in[0]);
    for (i = 1; i < n; i++) {
        uint64_t word = in[i];

        next = word_index(word);
        value = vb_bits_float((uint32_t)word);
        same = next == index;
        more = sum + value; /* computed always, so that the compiler needs no branch */
        /* The next word overwrites this word if it has the same index. */
        out[at] = word_of(index, vb_float_bits(sum));
        at += !same;
        sum = same ? more : value;
        index = next;
    }
    out[at] = word_of(index, vb_float_bits(sum));
    return at + 1;
}

/* ---- merging and adding up at once ----------------------------------------------------------- */

#define FEW_RUNS 6 /* with more runs, merging in pairs reads fewer words in total */

/* The rest of two runs without duplicates, and the place for the next word of their sum. */
struct summing {
    const uint64_t *a, *a_end, *b, *b_end;
    uint64_t *out;
};

/* Returns the value of a word if turn is 1. Otherwise returns -0.0, which changes no sum. */
static inline float value_if(uint64_t turn, uint64_t word)
{
    return vb_bits_float((uint32_t)vb_choose(turn, (uint32_t)word, MINUS_ZERO));
}

/* Computes m words of the sum. Each run has more than m words left. The next words of both runs are
 * read before it is known which of them are needed. */
static void sum_words(struct summing *g, size_t m)
{
    const uint64_t *a = g->a, *b = g->b;
    uint64_t *out = g->out, x = *a, y = *b;

    for (; m > 0; m--) {
        uint32_t k = word_index(x), l = word_index(y);
        uint64_t of_a = k <= l, of_b = l <= k, next_x = a[1], next_y = b[1];

        *out++ = word_of(k < l ? k : l, vb_float_bits(value_if(of_a, x) + value_if(of_b, y)));
        a += of_a;
        b += of_b;
        x = vb_choose(of_a, next_x, x);
        y = vb_choose(of_b, next_y, y);
    }
    g->a = a;
    g->b = b;
    g->out = out;
}

/* Sums until one of the runs has no words left. */
static void sum_last(struct summing *g)
{
    while (g->a < g->a_end && g->b < g->b_end) {
        uint64_t x = *g->a, y = *g->b;
        uint32_t k = word_index(x), l = word_index(y);
        uint64_t of_a = k <= l, of_b = l <= k;

        *g->out++ = word_of(k < l ? k : l, vb_float_bits(value_if(of_a, x) + value_if(of_b, y)));
        g->a += of_a;
        g->b += of_b;
    }
}

static size_t sum_two(const struct sparse_run *left, const struct sparse_run *right, uint64_t *out)
{
    struct summing g = {left->words, left->words + left->n, right->words, right->words + right->n,
                        out};
    size_t m;

    while ((m = least((size_t)(g.a_end - g.a), (size_t)(g.b_end - g.b))) > 1)
        sum_words(&g, m - 1);
    sum_last(&g);
    memcpy(g.out, g.a, (size_t)(g.a_end - g.a) * sizeof(*g.a));
    g.out += g.a_end - g.a;
    memcpy(g.out, g.b, (size_t)(g.b_end - g.b) * sizeof(*g.b));
    return (size_t)(g.out - out) + (size_t)(g.b_end - g.b);
}

size_t vb_sparse_sum_runs(struct sparse_run *runs, int n_runs, uint64_t *a, uint64_t *b,
                          uint64_t *out)
{
    struct sparse_run sum = runs[0];
    int i;

    if (n_runs < 2 || n_runs > FEW_RUNS) {
        sum = vb_sparse_merge_runs(runs, n_runs, a, b);
        return vb_sparse_add_up(sum.words, sum.n, out);
    }
    for (i = 1; i < n_runs; i++) {
        uint64_t *to = (n_runs - i) % 2 == 0 ? b : a; /* the last step reads b: out may be a */

        to = i < n_runs - 1 ? to : out;
        sum.n = sum_two(&sum, &runs[i], to);
        sum.words = to;
    }
    return sum.n;
}
