/* SPDX-License-Identifier: MIT
 *
 * Ranks on other hosts: the ssh command for each, and what must be so before any of them gets the
 * secret. A rank's first line says which program it is; the job goes on when all have said theirs,
 * and all are the same.
 *
 * The login shell over there may be any, so everything it sees is quoted, and a script for the
 * plain sh does the rest: it finds out what would otherwise end in some shell's own words, a
 * machine of another kind above all, whose sh would take the program for a script.
 */
#include "engine/supervise_priv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SSH "ssh -o BatchMode=yes -o ConnectTimeout=10"
#define SSH_WORDS_MAX 32

/* Arguments: folder, kind of machine, program, then the words for env. */
static const char script[] =
    "cd \"$1\" 2>/dev/null; "
    "if [ \"$(uname -m)\" != \"$2\" ]; then "
    "echo \"it is a machine of another kind: $(uname -m), not $2\" >&2; exit 126; fi; "
    "if [ ! -f \"$3\" ] || [ ! -x \"$3\" ]; then "
    "echo \"there is no program $3\" >&2; exit 127; fi; "
    "shift 3; exec env \"$@\"";

struct vb_remote {
    const struct vb_hosts *hosts;
    const char *root; /* as the user gave it, NULL: rank 0 is asked */
    char *const *argv;
    char program[PATH_MAX], folder[PATH_MAX];
    char *ssh; /* cut into words */
    char *ssh_words[SSH_WORDS_MAX];
    int n_ssh_words;
    struct vb_hello own;
    bool *heard; /* a rank each */
    int n_heard;
    char found_root[VB_ROOT_TEXT];
    unsigned char secret[VB_SECRET_BYTES];
};

/* ---- set-up ---------------------------------------------------------------------------------- */

static vb_status cut_ssh(struct vb_remote *r, const char *command)
{
    char *rest = NULL, *word;

    r->ssh = strdup(command);
    if (r->ssh == NULL)
        return vb_err_sys("strdup");
    for (word = strtok_r(r->ssh, " \t", &rest); word != NULL; word = strtok_r(NULL, " \t", &rest)) {
        if (r->n_ssh_words == SSH_WORDS_MAX)
            return vb_err(VB_ERR_USAGE, "more than %d words in \"%.64s\"", SSH_WORDS_MAX, command);
        r->ssh_words[r->n_ssh_words++] = word;
    }
    if (r->n_ssh_words == 0)
        return vb_err(VB_ERR_USAGE, "the command for ssh is empty");
    return VB_OK;
}

/* The same program at the same place, unless told otherwise. */
static vb_status find_program(struct vb_remote *r, const char *program)
{
    ssize_t n;

    if (getcwd(r->folder, sizeof(r->folder)) == NULL)
        snprintf(r->folder, sizeof(r->folder), "/");
    if (program != NULL) {
        if ((size_t)snprintf(r->program, sizeof(r->program), "%s", program) >= sizeof(r->program))
            return vb_err(VB_ERR_USAGE, "the program's path is too long");
        return VB_OK;
    }
    n = readlink("/proc/self/exe", r->program, sizeof(r->program) - 1);
    if (n < 0)
        return vb_err_sys("readlink /proc/self/exe");
    r->program[n] = '\0';
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
    r->argv = o->argv;
    r->heard = calloc((size_t)o->hosts->ranks, sizeof(*r->heard));
    st = r->heard != NULL ? VB_OK : vb_err_sys("calloc");
    if (st == VB_OK)
        st = cut_ssh(r, o->ssh != NULL ? o->ssh : SSH);
    if (st == VB_OK)
        st = find_program(r, o->program);
    if (st == VB_OK)
        st = vb_hello_own(&r->own);
    if (st == VB_OK)
        st = o->secret != NULL ? VB_OK : vb_secret_make(r->secret);
    if (st == VB_OK && o->secret != NULL)
        memcpy(r->secret, o->secret, sizeof(r->secret));
    if (st != VB_OK) {
        vb_remote_destroy(r);
        return st;
    }
    *remote_p = r;
    return VB_OK;
}

void vb_remote_destroy(struct vb_remote *r)
{
    if (r == NULL)
        return;
    explicit_bzero(r->secret, sizeof(r->secret));
    free(r->ssh);
    free(r->heard);
    free(r);
}

const char *vb_remote_host(const struct vb_remote *r, int rank)
{
    return vb_hosts_of_rank(r->hosts, rank)->name;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Appends a word in single quotes, which every shell takes as they are. */
static bool quote(FILE *out, const char *word)
{
    fputs(" '", out);
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    return fputc('\'', out) != EOF;
}

static void place_of(const struct vb_remote *r, int rank, struct vb_launch *launch)
{
    const struct vb_host *host = vb_hosts_of_rank(r->hosts, rank);
    const char *name = r->hosts->list[0].name, *at = strrchr(name, '@');

    *launch = (struct vb_launch){.rank = rank,
                                 .world = r->hosts->ranks,
                                 .local_rank = rank - host->first_rank,
                                 .local_ranks = host->slots,
                                 .root_fd = -1,
                                 .begun_fd = -1};
    if (r->root != NULL)
        snprintf(launch->root, sizeof(launch->root), "%s", r->root);
    else
        snprintf(launch->root, sizeof(launch->root), "%.260s:0", at != NULL ? at + 1 : name);
}

/* What ssh hands to the login shell over there; NULL: no memory. */
static char *command_line(const struct vb_remote *r, int rank)
{
    struct vb_launch launch;
    char **words, *line = NULL;
    size_t len;
    FILE *out;
    int i;

    place_of(r, rank, &launch);
    words = vb_launch_assignments_create(&launch);
    out = words != NULL ? open_memstream(&line, &len) : NULL;
    if (out == NULL) {
        vb_launch_env_destroy(words);
        return NULL;
    }
    fputs("exec sh -c", out);
    quote(out, script);
    fputs(" sh", out);
    quote(out, r->folder);
    quote(out, r->own.machine);
    quote(out, r->program);
    for (i = 0; words[i] != NULL; i++)
        quote(out, words[i]);
    quote(out, r->program);
    for (i = 1; r->argv[i] != NULL; i++)
        quote(out, r->argv[i]);
    vb_launch_env_destroy(words);
    if (fclose(out) == 0)
        return line;
    free(line);
    return NULL;
}

char **vb_remote_command_create(const struct vb_remote *r, int rank)
{
    char **argv = calloc((size_t)r->n_ssh_words + 3, sizeof(*argv));
    char *line = command_line(r, rank);

    if (argv == NULL || line == NULL) {
        free(argv);
        free(line);
        return NULL;
    }
    memcpy(argv, r->ssh_words, (size_t)r->n_ssh_words * sizeof(*argv));
    argv[r->n_ssh_words] = (char *)vb_remote_host(r, rank);
    argv[r->n_ssh_words + 1] = line;
    return argv;
}

void vb_remote_command_destroy(const struct vb_remote *r, char **argv)
{
    free(argv[r->n_ssh_words + 1]);
    free(argv);
}

/* ---- hello, and the answer ------------------------------------------------------------------- */

enum vb_heard vb_remote_hear(struct vb_remote *r, int rank, const char *line, char *why,
                             size_t size)
{
    struct vb_hello hello;

    if (!vb_hello_parse(line, &hello))
        return VB_HEARD_NOTHING;
    if (strcmp(hello.sha256, r->own.sha256) != 0) {
        snprintf(why, size,
                 "%s on host %s is not the program that runs here (sha256 %.12s, not %.12s): copy "
                 "it over",
                 r->program, vb_remote_host(r, rank), hello.sha256, r->own.sha256);
        return VB_HEARD_WRONG;
    }
    if (rank == 0)
        snprintf(r->found_root, sizeof(r->found_root), "%s", hello.root);
    r->n_heard += !r->heard[rank];
    r->heard[rank] = true;
    return VB_HEARD_HELLO;
}

bool vb_remote_heard(const struct vb_remote *r, int rank)
{
    return r->heard[rank];
}

bool vb_remote_all_heard(const struct vb_remote *r)
{
    return r->n_heard == r->hosts->ranks;
}

int vb_remote_waiting(const struct vb_remote *r, int n_started)
{
    return n_started - r->n_heard;
}

int vb_remote_answer(const struct vb_remote *r, char *buf, size_t size)
{
    return vb_launch_answer(buf, size, r->found_root, r->secret);
}

vb_status vb_remote_begun_line(const struct vb_remote *r, char line[VB_BEGUN_TEXT])
{
    return vb_launch_begun_line(r->secret, line);
}

/* 255 is ssh's own; 126 and 127 are the script's, and what shells and loaders use. */
void vb_remote_explain(const struct vb_remote *r, int rank, const siginfo_t *info,
                       const char *last_words, char *why, size_t size)
{
    const char *host = vb_remote_host(r, rank), *colon = last_words[0] != '\0' ? ": " : "";
    int status = info->si_code == CLD_EXITED ? info->si_status : -1;

    if (r->heard[rank] && status == 255)
        snprintf(why, size, "rank %d was killed, or the connection to host %s broke%s%s", rank,
                 host, colon, last_words);
    else if (r->heard[rank])
        snprintf(why, size, "rank %d on host %s failed: exit %d", rank, host, status);
    else if (status == 255 && last_words[0] == '\0') /* ssh says why it cannot connect */
        snprintf(why, size, "host %s cannot be reached, or rank %d was killed before it said hello",
                 host, rank);
    else if (status == 255)
        snprintf(why, size, "host %s cannot be reached: %s", host, last_words);
    else if (status == 126 || status == 127)
        snprintf(why, size, "host %s cannot run %s%s%s", host, r->program, colon, last_words);
    else
        snprintf(why, size, "host %s: %s ended before it said what it is (exit %d)%s%s", host,
                 r->program, status, colon, last_words);
}
