/* SPDX-License-Identifier: MIT
 *
 * A worker joins a running job. Server 0 has the *join information* on its board: the job's command
 * line, the settings that the ranks agreed on, the plan, and the hash of the program. A joiner
 * joins the group, reads this information, and then sets itself up like any other rank.
 */
#include "engine/async/train_async_priv.h"

#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 32768
#define SETTINGS_MAX 8192
#define KEEPERS_MAX 64 /* joiners on other hosts open their own copy of the data */
#define JOIN_INFO_MAX (sizeof(struct join_info) + WORDS_MAX + SETTINGS_MAX + VB_PLAN_BYTES_MAX)
#define JOIN_INFO_NS UINT64_C(10000000000) /* how long a joiner looks for the join information */
#define JOIN_INFO_MAGIC UINT64_C(0x7062726576503031)

/* The head of the join information. The command line, the settings and the plan follow. */
struct join_info {
    _Atomic uint64_t ready; /* JOIN_INFO_MAGIC; written last */
    uint64_t program;       /* vb_process_program() */
    int world;
    uint32_t words, settings, plan; /* sizes of the command line, the settings and the plan */
    int64_t begin;                  /* number of steps of earlier runs */
    uint64_t n, max_keys;           /* n and max_keys of the job's struct ps_job */
    unsigned char token[VB_JOB_TOKEN];
    int n_keepers;
    struct vb_keeper keepers[KEEPERS_MAX]; /* ranks that have a copy of the data */
};

struct vb_joined {
    struct vb_group *group;
    struct async_board *board;
    char root[VB_ROOT_TEXT]; /* of the rank that has given the slot */
    struct vb_op op;         /* the op of the get */
    struct join_info info;
    char *text; /* command line, settings and plan, with a zero after each */
    char *settings, *plan;
};

/* ---- server 0 -------------------------------------------------------------------------------- */

void vb_async_announce(const struct vb_async *a)
{
    const struct vb_train_opts *o = a->trainer->o;

    if (o->join.words == NULL || a->job.join_slots == 0)
        return;
    if (vb_async_join_info_bytes(a) == 0)
        VB_LOG_WARN("no worker can join this job: its command line is too long");
    else if (o->join.say != NULL)
        o->join.say(a->root, o->join.say_arg);
}

size_t vb_async_join_info_bytes(const struct vb_async *a)
{
    const struct vb_trainer *t = a->trainer;
    bool fits = t->o->join.words_len <= WORDS_MAX && strlen(t->settings) <= SETTINGS_MAX;

    return t->o->join.words != NULL && a->job.join_slots > 0 && fits ? JOIN_INFO_MAX : 0;
}

vb_status vb_async_join_info_put(const struct vb_async *a, struct async_board *board)
{
    const struct vb_trainer *t = a->trainer;
    struct join_info *p = board->join_info;
    char *at = (char *)(p + 1);
    vb_status st = vb_process_program(&p->program);

    if (st != VB_OK)
        return st;
    p->world = t->o->group.world;
    p->begin = a->job.begin;
    p->n = a->job.n;
    p->max_keys = a->job.max_keys;
    memcpy(p->token, t->saved.token, sizeof(p->token));
    p->words = (uint32_t)t->o->join.words_len;
    p->settings = (uint32_t)strlen(t->settings);
    p->plan = t->kernels.text != NULL ? (uint32_t)strlen(t->kernels.text) : 0;
    p->n_keepers = t->copies.n_keepers < KEEPERS_MAX ? t->copies.n_keepers : KEEPERS_MAX;
    if (p->n_keepers > 0)
        memcpy(p->keepers, t->copies.keepers, (size_t)p->n_keepers * sizeof(*p->keepers));
    memcpy(at, t->o->join.words, p->words);
    memcpy(at + p->words, t->settings, p->settings);
    if (p->plan > 0)
        memcpy(at + p->words + p->settings, t->kernels.text, p->plan);
    atomic_store_explicit(&p->ready, JOIN_INFO_MAGIC, memory_order_release);
    return VB_OK;
}

/* ---- the joiner ------------------------------------------------------------------------------ */

static vb_status get_from(struct vb_joined *j, int rank)
{
    struct vb_window *win = j->board->win;
    size_t from = j->board->join_info_at;
    vb_status st;

    if (vb_window_len(win, rank) < from + JOIN_INFO_MAX)
        return VB_AGAIN;
    st = vb_get_wait(win, rank, from, from, JOIN_INFO_MAX, &j->op, PS_PUT_MS);
    return st == VB_OK ? vb_op_wait(j->group, &j->op, "the join information", rank) : st;
}

/* Reads the join information. One of the ranks that the group has started with has it. */
static vb_status find_join_info(struct vb_joined *j)
{
    const struct join_info *info = j->board->join_info;
    uint64_t until = vb_clock_ns() + JOIN_INFO_NS;
    vb_status st = VB_OK;
    int r;

    while (vb_clock_ns() < until) {
        for (r = 0; r < vb_group_world(j->group); r++) {
            st = vb_group_member(j->group, r) ? get_from(j, r) : VB_AGAIN;
            if (st == VB_OK && atomic_load(&info->ready) == JOIN_INFO_MAGIC)
                return VB_OK;
            if (st < 0 && st != VB_ERR_PEER) /* a rank that is gone is skipped next time */
                return st;
        }
        st = vb_progress(j->group);
        if (st != VB_OK)
            return st;
    }
    return vb_err(VB_ERR_TIMEOUT,
                  "cannot join: no rank of the job has the information that a joiner needs");
}

static vb_status check_join_info(const struct join_info *p)
{
    vb_status st = vb_train_fits_program(p->program);

    if (st != VB_OK)
        return st;
    if (p->words > WORDS_MAX || p->settings > SETTINGS_MAX || p->plan >= VB_PLAN_BYTES_MAX ||
        p->world < 1 || p->world > VB_WORLD_MAX || p->begin < 0 || p->max_keys > UINT32_MAX ||
        p->n_keepers < 0 || p->n_keepers > KEEPERS_MAX)
        return vb_err(VB_ERR_INPUT, "cannot join: the join information of the job is not valid");
    return VB_OK;
}

static vb_status copy_join_info(struct vb_joined *j)
{
    const struct join_info *p = j->board->join_info;
    const char *from = (const char *)(p + 1);
    vb_status st = check_join_info(p);

    if (st != VB_OK)
        return st;
    memcpy(&j->info, p, sizeof(*p));
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

vb_status vb_train_join(const struct vb_group_opts *opts, struct vb_caller *caller,
                        struct vb_joined **joined_p)
{
    struct vb_joined *j = calloc(1, sizeof(*j));
    struct vb_group_opts own = *opts;
    vb_status st;

    if (j == NULL)
        return vb_err_sys("calloc");
    own.progress = true; /* the model is not known yet, and may be large */
    own.root = j->root;
    st = vb_caller_root(caller, j->root);
    if (st == VB_OK)
        st = vb_group_join_called(&own, caller, &j->group);
    if (st == VB_OK)
        st = vb_async_board_open(j->group, JOIN_INFO_MAX, &j->board);
    if (st == VB_OK)
        st = find_join_info(j);
    if (st == VB_OK)
        st = copy_join_info(j);
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
    vb_async_board_leave(j->board);
    vb_group_close(j->group);
    vb_async_board_free(j->board);
    free(j->text);
    free(j);
}

const char *vb_joined_words(const struct vb_joined *j, size_t *len_p)
{
    *len_p = j->info.words;
    return j->text;
}

int vb_joined_world(const struct vb_joined *j)
{
    return j->info.world;
}

int vb_joined_rank(const struct vb_joined *j)
{
    return vb_group_rank(j->group);
}

struct vb_trainer_joiner vb_joined_joiner(const struct vb_joined *j)
{
    return (struct vb_trainer_joiner){.rank = vb_joined_rank(j),
                                      .token = j->info.token,
                                      .begin = j->info.begin,
                                      .settings = j->settings,
                                      .plan = j->plan[0] != '\0' ? j->plan : NULL,
                                      .keepers = j->info.keepers,
                                      .n_keepers = j->info.n_keepers};
}

/* Checks a->job, which was made from this worker's options, against the running job. max_keys is
 * taken from the running job, because it depends on the job's data. */
vb_status vb_async_adopt_joined(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    struct vb_joined *j = t->o->join.joined;
    const struct join_info *p = &j->info;
    int world = a->job.workers + vb_ps_server_ranks(&a->job);

    if (world != vb_group_world(j->group) || world + a->job.join_slots != vb_group_slots(j->group))
        return vb_err(VB_ERR_USAGE,
                      "cannot join: the options of this worker are for %d ranks and %d joiners, "
                      "but the job has %d ranks and slots for %d joiners",
                      world, a->job.join_slots, vb_group_world(j->group),
                      vb_group_slots(j->group) - vb_group_world(j->group));
    if (a->job.n != p->n || a->job.max_keys > p->max_keys)
        return vb_err(
            VB_ERR_USAGE,
            "cannot join: the data of this worker has %zu parameters and up to %zu entries in a "
            "batch, but that of the job has %llu parameters and up to %llu entries",
            a->job.n, a->job.max_keys, (unsigned long long)p->n, (unsigned long long)p->max_keys);
    if (p->begin > a->job.steps)
        return vb_err(
            VB_ERR_INPUT,
            "cannot join: the job claims to have begun at step %lld, but has only %lld steps",
            (long long)p->begin, (long long)a->job.steps);
    a->job.max_keys = (size_t)p->max_keys;
    a->secret = t->o->group.secret;
    memcpy(a->root, j->root, sizeof(a->root));
    a->ps = j->group;
    a->board = j->board;
    j->group = NULL; /* the run owns the group and the board now */
    j->board = NULL;
    return VB_OK;
}
