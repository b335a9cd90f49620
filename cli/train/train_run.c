/* SPDX-License-Identifier: MIT
 *
 * The run folder of verbena train: run.json, the plan, and what an earlier run has left there.
 * docs/run.md describes the folder.
 *
 * run.json is written when training begins, so that a run can be watched, and again at its end. The
 * keys of the final object are at the top level; everything else is below "run". Each time the file
 * is replaced as a whole.
 */
#include "cli/train/cmd_train.h"
#include "topo/topo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FORMAT 1 /* of run.json; new keys keep it */
#define RESERVE ".reserve"
#define RESERVE_BYTES 32768 /* and for each rank: */
#define RESERVE_RANK_BYTES 4096

#ifdef __clang__
#define COMPILER __VERSION__ /* begins with "Clang" */
#else
#define COMPILER "gcc " __VERSION__
#endif

/* ---- what the run is ------------------------------------------------------------------------- */

static void json_time(struct vb_json *json, const char *key, time_t when)
{
    char text[32] = "";
    struct tm tm;

    if (gmtime_r(&when, &tm) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    vb_json_text(json, key, text);
}

static void json_command(struct vb_json *json, const struct train_run *run)
{
    struct vb_opt_value value;
    char cwd[PATH_MAX];
    int i;

    vb_json_array(json, "command");
    for (i = 0; i < run->argc; i++)
        vb_json_text(json, NULL, run->argv[i]);
    vb_json_end(json);
    vb_json_text(json, "directory", getcwd(cwd, sizeof(cwd)));
    vb_json_array(json, "options");
    for (i = 0; vb_opts_at(run->parsed, i, &value); i++) {
        vb_json_object(json, NULL);
        vb_json_text(json, "name", value.name);
        vb_json_text(json, "value", value.text);
        vb_json_text(json, "source", value.source);
        vb_json_end(json);
    }
    vb_json_end(json);
}

static void json_digest(struct vb_json *json, const char *key, uint64_t digest)
{
    char text[24];

    snprintf(text, sizeof(text), "%016llx", (unsigned long long)digest);
    vb_json_text(json, key, text);
}

static void json_data(struct vb_json *json, const struct train_run *run)
{
    const struct vb_run_facts *f = &run->facts;

    vb_json_object(json, "data");
    vb_json_text(json, "spec", run->o->data.text);
    vb_json_text(json, "test_spec", run->o->data.test_text);
    vb_json_int(json, "rows", f->train_rows);
    vb_json_int(json, "test_rows", f->test_rows);
    vb_json_int(json, "features", f->features);
    vb_json_int(json, "classes", f->classes);
    json_digest(json, "digest", f->data_digest[0]);
    json_digest(json, "test_digest", f->data_digest[1]);
    vb_json_end(json);
}

/* ---- where it runs --------------------------------------------------------------------------- */

/* result: of a run that has ended; otherwise NULL. */
static void json_ranks(struct vb_json *json, const struct train_run *run,
                       const struct vb_train_result *result)
{
    const struct vb_run_facts *f = &run->facts;
    int i;

    vb_json_array(json, "ranks");
    for (i = 0; i < f->n_ranks; i++)
        vb_rank_facts_json(json, NULL, &f->ranks[i]);
    if (result != NULL && run->o->mode == VB_MODE_ASYNC)
        cli_train_json_joined(json, run, result);
    vb_json_end(json);
}

static const char *host_of(const struct vb_run_facts *f, const struct vb_train_result *result,
                           int i)
{
    return i < f->n_ranks ? f->ranks[i].host : result->per_rank[i - f->n_ranks].host;
}

/* The hosts of workers that have joined are known at the end. */
static void json_hosts(struct vb_json *json, const struct vb_run_facts *f,
                       const struct vb_train_result *result)
{
    int i, k, n = f->n_ranks + (result != NULL ? result->rows : 0);

    vb_json_array(json, "hosts");
    for (i = 0; i < n; i++) {
        for (k = 0; k < i && strcmp(host_of(f, result, k), host_of(f, result, i)) != 0; k++)
            ;
        if (k == i)
            vb_json_text(json, NULL, host_of(f, result, i));
    }
    vb_json_end(json);
}

static void json_versions(struct vb_json *json)
{
    struct vb_k_onednn onednn;
    struct vb_k_blas blas;
    char text[96];

    vb_json_object(json, "versions");
    vb_json_text(json, "verbena", VB_VERSION);
    vb_json_text(json, "compiler", COMPILER);
    vb_json_text(json, "oneDNN", vb_k_onednn_probe(&onednn) == VB_OK ? onednn.version : NULL);
    vb_k_blas_probe(&blas);
    vb_json_text(json, "BLAS", blas.version);
    vb_net_verbs_version(text, sizeof(text));
    vb_json_text(json, "libibverbs", text);
    vb_json_text(json, "hwloc", vb_topo_library());
    vb_json_text(json, "json", vb_json_library());
    vb_json_end(json);
}

static void json_plan(struct vb_json *json, const char *plan)
{
    char digest[65];

    if (plan != NULL && plan[0] != '\0')
        vb_sha256(plan, strlen(plan), digest);
    vb_json_text(json, "plan", plan);
    vb_json_text(json, "plan_sha256", plan != NULL && plan[0] != '\0' ? digest : NULL);
}

/* Empty for a single rank, which waits for nobody. */
static void json_times(struct vb_json *json, const struct vb_group_opts *group)
{
    struct vb_times t;

    vb_times_of(group->detect_s, group->patience, &t);
    vb_json_object(json, "times");
    if (group->world > 1) {
        vb_json_int(json, "silent_ms", t.silent_ms);
        vb_json_int(json, "beat_ms", t.beat_ms);
        vb_json_int(json, "sense_ms", t.sense_ms);
        vb_json_int(json, "accuse_ms", t.accuse_ms);
        vb_json_int(json, "close_ms", t.close_ms);
        vb_json_int(json, "probe_ms", t.probe_ms);
        vb_json_int(json, "kernel_ms", t.kernel_ms);
        vb_json_int(json, "kernel_moving_ms", t.kernel_moving_ms);
        vb_json_int(json, "settle_ms", t.settle_ms);
        vb_json_int(json, "grace_ms", t.grace_ms);
        vb_json_int(json, "qp_ms", t.qp_ms);
        vb_json_int(json, "qp_timeout_exponent", t.qp_timeout);
        vb_json_int(json, "qp_retries", t.qp_retries);
        vb_json_int(json, "timeout_ms", (int64_t)(group->timeout_ms * group->patience));
    }
    vb_json_end(json);
}

/* ---- run.json -------------------------------------------------------------------------------- */

static void json_run(struct vb_json *json, const struct train_run *run, const char *state,
                     const char *why, const struct vb_train_result *result)
{
    const struct vb_run_facts *f = &run->facts;
    uint64_t lost = 0;
    int i;

    vb_json_object(json, "run");
    vb_json_int(json, "format", FORMAT);
    vb_json_text(json, "state", state);
    vb_json_text(json, "why", why);
    vb_json_int(json, "lead", run->number);
    json_time(json, "started", f->unix_ns > 0 ? (time_t)(f->unix_ns / 1000000000u) : time(NULL));
    vb_json_int(json, "started_unix_ns", (int64_t)f->unix_ns);
    vb_json_int(json, "started_clock_ns", (int64_t)f->clock_ns);
    json_time(json, "written", time(NULL));
    vb_json_text(json, "model", run->o->model);
    vb_json_int(json, "seed", (int64_t)run->o->seed);
    vb_json_int(json, "steps", f->steps);
    vb_json_int(json, "steps_per_epoch", f->steps_per_epoch);
    vb_json_int(json, "global_batch", f->global_batch);
    vb_json_int(json, "resumed", f->resumed);
    cli_train_json_recipe(json, &f->chosen);
    cli_train_json_tools(json, run->o);
    json_command(json, run);
    json_data(json, run);
    json_hosts(json, f, result);
    json_ranks(json, run, result);
    json_times(json, &run->o->group);
    vb_json_text(json, "join", run->doors[0] != '\0' ? run->doors : NULL); /* for --join */
    vb_json_text(json, "transport_why", f->transport_why[0] != '\0' ? f->transport_why : NULL);
    json_plan(json, f->plan);
    json_versions(json);
    for (i = 0; result != NULL && i < result->rows; i++)
        lost += (uint64_t)result->per_rank[i].records_lost;
    if (result != NULL) {
        vb_json_int(json, "records_lost", (int64_t)lost);
        cli_train_json_clocks(json, result);
    }
    vb_json_end(json);
}

static vb_status print_json(const void *json, FILE *out)
{
    return vb_json_print(json, out);
}

static vb_status replace_json(const char *dir, const struct vb_json *json)
{
    char path[PATH_MAX];
    vb_status st = vb_dir_make(dir);

    snprintf(path, sizeof(path), "%s/run.json", dir);
    return st == VB_OK ? vb_file_print(path, print_json, json, NULL) : st;
}

static vb_status write_plan(const struct train_run *run)
{
    const char *plan = run->facts.plan;
    char path[PATH_MAX];

    if (plan == NULL || plan[0] == '\0')
        return VB_OK;
    snprintf(path, sizeof(path), "%s/plan", run->dir);
    return vb_file_replace(path, plan, strlen(plan));
}

/* Keeps some room on the disk, so that the result can be written even if records fill the disk. */
static void reserve(const struct train_run *run)
{
    off_t bytes = RESERVE_BYTES + (off_t)run->facts.n_ranks * RESERVE_RANK_BYTES;
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%s/" RESERVE, run->dir);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return;
    if (posix_fallocate(fd, 0, bytes) != 0)
        unlink(path);
    close(fd);
}

static void release(const char *dir)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/" RESERVE, dir);
    unlink(path);
}

static vb_status write_state(const struct train_run *run, const char *state, const char *why)
{
    struct vb_json *json = cli_json_object();
    vb_status st;

    vb_json_text(json, "model", run->o->model);
    json_run(json, run, state, why, NULL);
    vb_json_end(json);
    st = replace_json(run->dir, json);
    vb_json_destroy(json);
    return st;
}

void cli_train_run_begun(const struct train_run *run)
{
    vb_status st = write_state(run, "running", NULL);

    if (st == VB_OK)
        st = write_plan(run);
    if (st != VB_OK)
        VB_LOG_WARN("training goes on; nothing in %s tells that it runs", run->dir);
    reserve(run);
}

/* Returns whether another rank leads the run in this folder, because it has lost this one. */
static bool is_led(const struct train_run *run, const char *path)
{
    struct vb_json *json = access(path, R_OK) == 0 ? vb_json_read(path) : NULL;
    double lead = json != NULL ? vb_json_get_real(json, "run.lead") : -1;

    vb_json_destroy(json);
    return run->o->elastic && lead > run->number;
}

void cli_train_run_led(struct train_run *run, bool far)
{
    vb_status st = VB_OK;

    pthread_mutex_lock(&run->lock);
    run->leads = true;
    if (far)
        st = cli_train_run_prepare(run->dir, run->o->run.append, run->o->group.world);
    if (st == VB_OK && !run->ended)
        cli_train_run_begun(run);
    pthread_mutex_unlock(&run->lock);
}

void cli_train_run_failed(const struct train_run *run, vb_status status)
{
    const char *error = vb_log_first_error();
    char path[PATH_MAX];

    /* A run that could not even be resumed leaves the earlier one as it is. */
    snprintf(path, sizeof(path), "%s/run.json", run->dir);
    if (run->facts.n_ranks == 0 && run->o->run.append && access(path, F_OK) == 0)
        return;
    if (is_led(run, path))
        return;
    release(run->dir);
    if (write_state(run, "failed", error[0] != '\0' ? error : vb_status_str(status)) != VB_OK)
        VB_LOG_WARN("%s/run.json does not tell that the run has failed", run->dir);
}

vb_status cli_train_run_ended(const struct train_run *run, const char *mode,
                              const struct vb_train_result *result)
{
    struct vb_json *json = cli_json_object();
    const char *why = result->stopped != 0 ? cli_train_signal(result->stopped) : NULL;
    vb_status st;

    cli_train_json(json, mode, run->o, result);
    json_run(json, run, result->stopped != 0 ? "stopped" : "ended", why, result);
    vb_json_end(json);
    release(run->dir);
    st = replace_json(run->dir, json);
    if (st == VB_OK)
        st = write_plan(run);
    vb_json_destroy(json);
    return st;
}

void cli_train_run_dead(const char *dir, const char *why)
{
    char path[PATH_MAX];
    struct vb_json *json;
    const char *state;

    snprintf(path, sizeof(path), "%s/run.json", dir);
    if (access(path, R_OK | W_OK) != 0)
        return;
    release(dir);
    json = vb_json_read(path);
    state = vb_json_get_text(json, "run.state");
    if (state != NULL && strcmp(state, "running") == 0) {
        vb_json_set_text(json, "run", "state", "failed");
        vb_json_set_text(json, "run", "why", why);
        (void)replace_json(dir, json); /* has logged the cause */
    }
    vb_json_destroy(json);
}

/* ---- an earlier run in the folder ------------------------------------------------------------ */

static bool ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), n = strlen(end);

    return len >= n && strcmp(name + len - n, end) == 0;
}

static bool is_event_file(const char *name)
{
    return strncmp(name, "events.out.tfevents.", 20) == 0;
}

/* Removes the records of a rank. is_used: this run uses the folder, and the supervisor may have
 * begun a new log there. */
static void clear_rank(int dir_fd, const char *name, bool is_used)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(dir)) != NULL)
        if (ends_with(entry->d_name, ".bin") || ends_with(entry->d_name, ".jsonl") ||
            is_event_file(entry->d_name) || (!is_used && strcmp(entry->d_name, "log.txt") == 0))
            unlinkat(fd, entry->d_name, 0);
    closedir(dir);
    if (!is_used)
        unlinkat(dir_fd, name, AT_REMOVEDIR); /* fails if the user has files there */
}

/* Removes what an earlier run has recorded, so that no reader takes it for a part of this one.
 * Other files stay. */
static void clear_earlier(const char *path, int world)
{
    static const char *const names[] = {"run.json",     "plan",          "evals.bin",
                                        "events.jsonl", "trace.pftrace", "trace.json",
                                        "metrics.prom", RESERVE};
    DIR *dir = opendir(path);
    const struct dirent *entry;
    size_t i;
    int rank;
    char rest;

    if (dir == NULL)
        return;
    for (i = 0; i < VB_COUNT(names); i++)
        unlinkat(dirfd(dir), names[i], 0);
    while ((entry = readdir(dir)) != NULL)
        if (sscanf(entry->d_name, "rank%d%c", &rank, &rest) == 1)
            clear_rank(dirfd(dir), entry->d_name, rank < world);
        else if (is_event_file(entry->d_name))
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

vb_status cli_train_run_prepare(const char *dir, bool append, int world)
{
    static const char *const names[] = {"run.json", "plan", "evals.bin"};
    vb_status st = vb_dir_make(dir);
    char path[PATH_MAX];
    size_t i;

    for (i = 0; st == VB_OK && i < VB_COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        st = vb_file_may_replace(path);
    }
    if (st == VB_OK && access(dir, W_OK | X_OK) != 0)
        st = vb_err_sys("cannot write to the run folder %s", dir);
    if (st == VB_OK && !append)
        clear_earlier(dir, world);
    return st;
}

/* Copies the log of a rank that no supervisor of ours has started. */
void cli_train_run_log(const char *dir, int rank, bool append)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%s/rank%d", dir, rank);
    if (vb_dir_make(path) != VB_OK)
        return;
    snprintf(path, sizeof(path), "%s/rank%d/log.txt", dir, rank);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (append ? 0 : O_TRUNC),
              0666);
    if (fd < 0)
        VB_LOG_WARN("there is no log of this rank: cannot write %s: %s", path, strerror(errno));
    vb_log_copy_to(fd);
}
