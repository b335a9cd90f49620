/* SPDX-License-Identifier: MIT
 *
 * Three checks. Options must fit each other. All ranks must have the same settings and data, and so
 * must a run and the checkpoint that it resumes from; both are compared as text. All ranks must
 * still hold the same parameters.
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

/* Joiners come later, and may have other numbers. */
static vb_status check_inject(const struct vb_train_opts *o)
{
    bool async = o->mode == VB_MODE_ASYNC;
    int i, workers = vb_train_workers(o);

    for (i = 0; i < o->inject.n; i++) {
        const struct vb_inject *inject = &o->inject.list[i];
        char spec[VB_INJECT_TEXT];

        vb_inject_spec(inject, spec);
        if (inject->rank < 0 || inject->rank >= o->group.world)
            return vb_err(VB_ERR_USAGE, "--inject %s: there is no rank %d; the job has %d ranks",
                          spec, inject->rank, o->group.world);
        if (inject->rank >= workers && inject->kind != VB_INJECT_CLOCK &&
            !(inject->kind == VB_INJECT_SLOW && inject->phase == VB_PHASE_UPDATE))
            return vb_err(VB_ERR_USAGE,
                          "--inject %s: rank %d is a server and makes no steps; the workers are "
                          "ranks 0 to %d, and slow:%dxFACTOR:update makes the server slow",
                          spec, inject->rank, workers - 1, inject->rank);
        if (inject->kind == VB_INJECT_SLOW && inject->phase == VB_PHASE_UPDATE && async &&
            !o->async.hogwild && inject->rank < workers)
            return vb_err(VB_ERR_USAGE,
                          "--inject %s: a worker makes no updates in --mode async, its servers do; "
                          "name forward, backward or data",
                          spec);
    }
    return VB_OK;
}

static vb_status check_replay(const struct vb_train_opts *o)
{
    if (o->replay == NULL)
        return VB_OK;
    if (o->mode == VB_MODE_ASYNC)
        return vb_err(VB_ERR_USAGE, "--replay-compute cannot be used with --mode async: only "
                                    "synchronous steps are replayed");
    if (o->until.n > 0)
        return vb_err(VB_ERR_USAGE, "--replay-compute learns nothing, so no condition would ever "
                                    "hold: leave out --until");
    if (o->save.dir != NULL)
        return vb_err(VB_ERR_USAGE, "--replay-compute learns nothing, so there is nothing to save: "
                                    "leave out --checkpoint");
    return VB_OK;
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
    if (check_inject(o) != VB_OK || check_replay(o) != VB_OK)
        return VB_ERR_USAGE;
    if (o->save.dir == NULL && (o->save.resume || o->save.every > 0 || o->save.strict))
        return vb_err(VB_ERR_USAGE,
                      "--resume, --checkpoint-every and --checkpoint-strict need --checkpoint DIR");
    if (o->save.other_data && !o->save.resume)
        return vb_err(VB_ERR_USAGE, "--other-data needs --resume");
    if (o->join.joined != NULL && (o->mode != VB_MODE_ASYNC || o->dry_run))
        return vb_err(VB_ERR_USAGE, "--join needs --mode async and cannot be used with --dry-run");
    if (o->ledger != NULL && o->mode == VB_MODE_ASYNC)
        return vb_err(VB_ERR_USAGE, "--ledger cannot be used with --mode async: its workers have "
                                    "steps of their own");
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

/* A line that decides nothing any more. Checkpoints of earlier versions have other numbers in it.
 */
#define UNCOMPARED "number of steps between checkpoints="

char *vb_train_settings(const struct vb_train_opts *o, const struct vb_recipe *r, const char *data)
{
    /* The line is missing without the option, so older checkpoints can be resumed. */
    const char *rounding = o->fast_math ? "rounding=fast-math\n" : "";
    char *text = NULL, *all = NULL, mode[160] = "";
    int n =
        asprintf(&text,
                 "model=%s\ninput=%d\nnumber of ranks=%d\ndata=%.500s %08x\nnumber of features=%d\n"
                 "test split=%.17g\nglobal batch=%d\nnumber of steps=%lld\nseed=%llu\n"
                 "learning rate=%.17g\nschedule=%d %lld %lld %.17g\nupdate rule=%d %.9g %.9g\n"
                 "clipping=%.17g\norder of sums=%d\nalgorithm=%d%s\n" UNCOMPARED "0\n",
                 o->model, o->data.input, o->group.world, o->data.text, mark(o->data.text),
                 o->data.ask.data.features, o->data.ask.test_share, r->global_batch,
                 (long long)r->steps, (unsigned long long)o->seed, r->schedule.base,
                 (int)r->schedule.kind, (long long)r->schedule.warmup,
                 (long long)r->schedule.period, r->schedule.factor, (int)r->rule.kind,
                 (double)r->rule.momentum, (double)r->rule.decay, r->clip, (int)o->sums.coll.order,
                 (int)o->sums.coll.algo, o->sums.coll.wire == VB_WIRE_BF16 ? " bf16" : "");

    if (n < 0)
        return NULL;
    if (o->mode == VB_MODE_ASYNC)
        snprintf(mode, sizeof(mode),
                 "mode=async\nservers=%d %d %d\nstaleness=%d %lld %d\nin place=%d\n",
                 o->async.servers, o->async.dedicated, o->async.replicas > 1, o->async.bounded,
                 (long long)o->async.staleness, o->async.backup, o->async.hogwild);
    n = asprintf(&all, "%s%s%s%s", text, mode, rounding, data);
    free(text);
    return n < 0 ? NULL : all;
}

/* Appends settings that do not change the result, but that ranks must agree on, because the ranks
 * act on them together. */
static void add_conduct(const struct vb_train_opts *o, char *text, size_t size)
{
    char until[VB_UNTIL_LIST];
    size_t len = strlen(text);

    vb_until_list(&o->until, until);
    snprintf(text + len, size - len,
             "test data=%08x\ntest limit=%lld\nnumber of steps between tests=%lld\n"
             "number of steps between saves=%lld\ncheckpoints=%d %d\nplan=%d\ndry run=%d\n"
             "size of buckets (--bucket)=%lld\nnumber of steps between checks "
             "(--check-replicas)=%lld\ngo on without lost ranks (--elastic)=%d\n"
             "lowest number of ranks (--min-ranks, --wait-ranks)=%d %g\n"
             "size for shared updates (--shared-update-min)=%lld\nnumber of deferred bytes "
             "(--defer-bytes)=%lld\ncondition to stop (--until)=%s\n",
             mark(o->data.test_text), (long long)o->data.test_limit, (long long)o->eval_every,
             (long long)o->save.every, o->save.dir != NULL, o->save.resume, o->plan != NULL,
             o->dry_run, (long long)o->sums.bucket_bytes, (long long)o->sums.check_replicas,
             o->elastic, o->min_ranks, o->wait_ranks_s, (long long)o->sums.shared_update_min,
             (long long)o->sums.defer_bytes, until);
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
                 {"in place", "way to update (--hogwild)"},
                 {"rounding", "rounding (--fast-math)"}};
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

int vb_train_ranks_of(const char *settings)
{
    const char *line = strstr(settings, "\nnumber of ranks=");
    int ranks;

    if (line == NULL || is_async(settings) || sscanf(line, "\nnumber of ranks=%d", &ranks) != 1)
        return 0;
    return ranks >= 1 && ranks <= VB_WORLD_MAX ? ranks : 0;
}

/* Returns the length of the settings without the description of the data. */
static size_t own_len(const char *settings)
{
    const char *data = vb_train_data_part(settings);

    return data != NULL ? (size_t)(data - settings) : strlen(settings);
}

static bool is_compared(const char *line, size_t len)
{
    return len < sizeof(UNCOMPARED) - 1 || memcmp(line, UNCOMPARED, sizeof(UNCOMPARED) - 1) != 0;
}

static size_t line_len(const char *at, const char *end)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));

    return (size_t)((stop != NULL ? stop : end) - at);
}

/* Writes the name of the first line of b that differs from the first line of a. If b's line has a
 * name that a does not know, an option has added it, and it is this line that differs. */
static void name_of(const char *a, const char *a_end, const char *b, const char *b_end,
                    char name[64])
{
    char added[66];

    snprintf(added, sizeof(added), "\n%.*s=", b < b_end ? (int)strcspn(b, "=\n") : 0, b);
    if (a >= a_end || (b < b_end && strstr(a, added) == NULL && strstr(a, added + 1) != a))
        a = b;
    snprintf(name, 64, "%.*s", (int)strcspn(a, "=\n"), a);
}

bool vb_train_settings_differ(const char *a, const char *b, bool other_data, char name[64])
{
    const char *a_end = a + own_len(a), *b_end = b + own_len(b);
    char line[64];
    size_t len, b_len;

    if (is_async(a) != is_async(b)) { /* the mode also changes other lines of the settings */
        snprintf(name, 64, "mode");
        return true;
    }
    while (a < a_end || b < b_end) {
        len = line_len(a, a_end);
        b_len = line_len(b, b_end);
        name_of(a, a_end, b, b_end, line);
        if ((b_len != len || memcmp(a, b, len) != 0) &&
            (is_compared(a, len) || is_compared(b, b_len)) &&
            !(other_data && strcmp(line, "data") == 0)) {
            snprintf(name, 64, "%s", explained(line));
            return true;
        }
        a += len + (a + len < a_end);
        b += b_len + (b + b_len < b_end);
    }
    return false;
}

/* Returns whether a line of the settings is the same in both, or missing in both. */
static bool same_line(const char *a, const char *b, const char *name)
{
    const char *at_a = strstr(a, name), *at_b = strstr(b, name);
    size_t len;

    if (at_a == NULL || at_b == NULL)
        return at_a == at_b;
    len = 1 + strcspn(at_a + 1, "\n");
    return len == 1 + strcspn(at_b + 1, "\n") && memcmp(at_a, at_b, len) == 0;
}

bool vb_train_same_data_options(const char *a, const char *b)
{
    static const char *const names[] = {
        "\ndata=", "\ninput=", "\nnumber of features=", "\ntest split=", "\nseed=", "\ntest data="};
    size_t i, model = strcspn(a, "\n");

    if (strcspn(b, "\n") != model || memcmp(a, b, model) != 0)
        return false;
    for (i = 0; i < VB_COUNT(names); i++)
        if (!same_line(a, b, names[i]))
            return false;
    return true;
}

/* Returns whether the contents of the data differ, although it has the same name. */
static bool other_contents(const char *a, const char *b, char why[VB_DATA_WHY])
{
    const char *of_a = vb_train_data_part(a), *of_b = vb_train_data_part(b);

    return of_a != NULL && of_b != NULL && vb_train_same_data_options(a, b) &&
           vb_train_data_differ(of_a, of_b, false, why);
}

vb_status vb_train_fits_job(const char *settings, const char *of_job)
{
    char name[64], why[VB_DATA_WHY];

    if (other_contents(settings, of_job, why))
        return vb_err(VB_ERR_USAGE,
                      "cannot join: this worker has other data than the job: %s; give the worker "
                      "the data of the job",
                      why);
    if (!vb_train_settings_differ(of_job, settings, false, name))
        return VB_OK;
    return vb_err(VB_ERR_USAGE,
                  "cannot join: the %s of this worker differs from that of the job; give the same "
                  "options, environment and data",
                  name);
}

/* Compares the settings of rank r with those of rank 0. */
static vb_status compare(const struct vb_group *group, const char *of_zero, const char *own, int r)
{
    char name[64], why[VB_DATA_WHY];

    if (other_contents(own, of_zero, why))
        return vb_err(VB_ERR_USAGE,
                      "rank %d (%s) has other data than rank 0 (%s): %s; give all ranks the same "
                      "data",
                      r, vb_group_host(group, r), vb_group_host(group, 0), why);
    if (vb_train_settings_differ(of_zero, own, false, name))
        return vb_err(VB_ERR_USAGE, "rank %d was started with a different %s than rank 0", r, name);
    return VB_OK;
}

vb_status vb_train_agree(const struct vb_train_opts *o, struct vb_group *group,
                         const char *settings)
{
    const char *data = vb_train_data_part(settings);
    char own[VB_RECORD_MAX] = {0}, *all;
    size_t len = own_len(settings);
    vb_status st;
    int r;

    all = calloc((size_t)vb_group_world(group), VB_RECORD_MAX);
    if (all == NULL)
        return vb_err_sys("calloc");
    snprintf(own, sizeof(own), "%.*s", (int)len, settings);
    add_conduct(o, own, sizeof(own));
    len = strlen(own);
    snprintf(own + len, sizeof(own) - len, "%s", data != NULL ? data : "");
    st = vb_group_gather(group, own, sizeof(own), all);
    for (r = 1; r < vb_group_world(group) && st == VB_OK; r++)
        st = compare(group, all, all + (size_t)r * VB_RECORD_MAX, r);
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
    int differs, rank;
    size_t n;

    params = t->ops->params(t, &n);
    all = calloc((size_t)t->world, sizeof(*all));
    if (params == NULL || all == NULL) {
        free(all);
        return vb_err(VB_ERR_NO_MEMORY, "no memory to compare %zu parameters", n);
    }
    /* The parameters of the last step may have been replaced since (vb_until_settle()). */
    own = t->view > 0 && t->equal_step == t->step ? t->equal_mark
                                                  : vb_crc32c(0, params, n * sizeof(*params));
    st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    differs = st == VB_OK ? first_to_differ(all, t->world) : -1;
    if (differs >= 0) {
        t->all_know = true;
        rank = vb_group_view_member(t->place.group, differs);
        st = vb_err(VB_ERR_INPUT,
                    "rank %d (%s) holds different parameters than the other ranks after step %lld; "
                    "all ranks had equal parameters after step %lld",
                    rank, vb_group_host(t->place.group, rank), (long long)t->step,
                    (long long)t->equal_step);
    }
    if (st == VB_OK) {
        t->equal_step = t->step;
        t->equal_mark = own;
    }
    free(all);
    vb_lap(&t->laps, VB_PHASE_EVAL);
    return st;
}
