/* SPDX-License-Identifier: MIT
 *
 * Computes how steps change a feature that is not in their gradients. Momentum continues to move
 * its weight w, and decay shrinks w: each step is a linear map of w and its momentum v, which
 * depends on the rate alone. A feature can therefore wait until it is next needed; then the product
 * of all maps since its last update is applied once.
 *
 * Consecutive steps with the same rate are a *run*. The first POWERS powers of the map of the
 * current run are kept. Earlier runs are kept in a tree of products of 1, 2, 4 ... aligned runs, so
 * the map of any range of runs is the product of a few maps. After RUNS steps all features are
 * brought up to date and the table is emptied: then it has always space, and when this happens
 * depends on the number of steps alone. Ranks that took the same steps have the same bits.
 */
#include "kernels/sparse/lazy_priv.h"

#include <stdlib.h>
#include <string.h>

#define RUNS_BITS 16
#define RUNS ((uint32_t)1 << RUNS_BITS)
#define POWERS 65536u

struct lazy {
    struct vb_k_rule rule;
    uint32_t steps;
    uint32_t runs;                        /* number of runs; the last one is the current run */
    uint32_t *first;                      /* (RUNS): number of steps before each run */
    float *rate;                          /* (RUNS): rate of each run */
    struct lazy_map *tree[RUNS_BITS + 1]; /* [l] (RUNS >> l): products of 2^l runs */
    struct lazy_map *power;               /* (POWERS): powers of the current run; [0] is one step */
};

static const struct lazy_map identity = {1, 0, 0, 1};

/* Returns the product of two maps: x is applied first, then y. */
static struct lazy_map then(struct lazy_map x, struct lazy_map y)
{
    return (struct lazy_map){
        .a = y.a * x.a + y.b * x.c,
        .b = y.a * x.b + y.b * x.d,
        .c = y.c * x.a + y.d * x.c,
        .d = y.c * x.b + y.d * x.d,
    };
}

static struct lazy_map power(struct lazy_map x, uint32_t n)
{
    struct lazy_map product = identity;

    for (; n > 0; n >>= 1, x = then(x, x))
        if (n & 1)
            product = then(product, x);
    return product;
}

/* Returns the map of one step with gradient 0, as in kernels/exact/update_ref.c. */
static struct lazy_map one_step(const struct vb_k_rule *r, float rate_f)
{
    double rate = (double)rate_f, decay = (double)r->decay, mu = (double)r->momentum;

    if (r->kind == VB_K_MOMENTUM)
        return (struct lazy_map){1 - rate * decay, -rate * mu, decay, mu};
    if (r->kind == VB_K_NESTEROV)
        return (struct lazy_map){1 - rate * decay * (1 + mu), -rate * mu * mu, decay, mu};
    return (struct lazy_map){1 - rate * decay, 0, 0, 0};
}

vb_status vb_k_lazy_create(const struct vb_k_rule *rule, struct lazy **lazy_p)
{
    struct lazy *z;
    bool room;
    int l;

    z = calloc(1, sizeof(*z));
    if (z == NULL)
        return vb_err_sys("calloc");
    z->rule = *rule;
    z->first = calloc(RUNS, sizeof(*z->first));
    z->rate = calloc(RUNS, sizeof(*z->rate));
    z->power = calloc(POWERS, sizeof(*z->power));
    room = z->first != NULL && z->rate != NULL && z->power != NULL;
    for (l = 0; l <= RUNS_BITS; l++) {
        z->tree[l] = calloc(RUNS >> l, sizeof(*z->tree[l]));
        room = room && z->tree[l] != NULL;
    }
    if (!room) {
        vb_k_lazy_destroy(z);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the rates of past steps");
    }
    *lazy_p = z;
    return VB_OK;
}

void vb_k_lazy_destroy(struct lazy *lazy)
{
    int l;

    if (lazy == NULL)
        return;
    for (l = 0; l <= RUNS_BITS; l++)
        free(lazy->tree[l]);
    free(lazy->first);
    free(lazy->rate);
    free(lazy->power);
    free(lazy);
}

uint32_t vb_k_lazy_steps(const struct lazy *lazy)
{
    return lazy->steps;
}

/* Returns the map of n steps of the current run. */
static struct lazy_map under_way(const struct lazy *z, uint32_t n)
{
    if (n == 0)
        return identity;
    return n <= POWERS ? z->power[n - 1] : power(z->power[0], n);
}

/* Ends the current run: stores its product, and the products that it completes. */
static void close_run(struct lazy *z)
{
    uint32_t at = z->runs - 1;
    int l;

    z->tree[0][at] = under_way(z, z->steps - z->first[at]);
    for (l = 0; at & 1; l++, at >>= 1)
        z->tree[l + 1][at >> 1] = then(z->tree[l][at - 1], z->tree[l][at]);
}

/* Returns true if a step with this rate begins a run. A NaN is not equal, so it always does. */
static bool new_run(const struct lazy *z, float rate)
{
    return z->runs == 0 || z->rate[z->runs - 1] != rate;
}

/* However often the rate changes. */
uint32_t vb_k_lazy_room(void)
{
    return RUNS;
}

void vb_k_lazy_note(struct lazy *z, float rate)
{
    uint32_t n;

    if (new_run(z, rate)) {
        if (z->runs > 0)
            close_run(z);
        z->first[z->runs] = z->steps;
        z->rate[z->runs] = rate;
        z->runs++;
        z->power[0] = one_step(&z->rule, rate);
    }
    n = ++z->steps - z->first[z->runs - 1];
    if (n > 1 && n <= POWERS)
        z->power[n - 1] = then(z->power[n - 2], z->power[0]);
}

void vb_k_lazy_forget(struct lazy *z)
{
    z->steps = 0;
    z->runs = 0;
}

/* Copies what is in use. */
void vb_k_lazy_copy(const struct lazy *from, struct lazy *to)
{
    uint32_t n = from->runs > 0 ? from->steps - from->first[from->runs - 1] : 0;
    int l;

    to->steps = from->steps;
    to->runs = from->runs;
    memcpy(to->first, from->first, from->runs * sizeof(*to->first));
    memcpy(to->rate, from->rate, from->runs * sizeof(*to->rate));
    memcpy(to->power, from->power, (n < POWERS ? n : POWERS) * sizeof(*to->power));
    for (l = 0; l <= RUNS_BITS; l++)
        memcpy(to->tree[l], from->tree[l], (from->runs >> l) * sizeof(*to->tree[l]));
}

/* Returns the run that contains the step after the first `from` steps. */
static uint32_t run_of(const struct lazy *z, uint32_t from)
{
    uint32_t low = 0, high = z->runs, mid;

    while (high - low > 1) {
        mid = low + (high - low) / 2;
        if (z->first[mid] <= from)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Returns the product of the runs low to high - 1. */
static struct lazy_map whole_runs(const struct lazy *z, uint32_t low, uint32_t high)
{
    struct lazy_map product = identity;
    int l;

    while (low < high) {
        for (l = 0; (low >> l & 1) == 0 && low + ((uint32_t)2 << l) <= high && l < RUNS_BITS;)
            l++;
        product = then(product, z->tree[l][low >> l]);
        low += (uint32_t)1 << l;
    }
    return product;
}

struct lazy_map vb_k_lazy_since(const struct lazy *z, uint32_t from)
{
    struct lazy_map product;
    uint32_t run;

    if (from >= z->steps)
        return identity;
    if (from >= z->first[z->runs - 1])
        return under_way(z, z->steps - from);
    run = run_of(z, from);
    product = power(one_step(&z->rule, z->rate[run]), z->first[run + 1] - from);
    product = then(product, whole_runs(z, run + 1, z->runs - 1));
    return then(product, under_way(z, z->steps - z->first[z->runs - 1]));
}
