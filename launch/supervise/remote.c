/* SPDX-License-Identifier: MIT
 *
 * Ranks on other hosts: the ssh command for each rank, and the check that all ranks run the same
 * program before any of them gets the secret.
 *
 * The login shell on the other host may be any shell, so all text that it sees is quoted, and a
 * script for sh does the rest. It finds errors that each shell would report in its own way, above
 * all a machine of another architecture, where sh would take the program for a script.
 */
#include "launch/supervise/supervise_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ssh ends after 30 s without an answer of the host. A rank that is still there ends by itself. */
#define SSH                                                                                        \
    "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=6"

/* The arguments of the script are folder, architecture, program, then the arguments of env. */
static const char script[] = "cd \"$1\" 2>/dev/null; "
                             "if [ \"$(uname -m)\" != \"$2\" ]; then "
                             "echo \"its architecture is $(uname -m), not $2\" >&2; exit 126; fi; "
                             "if [ ! -f \"$3\" ] || [ ! -x \"$3\" ]; then "
                             "echo \"there is no program $3\" >&2; exit 127; fi; "
                             "shift 3; exec env \"$@\"";

static vb_status split_ssh(struct vb_remote *r, const char *command)
{
    char *rest = NULL, *arg;

    r->ssh = strdup(command);
    if (r->ssh == NULL)
        return vb_err_sys("strdup");
    for (arg = strtok_r(r->ssh, " \t", &rest); arg != NULL; arg = strtok_r(NULL, " \t", &rest)) {
        if (r->n_ssh_args == VB_SSH_ARGS_MAX)
            return vb_err(VB_ERR_USAGE, "the ssh command \"%.64s\" has more than %d arguments",
                          command, VB_SSH_ARGS_MAX);
        r->ssh_args[r->n_ssh_args++] = arg;
    }
    if (r->n_ssh_args == 0)
        return vb_err(VB_ERR_USAGE, "the ssh command is empty");
    return VB_OK;
}

/* The program has the same path as on this host, unless the user gave another. */
static vb_status find_program(struct vb_remote *r, const char *program)
{
    ssize_t n;

    if (getcwd(r->folder, sizeof(r->folder)) == NULL)
        snprintf(r->folder, sizeof(r->folder), "/");
    if (program != NULL) {
        if ((size_t)snprintf(r->program, sizeof(r->program), "%s", program) >= sizeof(r->program))
            return vb_err(VB_ERR_USAGE, "the path of the program is too long");
        return VB_OK;
    }
    n = readlink("/proc/self/exe", r->program, sizeof(r->program) - 1);
    if (n < 0)
        return vb_err_sys("readlink /proc/self/exe");
    r->program[n] = '\0';
    return VB_OK;
}

static vb_status place_all(struct vb_remote *r, int room)
{
    int i;

    r->names = calloc((size_t)room, sizeof(*r->names));
    r->has_hello = calloc((size_t)room, sizeof(*r->has_hello));
    r->at = calloc((size_t)room, sizeof(*r->at));
    if (r->names == NULL || r->has_hello == NULL || r->at == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < r->hosts->n; i++)
        r->names[r->n_names++] = r->hosts->list[i].name;
    for (i = 0; i < r->hosts->ranks; i++)
        r->at[i] = (int)(vb_hosts_of_rank(r->hosts, i) - r->hosts->list);
    return VB_OK;
}

vb_status vb_remote_create(const struct vb_supervise_opts *o, struct vb_remote **remote_p)
{
    struct vb_remote *r = calloc(1, sizeof(*r));
    vb_status st;

    if (r == NULL)
        return vb_err_sys("calloc");
    r->hosts = o->hosts;
    r->root = o->root;
    r->reaps = o->elastic || o->restarts > 0;
    st = place_all(r, vb_job_takes_more(o) ? 2 * VB_WORLD_MAX : o->hosts->ranks);
    if (st == VB_OK)
        st = split_ssh(r, o->ssh != NULL ? o->ssh : SSH);
    if (st == VB_OK)
        st = find_program(r, o->program);
    if (st == VB_OK)
        st = vb_hello_own(&r->own);
    if (st == VB_OK)
        st = vb_supervise_secret(o, &r->secret);
    if (st != VB_OK) {
        vb_remote_destroy(r);
        return st;
    }
    *remote_p = r;
    return VB_OK;
}

void vb_remote_destroy(struct vb_remote *r)
{
    int i;

    if (r == NULL)
        return;
    vb_secret_free(r->secret);
    for (i = r->hosts->n; i < r->n_names; i++)
        free((char *)r->names[i]);
    free(r->names);
    free(r->ssh);
    free(r->has_hello);
    free(r->at);
    free(r);
}

const char *vb_remote_host(const struct vb_remote *r, int rank)
{
    return r->names[r->at[rank]];
}

void vb_remote_move(struct vb_remote *r, int rank)
{
    r->at[rank] = (r->at[rank] + 1) % r->hosts->n;
}

/* Every rank has one name at most, so there is room for another one. */
int vb_remote_find(struct vb_remote *r, const char *host)
{
    int i;

    for (i = 0; i < r->n_names; i++)
        if (strcmp(r->names[i], host) == 0)
            return i;
    r->names[i] = strdup(host);
    if (r->names[i] == NULL)
        return -1;
    return r->n_names++;
}

void vb_remote_place(struct vb_remote *r, int rank, int at)
{
    r->at[rank] = at;
    r->has_hello[rank] = false;
}

/* Appends an argument in single quotes, inside which no shell changes anything. */
static bool quote(FILE *out, const char *arg)
{
    fputs(" '", out);
    for (; *arg != '\0'; arg++) {
        if (*arg == '\'')
            fputs("'\\''", out);
        else
            fputc(*arg, out);
    }
    return fputc('\'', out) != EOF;
}

static void place_of(const struct vb_remote *r, int rank, struct vb_launch *launch)
{
    const struct vb_host *host = vb_hosts_of_rank(r->hosts, rank); /* NULL: it was added */
    const char *name = r->hosts->list[0].name, *at = strrchr(name, '@');

    *launch = (struct vb_launch){.rank = rank,
                                 .world = host != NULL ? r->hosts->ranks : rank + 1,
                                 .local_rank = host != NULL ? rank - host->first_rank : 0,
                                 .local_ranks = host != NULL ? host->slots : 1,
                                 .has_reaper = r->reaps,
                                 .root_fd = -1,
                                 .begun_fd = -1};
    if (r->root != NULL)
        snprintf(launch->root, sizeof(launch->root), "%s", r->root);
    else
        snprintf(launch->root, sizeof(launch->root), "%.260s:0", at != NULL ? at + 1 : name);
}

/* Returns the command line for the login shell on the other host; NULL: no memory. */
static char *command_line(const struct vb_remote *r, int rank, char *const *argv, bool joins)
{
    struct vb_launch launch;
    char **assignments, *line = NULL;
    size_t len;
    FILE *out;
    int i;

    place_of(r, rank, &launch);
    launch.joins = joins;
    assignments = vb_launch_assignments_create(&launch);
    out = assignments != NULL ? open_memstream(&line, &len) : NULL;
    if (out == NULL) {
        vb_launch_env_destroy(assignments);
        return NULL;
    }
    fputs("exec sh -c", out);
    quote(out, script);
    fputs(" sh", out);
    quote(out, r->folder);
    quote(out, r->own.machine);
    quote(out, r->program);
    for (i = 0; assignments[i] != NULL; i++)
        quote(out, assignments[i]);
    quote(out, r->program);
    for (i = 1; argv[i] != NULL; i++)
        quote(out, argv[i]);
    vb_launch_env_destroy(assignments);
    if (fclose(out) == 0)
        return line;
    free(line);
    return NULL;
}

char **vb_remote_command_create(const struct vb_remote *r, int rank, char *const *argv, bool joins)
{
    char **ssh = calloc((size_t)r->n_ssh_args + 3, sizeof(*ssh));
    char *line = command_line(r, rank, argv, joins);

    if (ssh == NULL || line == NULL) {
        free(ssh);
        free(line);
        return NULL;
    }
    memcpy(ssh, r->ssh_args, (size_t)r->n_ssh_args * sizeof(*ssh));
    ssh[r->n_ssh_args] = (char *)vb_remote_host(r, rank);
    ssh[r->n_ssh_args + 1] = line;
    return ssh;
}

void vb_remote_command_destroy(const struct vb_remote *r, char **argv)
{
    free(argv[r->n_ssh_args + 1]);
    free(argv);
}

enum vb_remote_line vb_remote_take_line(struct vb_remote *r, int rank, const char *line, char *why,
                                        size_t size)
{
    struct vb_hello hello;

    if (!vb_hello_parse(line, &hello))
        return VB_LINE_OTHER;
    if (strcmp(hello.sha256, r->own.sha256) != 0) {
        snprintf(why, size,
                 "%s on host %s is not the program that runs on this host (sha256 %.12s, not "
                 "%.12s): it is another version or another build",
                 r->program, vb_remote_host(r, rank), hello.sha256, r->own.sha256);
        return VB_LINE_WRONG_PROGRAM;
    }
    if (rank == 0 && r->found_root[0] == '\0')
        snprintf(r->found_root, sizeof(r->found_root), "%s", hello.root);
    r->n_hello += !r->has_hello[rank];
    r->has_hello[rank] = true;
    return VB_LINE_HELLO;
}

/* A pipe that is full, because ssh is stopped, or that has no reader is not a matter of the byte.
 */
void vb_remote_send(const int *fds, int n, char byte)
{
    int i;

    for (i = 0; i < n; i++)
        if (fds[i] >= 0 && write(fds[i], &byte, 1) != 1)
            VB_LOG_DEBUG("rank %d gets no byte: %s", i, strerror(errno));
}

void vb_remote_copy_command(const struct vb_remote *r, int rank, char *text, size_t size)
{
    char own[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

    if (n > 0)
        own[n] = '\0';
    snprintf(text, size, "scp %.200s %s:%.200s", own, vb_remote_host(r, rank), r->program);
}

/* What the host said is on the screen already. */
static void explain_early_end(const struct vb_remote *r, int rank, int status,
                              const char *last_line, char *why, size_t size)
{
    const char *host = vb_remote_host(r, rank), *colon = last_line[0] != '\0' ? ": " : "";
    const struct vb_remedy *remedy = vb_remedy_find(last_line);

    if (status == 255 && last_line[0] == '\0') /* ssh would have said why it cannot connect */
        snprintf(why, size, "host %s cannot be reached, or rank %d was killed before it answered",
                 host, rank);
    else if (status == 255)
        snprintf(why, size, "host %s cannot be reached: %s", host,
                 remedy != NULL ? remedy->why : last_line);
    else if (status == 126 || status == 127)
        snprintf(why, size, "host %s cannot run %s%s%s%s%s", host, r->program, colon, last_line,
                 remedy != NULL ? "; " : "", remedy != NULL ? remedy->why : "");
    else if (strncmp(last_line, "error ", 6) == 0 || strncmp(last_line, "  fix: ", 7) == 0)
        snprintf(why, size, "host %s: rank %d cannot start (exit code %d); its message is above",
                 host, rank, status);
    else
        snprintf(why, size, "host %s: %s ended before it answered (exit code %d)%s%s", host,
                 r->program, status, colon, last_line);
}

/* 255 is of ssh itself; 126 and 127 come from the script, a shell or a loader. */
void vb_remote_explain(const struct vb_remote *r, int rank, const siginfo_t *info,
                       const char *last_line, char *why, size_t size)
{
    const char *host = vb_remote_host(r, rank), *colon = last_line[0] != '\0' ? ": " : "";
    int status = info->si_code == CLD_EXITED ? info->si_status : -1;

    if (r->has_hello[rank] && (status == 255 || status < 0)) /* ssh itself may be killed too */
        snprintf(why, size, "rank %d was killed, or the connection to host %s broke%s%s", rank,
                 host, colon, last_line);
    else if (r->has_hello[rank])
        snprintf(why, size, "rank %d on host %s failed with exit code %d", rank, host, status);
    else
        explain_early_end(r, rank, status, last_line, why, size);
}
