/* SPDX-License-Identifier: MIT
 *
 * A supervisor tells a rank its place in the job through environment variables, which only this
 * file writes and reads. The secret comes through a pipe, because an environment is visible in
 * /proc and every child inherits it. VB_SECRET, for ranks started by hand, is the exception.
 */
#include "launch/launch_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    RANK,
    WORLD,
    LOCAL_RANK,
    LOCAL_RANKS,
    SECRET_FD,
    ROOT_FD,
    BEGUN_FD,
    REAPED_FD,
    JOINS,
    TERMINAL,
    ROOT,
    SECRET,
    LAUNCH,
    N_NAMES
};

/* The values of the first N_NUMBERS are whole numbers. */
#define N_NUMBERS ROOT

/* How a rank on another host is started: it reads standard input, and may have a reaper. */
#define LAUNCH_STDIN "stdin"
#define LAUNCH_REAPER "stdin-reaper"

#define BEGUN_CODE_BYTES 16 /* too long to be guessed */

static const char *const names[N_NAMES] = {
    [RANK] = "VB_RANK",
    [WORLD] = "VB_WORLD",
    [LOCAL_RANK] = "VB_LOCAL_RANK",
    [LOCAL_RANKS] = "VB_LOCAL_RANKS",
    [SECRET_FD] = "VB_SECRET_FD",
    [ROOT_FD] = "VB_ROOT_FD",
    [BEGUN_FD] = "VB_BEGUN_FD",
    [REAPED_FD] = "VB_REAPED_FD",
    [JOINS] = "VB_JOINS",
    [TERMINAL] = "VB_TERMINAL",
    [ROOT] = "VB_ROOT",
    [SECRET] = "VB_SECRET",
    [LAUNCH] = "VB_LAUNCH",
};

/* Options that a supervisor reads from its environment and does not pass on to ranks. */
static const char *const launcher_options[] = {"VB_HOSTS", "VB_SSH",         "VB_PROGRAM",
                                               "VB_RANKS", "VB_SECRET_FILE", "VB_LOGS"};

/* ---- reading --------------------------------------------------------------------------------- */

static const char *value_of(int name)
{
    return vb_launch_variable(names[name]);
}

/* Reads a number from min to max, which a supervisor always sets. */
static vb_status read_number(int name, int min, int max, int *value_p)
{
    const char *text = value_of(name);
    int64_t value;

    if (text == NULL)
        return vb_err(VB_ERR_USAGE, "%s is set, but %s is not",
                      names[value_of(LAUNCH) != NULL ? LAUNCH : SECRET_FD], names[name]);
    if (!vb_parse_int(text, &value) || value < min || value > max)
        return vb_err(VB_ERR_USAGE, "%s %.64s: must be a number from %d to %d", names[name], text,
                      min, max);
    *value_p = (int)value;
    return VB_OK;
}

/* Processes that this one starts must not inherit the descriptor. */
static vb_status keep_fd(int name, int fd)
{
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return vb_err_sys("%s %d", names[name], fd);
    return VB_OK;
}

static vb_status read_secret_fd(unsigned char secret[VB_SECRET_BYTES])
{
    size_t len = 0;
    ssize_t n;
    int fd = -1;
    vb_status st = read_number(SECRET_FD, 0, INT32_MAX, &fd);

    if (st == VB_OK)
        st = keep_fd(SECRET_FD, fd);
    if (st != VB_OK)
        return st;
    while (len < VB_SECRET_BYTES) {
        n = read(fd, secret + len, VB_SECRET_BYTES - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    if (len < VB_SECRET_BYTES)
        return vb_err(VB_ERR_INPUT, "%s %d: the secret ends after %zu bytes", names[SECRET_FD], fd,
                      len);
    return VB_OK;
}

static vb_status read_fd(int name, int *fd_p)
{
    vb_status st;

    if (value_of(name) == NULL)
        return VB_OK;
    st = read_number(name, 0, INT32_MAX, fd_p);
    return st == VB_OK ? keep_fd(name, *fd_p) : st;
}

static vb_status read_place(struct vb_launch *launch)
{
    const char *root = value_of(ROOT);
    vb_status st = read_number(WORLD, 1, VB_WORLD_MAX, &launch->world);

    if (st == VB_OK)
        st = read_number(RANK, 0, launch->world - 1, &launch->rank);
    if (st == VB_OK)
        st = read_number(LOCAL_RANKS, 1, launch->world, &launch->local_ranks);
    if (st == VB_OK)
        st = read_number(LOCAL_RANK, 0, launch->local_ranks - 1, &launch->local_rank);
    if (st != VB_OK)
        return st;
    if (root == NULL || strlen(root) >= sizeof(launch->root))
        return vb_err(VB_ERR_USAGE, "%s is not set or is too long", names[ROOT]);
    snprintf(launch->root, sizeof(launch->root), "%s", root);
    st = read_fd(ROOT_FD, &launch->root_fd);
    if (st == VB_OK)
        st = read_fd(BEGUN_FD, &launch->begun_fd);
    return st == VB_OK ? read_fd(REAPED_FD, &launch->reaped_fd) : st;
}

/* Of what the supervisor says while the job runs. */
static vb_status listen_for_news(struct vb_launch *launch)
{
    if (launch->reaped_fd <= 0 && !launch->over_ssh)
        return VB_OK;
    launch->answers = vb_answers_create();
    launch->reaped = launch->answers != NULL ? vb_reaped_create(launch->answers) : NULL;
    return launch->reaped != NULL ? VB_OK : vb_err_sys("calloc");
}

static vb_status read_joins(struct vb_launch *launch)
{
    int yes = 0;
    vb_status st = value_of(JOINS) != NULL ? read_number(JOINS, 0, 1, &yes) : VB_OK;

    launch->joins = yes == 1;
    return st;
}

/* Set only for ranks on the supervisor's host: ssh may mix the lines of others with its own. */
static vb_status read_terminal(struct vb_launch *launch)
{
    int yes = 0;
    vb_status st = value_of(TERMINAL) != NULL ? read_number(TERMINAL, 0, 1, &yes) : VB_OK;

    launch->terminal = yes == 1;
    return st;
}

static vb_status read_remote(struct vb_launch *launch, int64_t silent_ms)
{
    vb_status st;

    launch->supervised = launch->over_ssh = true;
    launch->has_reaper = strcmp(value_of(LAUNCH), LAUNCH_REAPER) == 0;
    if (!launch->has_reaper && strcmp(value_of(LAUNCH), LAUNCH_STDIN) != 0)
        return vb_err(VB_ERR_USAGE, "%s %.64s: must be " LAUNCH_STDIN " or " LAUNCH_REAPER,
                      names[LAUNCH], value_of(LAUNCH));
    st = read_place(launch);
    if (st == VB_OK)
        st = read_joins(launch);
    if (st == VB_OK)
        st = listen_for_news(launch);
    if (st == VB_OK)
        st = vb_launch_read_stdin(launch, getenv("SSH_CONNECTION"), silent_ms);
    launch->has_secret = true;
    return st;
}

bool vb_launch_is_joiner(void)
{
    return value_of(JOINS) != NULL;
}

vb_status vb_launch_read(int64_t silent_ms, struct vb_launch *launch_p)
{
    struct vb_launch launch = {.root_fd = -1, .begun_fd = -1, .rank = -1, .local_rank = -1};
    vb_status st = VB_OK;
    int i;

    if (value_of(LAUNCH) != NULL) {
        st = read_remote(&launch, silent_ms);
    } else if (value_of(SECRET_FD) != NULL) {
        launch.supervised = launch.has_secret = true;
        st = read_secret_fd(launch.secret);
        if (st == VB_OK)
            st = read_place(&launch);
        if (st == VB_OK)
            st = read_joins(&launch);
        if (st == VB_OK)
            st = listen_for_news(&launch);
        if (st == VB_OK)
            st = read_terminal(&launch);
        prctl(PR_SET_NAME, "verbena"); /* started as /proc/self/exe, its name would be "exe" */
    } else if (value_of(SECRET) != NULL) {
        launch.has_secret = true;
        st = vb_secret_parse(value_of(SECRET), launch.secret);
        explicit_bzero(getenv(names[SECRET]), strlen(value_of(SECRET))); /* also in /proc */
    }
    for (i = 0; i < N_NAMES; i++)
        unsetenv(names[i]);
    if (st == VB_OK)
        *launch_p = launch;
    explicit_bzero(&launch, sizeof(launch));
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool is_among(const char *entry, const char *const *list, size_t n)
{
    size_t len, i;

    for (i = 0; i < n; i++) {
        len = strlen(list[i]);
        if (strncmp(entry, list[i], len) == 0 && entry[len] == '=')
            return true;
    }
    return false;
}

static bool is_foreign(const char *entry)
{
    return !is_among(entry, names, N_NAMES);
}

/* The options that a rank on another host needs: ssh passes no variables on by itself. */
static bool is_option(const char *entry)
{
    return strncmp(entry, "VB_", 3) == 0 && is_foreign(entry) &&
           !is_among(entry, launcher_options, VB_COUNT(launcher_options));
}

static bool add_all(char **env, size_t n, const struct vb_launch *launch, int secret_fd)
{
    int values[N_NUMBERS] = {
        [RANK] = launch->rank,
        [WORLD] = launch->world,
        [LOCAL_RANK] = launch->local_rank,
        [LOCAL_RANKS] = launch->local_ranks,
        [SECRET_FD] = secret_fd,
        [ROOT_FD] = launch->root_fd,
        [BEGUN_FD] = launch->begun_fd,
        [REAPED_FD] = launch->reaped_fd > 0 ? launch->reaped_fd : -1,
        [JOINS] = launch->joins ? 1 : -1,
        [TERMINAL] = launch->terminal ? 1 : -1,
    };
    int i;

    for (i = 0; i < N_NUMBERS; i++)
        if (values[i] >= 0 && asprintf(&env[n++], "%s=%d", names[i], values[i]) < 0) {
            env[n - 1] = NULL;
            return false;
        }
    if (asprintf(&env[n], "%s=%s", names[ROOT], launch->root) >= 0)
        return true;
    env[n] = NULL;
    return false;
}

/* Returns the wanted part of the environment, `first` unless NULL, and the variables for launch. */
static char **env_create(bool (*wanted)(const char *entry), const char *first,
                         const struct vb_launch *launch, int secret_fd)
{
    size_t n = 0, i;
    char **env;

    while (environ[n] != NULL)
        n++;
    env = calloc(n + N_NAMES + 1, sizeof(*env));
    if (env == NULL)
        return NULL;
    for (n = 0, i = 0; environ[i] != NULL; i++) {
        if (!wanted(environ[i]))
            continue;
        env[n] = strdup(environ[i]);
        if (env[n++] == NULL)
            goto err_env;
    }
    if (first != NULL) {
        env[n] = strdup(first);
        if (env[n++] == NULL)
            goto err_env;
    }
    if (add_all(env, n, launch, secret_fd))
        return env;

err_env:
    vb_launch_env_destroy(env);
    return NULL;
}

char **vb_launch_env_create(const struct vb_launch *launch, int secret_fd)
{
    return env_create(is_foreign, NULL, launch, secret_fd);
}

char **vb_launch_assignments_create(const struct vb_launch *launch)
{
    struct vb_launch place = *launch;

    place.root_fd = place.begun_fd = place.reaped_fd = -1;
    return env_create(is_option,
                      launch->has_reaper ? "VB_LAUNCH=" LAUNCH_REAPER : "VB_LAUNCH=" LAUNCH_STDIN,
                      &place, -1);
}

void vb_launch_env_destroy(char **env)
{
    size_t i;

    if (env == NULL)
        return;
    for (i = 0; env[i] != NULL; i++)
        free(env[i]);
    free(env);
}

/* The code is made from the job's secret, so no other output can be mistaken for this line. */
vb_status vb_launch_begun_line(const unsigned char secret[VB_SECRET_BYTES],
                               char line[VB_BEGUN_TEXT])
{
    unsigned char code[VB_SECRET_BYTES];
    vb_status st = vb_secret_derive(secret, "verbena begun  1", "", code);
    int n, i;

    if (st != VB_OK)
        return st;
    n = snprintf(line, VB_BEGUN_TEXT, "verbena-begun 1 ");
    for (i = 0; i < BEGUN_CODE_BYTES; i++)
        n += snprintf(line + n, VB_BEGUN_TEXT - (size_t)n, "%02x", code[i]);
    return VB_OK;
}

void vb_launch_group(struct vb_launch *launch, struct vb_group_opts *group)
{
    group->lost = vb_launch_tell_lost;
    group->lost_arg = launch;
    if (!launch->supervised)
        return;
    group->rank = launch->rank;
    group->world = launch->world;
    group->root = launch->root;
    group->root_fd = launch->root_fd;
}

vb_status vb_launch_take_secret(struct vb_launch *launch, unsigned char **secret_p)
{
    unsigned char *secret = vb_secret_alloc();

    if (secret == NULL)
        return VB_ERR_NO_MEMORY;
    memcpy(secret, launch->secret, VB_SECRET_BYTES);
    explicit_bzero(launch->secret, sizeof(launch->secret));
    *secret_p = secret;
    return VB_OK;
}

void vb_launch_tell_begun(const struct vb_launch *launch)
{
    if (!launch->supervised)
        return;
    if (launch->begun_fd >= 0 && write(launch->begun_fd, "begun\n", 6) != 6)
        VB_LOG_WARN("the supervisor cannot be told that training has begun");
    if (launch->over_ssh)
        fprintf(stderr, "%s\n", launch->begun_line);
}

/* The pipe never blocks a writer. If it is full, the supervisor has been told enough. */
void vb_launch_tell_lost(void *arg, int peer, const char *why)
{
    const struct vb_launch *launch = arg;
    char line[VB_NEWS_TEXT];
    int n;

    if (launch->supervised && launch->begun_fd >= 0) {
        n = snprintf(line, sizeof(line), "%d lost %d %.*s\n", launch->rank, peer, VB_NEWS_WHY - 1,
                     why);
        if (write(launch->begun_fd, line, (size_t)n) != n)
            VB_LOG_DEBUG("the supervisor cannot be told that rank %d is lost", peer);
    }
    if (launch->over_ssh)
        dprintf(STDERR_FILENO, "%s lost %d %.*s\n", launch->begun_line, peer, VB_NEWS_WHY - 1, why);
}

bool vb_launch_tell(const struct vb_launch *launch, const char *line, int n)
{
    char text[VB_NEWS_DOORS + 32];
    bool told = true;

    n = snprintf(text, sizeof(text), "%d %.*s\n", launch->rank, n, line);
    if (launch->supervised && launch->begun_fd >= 0)
        told = write(launch->begun_fd, text, (size_t)n) == n;
    if (launch->over_ssh)
        dprintf(STDERR_FILENO, "%s %s\n", launch->begun_line, line);
    return told;
}

void vb_launch_tell_doors(const struct vb_launch *launch, const char *doors)
{
    char line[VB_NEWS_DOORS + 8];
    int n = snprintf(line, sizeof(line), "doors %.*s", VB_NEWS_DOORS - 1, doors);

    if (!vb_launch_tell(launch, line, n))
        VB_LOG_WARN("the supervisor cannot be told where others can join");
}

void vb_launch_tell_number(const struct vb_launch *launch, int number)
{
    char line[32];
    int n = snprintf(line, sizeof(line), "number %d", number);

    if (!vb_launch_tell(launch, line, n))
        VB_LOG_WARN("the supervisor cannot be told that this process is rank %d now", number);
}

void vb_launch_tell_over(const struct vb_launch *launch, int reporter)
{
    char line[32];
    int n = snprintf(line, sizeof(line), "over %d", reporter);

    if (!vb_launch_tell(launch, line, n))
        VB_LOG_WARN("the supervisor cannot be told that rank %d has reported", reporter);
}

void vb_launch_tell_trains(const struct vb_launch *launch, int number)
{
    char line[32];
    int n = snprintf(line, sizeof(line), "trains %d", number);

    if (!vb_launch_tell(launch, line, n))
        VB_LOG_WARN("the supervisor cannot be told that rank %d has joined", number);
}
