/* SPDX-License-Identifier: MIT */
#include "search.h"

#include <stdlib.h>

#define DEPTH_MAX 4000
#define FAIR_ROUNDS 60
#define FAIR_ACTIONS 3000
#define GRACE_ROUND 12 /* the fair run ends the grace after so many rounds */

/* ---- a set of hashes ------------------------------------------------------------------------- */

struct set {
    uint64_t *slots; /* 0: empty */
    size_t size, n;
};

static bool set_put(struct set *set, uint64_t hash);

static void set_grow(struct set *set)
{
    struct set old = *set;
    size_t i;

    set->size = old.size == 0 ? 1 << 16 : 2 * old.size;
    set->n = 0;
    set->slots = calloc(set->size, sizeof(*set->slots));
    if (set->slots == NULL)
        abort();
    for (i = 0; i < old.size; i++)
        if (old.slots[i] != 0)
            (void)set_put(set, old.slots[i]);
    free(old.slots);
}

static bool set_has(const struct set *set, uint64_t hash)
{
    size_t i;

    hash += hash == 0;
    for (i = hash & (set->size - 1); set->size > 0 && set->slots[i] != 0;
         i = (i + 1) & (set->size - 1))
        if (set->slots[i] == hash)
            return true;
    return false;
}

/* Returns false if the set has the hash already. */
static bool set_put(struct set *set, uint64_t hash)
{
    size_t i;

    hash += hash == 0;
    if (10 * set->n >= 7 * set->size)
        set_grow(set);
    for (i = hash & (set->size - 1); set->slots[i] != 0; i = (i + 1) & (set->size - 1))
        if (set->slots[i] == hash)
            return false;
    set->slots[i] = hash;
    set->n++;
    return true;
}

/* ---- the run without faults ------------------------------------------------------------------ */

/* Messages arrive, ranks that are gone or cut off are suspected, and timers fire only when nothing
 * else happens: first those that repeat, after some rounds those that end a minority. */
static bool fair_action(const struct world *w, int round, int *timer, struct action *out)
{
    struct action list[WORLD_ACTIONS];
    struct world quiet;
    int i, n;

    world_copy(&quiet, w);
    quiet.left = (struct limits){.ranks = w->left.ranks, .retries = 1, .steps = 0};
    n = world_actions(&quiet, list);
    for (i = 0; i < n; i++)
        if (list[i].kind == ACT_DELIVER || list[i].kind == ACT_SUSPECT) {
            *out = list[i];
            return true;
        }
    for (i = 0; i < n; i++)
        if ((list[i].kind == ACT_RETRY && list[i].a >= *timer) ||
            (list[i].kind == ACT_GRACE && round >= GRACE_ROUND)) {
            *timer = list[i].kind == ACT_RETRY ? list[i].a + 1 : *timer;
            *out = list[i];
            return true;
        }
    return false;
}

/* Returns NULL if the job settles, otherwise why not. `known` has states from which it does. */
static const char *settle(const struct world *from, struct set *known, unsigned long long *n_p)
{
    uint64_t way[FAIR_ACTIONS], hash;
    struct world w;
    struct action action;
    int round = 0, timer = 0, n = 0;

    world_copy(&w, from);
    while (!world_is_settled(&w) && round < FAIR_ROUNDS && n < FAIR_ACTIONS && w.wrong == NULL) {
        hash = world_hash(&w, true) ^ vb_mix((uint64_t)round * 16 + (uint64_t)timer);
        if (set_has(known, hash))
            break;
        way[n++] = hash;
        if (fair_action(&w, round, &timer, &action)) {
            world_apply(&w, action);
            ++*n_p;
        } else if (timer == 0) {
            return "nothing more happens, but the job has not settled";
        } else {
            timer = 0;
            round++;
        }
    }
    if (w.wrong != NULL)
        return w.wrong;
    if (round == FAIR_ROUNDS || n == FAIR_ACTIONS)
        return "without more faults the job does not settle";
    while (n > 0)
        (void)set_put(known, way[--n]);
    return NULL;
}

/* ---- the search ------------------------------------------------------------------------------ */

struct frame {
    struct world w;
    struct action list[WORLD_ACTIONS];
    int n, next;
    struct action taken;
};

struct search {
    struct frame *frames[DEPTH_MAX];
    int depth;
    struct set seen, known;
    struct found found;
    int rounds;
};

static bool is_too_long(const struct search *s, const struct world *w)
{
    int i;

    for (i = 0; i < w->left.ranks; i++)
        if (w->m[i].promised / VIEW_RANKS > (uint64_t)s->rounds)
            return true;
    return false;
}

static void look(struct search *s, struct world *w)
{
    if (w->wrong == NULL)
        w->wrong = settle(w, &s->known, &s->found.fair);
    s->found.wrong = w->wrong;
}

static struct frame *frame_at(struct search *s, int depth)
{
    if (depth == DEPTH_MAX)
        return NULL;
    if (s->frames[depth] == NULL)
        s->frames[depth] = malloc(sizeof(struct frame));
    if (s->frames[depth] == NULL)
        abort();
    return s->frames[depth];
}

/* Goes to the state after an action, unless it was visited before. */
static void descend(struct search *s, struct action action)
{
    struct frame *top = s->frames[s->depth], *next = frame_at(s, s->depth + 1);

    if (next == NULL) {
        s->found.wrong = "a run is longer than the explorer has room for";
        return;
    }
    world_copy(&next->w, &top->w);
    world_apply(&next->w, action);
    top->taken = action;
    s->found.transitions++;
    if (next->w.wrong == NULL && is_too_long(s, &next->w)) {
        s->found.too_long++;
        return;
    }
    if (!set_put(&s->seen, world_hash(&next->w, false)))
        return;
    s->found.states++;
    s->depth++;
    s->found.depth = s->depth > s->found.depth ? s->depth : s->found.depth;
    look(s, &next->w);
    next->n = world_actions(&next->w, next->list);
    next->next = 0;
}

/* The same action with a crash between two of its messages follows it in the list. */
static void add_crashes(struct frame *f, struct action action, int sent)
{
    int i;

    if (!world_may_crash(&f->w, action.kind == ACT_DELIVER ? f->w.packets[action.a].to : action.a))
        return;
    for (i = 1; i < sent; i++) {
        if (f->n == WORLD_ACTIONS)
            abort();
        f->list[f->n] = action;
        f->list[f->n++].sends = (unsigned char)i;
    }
}

static void visit(struct search *s)
{
    struct frame *f = s->frames[s->depth];
    struct action action = f->list[f->next++];
    int depth = s->depth;

    descend(s, action);
    if (action.sends == 0 && depth + 1 < DEPTH_MAX)
        add_crashes(f, action, s->frames[depth + 1]->w.sent);
}

static void print_way(const struct search *s)
{
    int i;

    for (i = 0; i < s->depth; i++)
        world_print(&s->frames[i]->w, s->frames[i]->taken);
    printf("  => %s\n", s->found.wrong);
}

static struct search *search_new(const struct limits *limits)
{
    struct search *s = calloc(1, sizeof(*s));
    struct frame *f;

    if (s == NULL)
        abort();
    s->rounds = limits->rounds;
    f = frame_at(s, 0);
    world_init(&f->w, limits);
    f->n = world_actions(&f->w, f->list);
    f->next = 0;
    return s;
}

static struct found search_end(struct search *s, bool print)
{
    struct found found = s->found;
    int i;

    if (found.wrong != NULL && print)
        print_way(s);
    for (i = 0; i < DEPTH_MAX; i++)
        free(s->frames[i]);
    free(s->seen.slots);
    free(s->known.slots);
    free(s);
    return found;
}

struct found search_all(const struct limits *limits, unsigned long long max_states, bool print)
{
    struct search *s = search_new(limits);

    while (s->depth >= 0 && s->found.wrong == NULL && !s->found.full) {
        if (s->frames[s->depth]->next == s->frames[s->depth]->n)
            s->depth--;
        else
            visit(s);
        s->found.full = s->found.states >= max_states;
    }
    return search_end(s, print);
}

static void walk(struct search *s, uint64_t seed)
{
    struct frame *f;
    uint64_t k = 0;

    s->depth = 0;
    s->seen.n = 0; /* a walk may come to a state again */
    memset(s->seen.slots, 0, s->seen.size * sizeof(*s->seen.slots));
    for (f = s->frames[0]; s->found.wrong == NULL && s->depth < 400; f = s->frames[s->depth]) {
        f->n = world_actions(&f->w, f->list);
        if (f->n == 0 || ++k > 1200)
            return;
        f->next = (int)(vb_random(seed, k) % (uint64_t)f->n);
        visit(s);
    }
}

struct found search_random(const struct limits *limits, int runs, uint64_t seed, bool print)
{
    struct search *s = search_new(limits);
    int i;

    set_grow(&s->seen);
    for (i = 0; i < runs && s->found.wrong == NULL; i++)
        walk(s, vb_random(seed, (uint64_t)i));
    return search_end(s, print);
}
