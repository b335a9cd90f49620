/* SPDX-License-Identifier: MIT
 *
 * Three checks. Options must fit each other. All ranks must have the same settings, and so must a
 * run and the checkpoint that it resumes from; settings are compared as text. All ranks must still
 * hold the same parameters.
 */
#include "engine/train/train_room_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

/* Returns the name of a given option that only affects sums of dense gradients, or NULL. */
static const char *dense_option(const struct vb_train_opts *o)
{
    if (o->sums.coll.wire != VB_WIRE_F32)
        return "wire";
    if (o->sums.coll.algo != VB_ALGO_AUTO)
        return "algo";
    if (o->sums.bucket_bytes > 0)
        return "bucket";
    if (o->sums.defer_bytes > 0)
        return "defer-bytes";
    return o->sums.shared_update_min > 0 ? "shared-update-min" : NULL;
}

vb_status vb_trainer_check(const struct vb_train_opts *o)
{
    const struct vb_train_model *model = vb_train_model_find(o->model);
    bool dense_sums = model != NULL && !model->sparse && o->mode != VB_MODE_ASYNC;

    if (model == NULL)
        return vb_err(VB_ERR_USAGE, "there is no model %.64s", o->model != NULL ? o->model : "");
    if (o->group.world < 1 || o->group.rank < 0 || o->group.rank >= o->group.world)
        return vb_err(VB_ERR_USAGE, "there is no rank %d; the job has %d ranks", o->group.rank,
                      o->group.world);
    if (o->mode == VB_MODE_SINGLE && o->group.world != 1)
        return vb_err(VB_ERR_USAGE, "--mode single needs one rank, but the job has %d ranks",
                      o->group.world);
    if (o->place.slow_factor > 0 &&
        (o->place.slow_rank < 0 || o->place.slow_rank >= o->group.world))
        return vb_err(VB_ERR_USAGE, "--slow: there is no rank %d; the job has %d ranks",
                      o->place.slow_rank, o->group.world);
    if (o->save.dir == NULL && (o->save.resume || o->save.every > 0))
        return vb_err(VB_ERR_USAGE, "--resume and --checkpoint-every need --checkpoint DIR");
    if (o->join.joined != NULL && (o->mode != VB_MODE_ASYNC || o->dry_run))
        return vb_err(VB_ERR_USAGE, "--join needs --mode async and cannot be used with --dry-run");
    if (!dense_sums && dense_option(o) != NULL)
        return vb_err(VB_ERR_USAGE, "--%s can be used only with dense models and --mode sync",
                      dense_option(o));
    return VB_OK;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Returns a checksum that stands for a text of any length. */
static uint32_t mark(const char *text)
{
    return text != NULL ? vb_crc32c(0, text, strlen(text)) : 0;
}

char *vb_train_settings(const struct vb_train_opts *o, const struct vb_recipe *r)
{
    /* With a lazy update rule, saving changes the rounding of later steps (vb_k_sparse_settle()).
     * So the interval between checkpoints is one of the settings of sparse models. */
    int64_t every = vb_train_model_find(o->model)->sparse ? o->save.every : 0;
    char *text = NULL, *both = NULL;
    int n = asprintf(
        &text,
        "model=%s\ninput=%d\nnumber of ranks=%d\ndata=%.500s %08x\nnumber of features=%d\n"
        "test split=%.17g\nglobal batch=%d\nnumber of steps=%lld\nseed=%llu\n"
        "learning rate=%.17g\nschedule=%d %lld %lld %.17g\nupdate rule=%d %.9g %.9g\n"
        "clipping=%.17g\norder of sums=%d\nalgorithm=%d%s\nnumber of steps "
        "between checkpoints=%lld\n",
        o->model, o->data.input, o->group.world, o->data.text, mark(o->data.text),
        o->data.ask.data.features, o->data.ask.test_share, r->global_batch, (long long)r->steps,
        (unsigned long long)o->seed, r->schedule.base, (int)r->schedule.kind,
        (long long)r->schedule.warmup, (long long)r->schedule.period, r->schedule.factor,
        (int)r->rule.kind, (double)r->rule.momentum, (double)r->rule.decay, r->clip,
        (int)o->sums.coll.order, (int)o->sums.coll.algo,
        o->sums.coll.wire == VB_WIRE_BF16 ? " bf16" : "", (long long)every);

    if (n < 0 || o->mode != VB_MODE_ASYNC)
        return n < 0 ? NULL : text;
    n = asprintf(&both, "%smode=async\nservers=%d %d %d\nstaleness=%d %lld %d\nin place=%d\n", text,
                 o->async.servers, o->async.dedicated, o->async.replicas > 1, o->async.bounded,
                 (long long)o->async.staleness, o->async.backup, o->async.hogwild);
    free(text);
    return n < 0 ? NULL : both;
}

/* Appends settings that do not change the result, but that ranks must agree on, because the ranks
 * act on them together. */
static void add_conduct(const struct vb_train_opts *o, char *text, size_t size)
{
    size_t len = strlen(text);

    snprintf(text + len, size - len,
             "test data=%08x\ntest limit=%lld\nnumber of steps between tests=%lld\n"
             "number of steps between saves=%lld\ncheckpoints=%d %d\nplan=%d\ndry run=%d\n"
             "size of buckets (--bucket)=%lld\nnumber of steps between checks "
             "(--check-replicas)=%lld\n"
             "size for shared updates (--shared-update-min)=%lld\nnumber of deferred bytes "
             "(--defer-bytes)=%lld\n",
             mark(o->data.test_text), (long long)o->data.test_limit, (long long)o->eval_every,
             (long long)o->save.every, o->save.dir != NULL, o->save.resume, o->plan != NULL,
             o->dry_run, (long long)o->sums.bucket_bytes, (long long)o->sums.check_replicas,
             (long long)o->sums.shared_update_min, (long long)o->sums.defer_bytes);
}

/* Returns the name of a setting for messages: it adds the options to names that do not explain
 * themselves. The names themselves are part of the format of checkpoints. */
static const char *explained(const char *name)
{
    static const struct {
        const char *name, *means;
    } words[] = {{"algorithm", "algorithm (--algo, --wire)"},
                 {"servers", "kind of servers (--servers, --dedicated-servers, --replicas)"},
                 {"staleness", "staleness (--staleness, --backup)"},
                 {"in place", "way to update (--hogwild)"}};
    size_t i;

    for (i = 0; i < VB_COUNT(words); i++)
        if (strcmp(words[i].name, name) == 0)
            return words[i].means;
    return name;
}

static bool is_async(const char *settings)
{
    return strstr(settings, "\nmode=async\n") != NULL;
}

bool vb_train_settings_differ(const char *a, const char *b, char name[64])
{
    char line[64];
    size_t len;

    if (is_async(a) != is_async(b)) { /* the mode also changes other lines of the settings */
        snprintf(name, 64, "mode");
        return true;
    }
    while (*a != '\0' || *b != '\0') {
        len = strcspn(a, "\n");
        if (strcspn(b, "\n") != len || memcmp(a, b, len) != 0) {
            snprintf(line, sizeof(line), "%.*s", (int)strcspn(*a != '\0' ? a : b, "=\n"),
                     *a != '\0' ? a : b);
            snprintf(name, 64, "%s", explained(line));
            return true;
        }
        a += len + (a[len] == '\n');
        b += len + (b[len] == '\n');
    }
    return false;
}

vb_status vb_train_fits_job(const char *settings, const char *of_job)
{
    char name[64];

    if (!vb_train_settings_differ(of_job, settings, name))
        return VB_OK;
    return vb_err(VB_ERR_USAGE,
                  "cannot join: the %s of this worker differs from that of the job; give the same "
                  "options, environment and data",
                  name);
}

vb_status vb_train_agree(const struct vb_train_opts *o, struct vb_group *group,
                         const char *settings)
{
    char own[VB_RECORD_MAX] = {0}, name[64], *all;
    vb_status st;
    int r;

    all = calloc((size_t)vb_group_world(group), VB_RECORD_MAX);
    if (all == NULL)
        return vb_err_sys("calloc");
    snprintf(own, sizeof(own), "%s", settings);
    add_conduct(o, own, sizeof(own));
    st = vb_group_gather(group, own, sizeof(own), all);
    for (r = 1; r < vb_group_world(group) && st == VB_OK; r++)
        if (vb_train_settings_differ(all, all + (size_t)r * VB_RECORD_MAX, name))
            st = vb_err(VB_ERR_USAGE, "rank %d was started with a different %s than rank 0", r,
                        name);
    free(all);
    return st;
}

/* ---- replicas -------------------------------------------------------------------------------- */

static int count_equal(const uint32_t *marks, int n, uint32_t mark)
{
    int i, equal = 0;

    for (i = 0; i < n; i++)
        equal += marks[i] == mark;
    return equal;
}

/* Returns the first rank whose parameters differ from the parameters of most ranks; in a tie, from
 * the parameters of the lowest rank. Returns -1 if all ranks have equal parameters. */
static int first_to_differ(const uint32_t *marks, int n)
{
    uint32_t right = marks[0];
    int i;

    for (i = 1; i < n; i++)
        if (count_equal(marks, n, marks[i]) > count_equal(marks, n, right))
            right = marks[i];
    for (i = 0; i < n; i++)
        if (marks[i] != right)
            return i;
    return -1;
}

vb_status vb_train_compare(struct vb_trainer *t)
{
    uint32_t own, *all;
    const float *params;
    vb_status st;
    int differs;
    size_t n;

    params = t->ops->params(t, &n);
    all = calloc((size_t)t->world, sizeof(*all));
    if (params == NULL || all == NULL) {
        free(all);
        return vb_err(VB_ERR_NO_MEMORY, "no memory to compare %zu parameters", n);
    }
    own = vb_crc32c(0, params, n * sizeof(*params));
    st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    differs = st == VB_OK ? first_to_differ(all, t->world) : -1;
    if (differs >= 0) {
        t->all_know = true;
        st = vb_err(VB_ERR_INPUT,
                    "rank %d (%s) holds different parameters than the other ranks after step %lld; "
                    "all ranks had equal parameters after step %lld",
                    differs, vb_group_host(t->place.group, differs), (long long)t->step,
                    (long long)t->equal_step);
    }
    t->equal_step = t->step;
    free(all);
    vb_lap(&t->laps, VB_PHASE_EVAL);
    return st;
}
