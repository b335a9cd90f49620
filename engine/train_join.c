/* SPDX-License-Identifier: MIT
 *
 * A worker that joins a job late. Server 0 has *papers* on its board: the job's command line, what
 * the ranks had settled, the plan and which program it is. A newcomer joins the group, reads them,
 * and then sets itself up like any rank of the job.
 */
#include "engine/train_async_priv.h"

#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 32768
#define SETTINGS_MAX 8192
#define PAPERS_MAX (sizeof(struct papers) + WORDS_MAX + SETTINGS_MAX + VB_PLAN_BYTES_MAX)
#define PAPERS_NS UINT64_C(10000000000) /* from the start of a group to its papers */
#define PAPERS_MAGIC UINT64_C(0x7062726576503031)

/* In front of words, settings and plan, each of so many bytes. */
struct papers {
    _Atomic uint64_t ready; /* written last */
    char program[65];
    int world;
    uint32_t words, settings, plan;
    int64_t begin;        /* steps of a run before */
    uint64_t n, max_keys; /* what the job's own data comes to, as in struct ps_job */
};

struct vb_joined {
    struct vb_group *group;
    struct async_board *board;
    struct vb_op op; /* of the get */
    struct papers papers;
    char *text; /* words, settings, plan, and a zero behind each of the last two */
    char *settings, *plan;
};

/* ---- given ----------------------------------------------------------------------------------- */

static bool fit(const struct vb_trainer *t)
{
    return t->o->words_len <= WORDS_MAX && strlen(t->settings) <= SETTINGS_MAX;
}

void async_invite(const struct vb_async *a)
{
    const struct vb_train_opts *o = a->trainer->o;

    if (o->words == NULL || a->job.late == 0)
        return;
    if (!fit(a->trainer))
        VB_LOG_WARN("nobody can join: the command line is too long");
    else if (o->say != NULL)
        o->say(a->root);
}

size_t async_papers_bytes(const struct vb_async *a)
{
    const struct vb_trainer *t = a->trainer;

    return t->o->words != NULL && a->job.late > 0 && fit(t) ? PAPERS_MAX : 0;
}

vb_status async_papers_put(const struct vb_async *a, struct async_board *board)
{
    const struct vb_trainer *t = a->trainer;
    struct papers *p = async_board_papers(board);
    char *at = (char *)(p + 1);
    struct vb_hello hello;
    vb_status st = vb_hello_own(&hello);

    if (st != VB_OK)
        return st;
    memcpy(p->program, hello.sha256, sizeof(p->program));
    p->world = t->o->group.world;
    p->begin = a->job.begin;
    p->n = a->job.n;
    p->max_keys = a->job.max_keys;
    p->words = (uint32_t)t->o->words_len;
    p->settings = (uint32_t)strlen(t->settings);
    p->plan = t->plan_text != NULL ? (uint32_t)strlen(t->plan_text) : 0;
    memcpy(at, t->o->words, p->words);
    memcpy(at + p->words, t->settings, p->settings);
    if (p->plan > 0)
        memcpy(at + p->words + p->settings, t->plan_text, p->plan);
    atomic_store_explicit(&p->ready, PAPERS_MAGIC, memory_order_release);
    return VB_OK;
}

/* ---- taken ----------------------------------------------------------------------------------- */

static vb_status get_from(struct vb_joined *j, int rank)
{
    size_t from;
    struct vb_window *win = async_board_window(j->board, &from);
    vb_status st;

    if (vb_window_len(win, rank) < from + PAPERS_MAX)
        return VB_AGAIN;
    do {
        st = vb_get(win, rank, from, from, PAPERS_MAX, &j->op);
    } while (st == VB_AGAIN && vb_progress(j->group) == VB_OK);
    return st == VB_OK ? vb_op_wait(j->group, &j->op, "what the job does", rank) : st;
}

static bool are_there(struct vb_joined *j)
{
    const struct papers *p = async_board_papers(j->board);

    return atomic_load(&p->ready) == PAPERS_MAGIC;
}

/* One of those who were there at the start has them. */
static vb_status look_for_papers(struct vb_joined *j)
{
    uint64_t until = vb_clock_ns() + PAPERS_NS;
    vb_status st = VB_OK;
    int r;

    while (vb_clock_ns() < until) {
        for (r = 0; r < vb_group_world(j->group); r++) {
            st = vb_group_member(j->group, r) ? get_from(j, r) : VB_AGAIN;
            if (st == VB_OK && are_there(j))
                return VB_OK;
            if (st < 0 && st != VB_ERR_PEER) /* who is gone is not asked again */
                return st;
        }
        st = vb_progress(j->group);
        if (st != VB_OK)
            return st;
    }
    return vb_err(VB_ERR_TIMEOUT, "this job cannot be joined: it says nothing of itself");
}

static vb_status check_papers(const struct papers *p)
{
    struct vb_hello hello;
    vb_status st = vb_hello_own(&hello);

    if (st != VB_OK)
        return st;
    if (strncmp(p->program, hello.sha256, sizeof(p->program)) != 0)
        return vb_err(VB_ERR_USAGE,
                      "this is another program than that of the job: SHA-256 %.12s, "
                      "not %.12s",
                      hello.sha256, p->program);
    if (p->words > WORDS_MAX || p->settings > SETTINGS_MAX || p->plan >= VB_PLAN_BYTES_MAX ||
        p->world < 1 || p->world > VB_WORLD_MAX || p->begin < 0 || p->max_keys > UINT32_MAX)
        return vb_err(VB_ERR_INPUT, "what the job says of itself makes no sense");
    return VB_OK;
}

static vb_status copy_papers(struct vb_joined *j)
{
    const struct papers *p = async_board_papers(j->board);
    const char *from = (const char *)(p + 1);
    vb_status st = check_papers(p);

    if (st != VB_OK)
        return st;
    memcpy(&j->papers, p, sizeof(*p));
    j->text = calloc(1, (size_t)p->words + p->settings + p->plan + 3);
    if (j->text == NULL)
        return vb_err_sys("calloc");
    j->settings = j->text + p->words + 1;
    j->plan = j->settings + p->settings + 1;
    memcpy(j->text, from, p->words);
    memcpy(j->settings, from + p->words, p->settings);
    memcpy(j->plan, from + p->words + p->settings, p->plan);
    return VB_OK;
}

vb_status vb_train_join(const struct vb_group_opts *opts, struct vb_joined **joined_p)
{
    struct vb_joined *j = calloc(1, sizeof(*j));
    struct vb_group_opts own = *opts;
    vb_status st;

    if (j == NULL)
        return vb_err_sys("calloc");
    own.progress = true; /* the model is not known yet, it may be a large one */
    st = vb_group_join(&own, &j->group);
    if (st == VB_OK)
        st = async_board_open(j->group, PAPERS_MAX, &j->board);
    if (st == VB_OK)
        st = look_for_papers(j);
    if (st == VB_OK)
        st = copy_papers(j);
    if (st != VB_OK) {
        vb_joined_leave(j);
        return st;
    }
    *joined_p = j;
    return VB_OK;
}

void vb_joined_leave(struct vb_joined *j)
{
    if (j == NULL)
        return;
    async_board_leave(j->board);
    vb_group_close(j->group);
    async_board_free(j->board);
    free(j->text);
    free(j);
}

const char *vb_joined_words(const struct vb_joined *j, size_t *len_p)
{
    *len_p = j->papers.words;
    return j->text;
}

int vb_joined_world(const struct vb_joined *j)
{
    return j->papers.world;
}

int vb_joined_rank(const struct vb_joined *j)
{
    return vb_group_rank(j->group);
}

/* ---- setting up ------------------------------------------------------------------------------ */

const char *vb_joined_plan(const struct vb_joined *j)
{
    return j->plan[0] != '\0' ? j->plan : NULL;
}

vb_status vb_joined_check(const struct vb_joined *j, const char *settings)
{
    char name[64];

    if (!vb_train_settings_differ(j->settings, settings, name))
        return VB_OK;
    return vb_err(VB_ERR_USAGE,
                  "this worker has another %s than the job, by its options, environment or data",
                  name);
}

int64_t vb_joined_begin(const struct vb_joined *j)
{
    return j->papers.begin;
}

/* The job is the one that this worker has made of its options. The peer's word is taken for what
 * its data alone tells: how long a list can be. */
vb_status async_take_joined(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    struct vb_joined *j = t->o->joined;
    const struct papers *p = &j->papers;
    int world = a->job.workers + ps_server_ranks(&a->job);

    if (world != vb_group_world(j->group) || world + a->job.late != vb_group_slots(j->group))
        return vb_err(VB_ERR_USAGE,
                      "by its options this worker expects %d ranks and %d that join, but the job "
                      "has %d and %d",
                      world, a->job.late, vb_group_world(j->group),
                      vb_group_slots(j->group) - vb_group_world(j->group));
    if (a->job.n != p->n || a->job.max_keys > p->max_keys)
        return vb_err(VB_ERR_USAGE,
                      "this worker's data, of %zu parameters and up to %zu entries a "
                      "batch, does not fit the job's: %llu and %llu",
                      a->job.n, a->job.max_keys, (unsigned long long)p->n,
                      (unsigned long long)p->max_keys);
    if (p->begin > a->job.steps)
        return vb_err(VB_ERR_INPUT, "the job says that it began at step %lld of %lld",
                      (long long)p->begin, (long long)a->job.steps);
    a->job.max_keys = (size_t)p->max_keys;
    memcpy(a->secret, t->o->group.secret, sizeof(a->secret));
    snprintf(a->root, sizeof(a->root), "%s", t->o->group.root);
    a->ps = j->group;
    a->board = j->board;
    j->group = NULL; /* they are the run's now */
    j->board = NULL;
    return VB_OK;
}
