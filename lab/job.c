/* SPDX-License-Identifier: MIT
 *
 * Chooses which rank runs on which node, with which arguments and environment, and records the exit
 * status of each rank.
 */
#include "lab/lab.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define ADDRESS "10.77.0.%d" /* %d: number of the node + 1 */
#define ROOT "10.77.0.1:7077"

static bool is_plain(const struct lab_job *job)
{
    return job->opts->each || job->opts->shell >= 0;
}

void lab_job_init(struct lab_job *job, const struct lab_opts *opts)
{
    size_t size = sizeof(job->ranks->out.prefix);
    struct lab_rank *rank;
    int i;

    memset(job, 0, sizeof(*job));
    job->opts = opts;
    job->n_ranks = opts->shell >= 0 ? 1 : opts->n_nodes * opts->per_node;
    job->ranks = lab_alloc((size_t)job->n_ranks, sizeof(*job->ranks));
    for (i = 0; i < job->n_ranks; i++) {
        rank = &job->ranks[i];
        rank->node = opts->shell >= 0 ? opts->shell : i / opts->per_node;
        if (opts->per_node > 1)
            snprintf(rank->out.prefix, size, "[node%d rank%d] ", rank->node, i);
        else
            snprintf(rank->out.prefix, size, "[node%d] ", rank->node);
        memcpy(rank->err.prefix, rank->out.prefix, size);
    }
    if (getrandom(job->setup.secret, sizeof(job->setup.secret), 0) !=
        (ssize_t)sizeof(job->setup.secret))
        lab_die("getrandom: %s", strerror(errno));
}

void lab_job_greet(struct lab_job *job, struct lab_node *node)
{
    char words[PATH_MAX + 32];
    struct timespec now;
    int i, n;

    clock_gettime(CLOCK_REALTIME, &now);
    job->setup.time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    lab_frame_push(&node->to_agent, LAB_SETUP, 0, &job->setup, sizeof(job->setup));
    for (i = 0; job->opts->shares[i] != NULL; i++) {
        n = snprintf(words, sizeof(words), "share%d%c%s", i, 0, job->opts->shares[i]);
        lab_frame_push(&node->to_agent, LAB_MOUNT, 0, words, (size_t)n + 1);
    }
}

/* Replaces {rank}, {world}, {root} and {secret} in an argument. */
static void push_word(struct lab_queue *q, const struct lab_job *job, int rank, const char *word)
{
    char number[2][16];
    const char *const names[][2] = {{"{rank}", number[0]},
                                    {"{world}", number[1]},
                                    {"{root}", ROOT},
                                    {"{secret}", LAB_SECRET_FILE}};
    size_t i;

    snprintf(number[0], sizeof(number[0]), "%d", rank);
    snprintf(number[1], sizeof(number[1]), "%d", job->n_ranks);
    while (*word != '\0') {
        for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (!is_plain(job) && strncmp(word, names[i][0], strlen(names[i][0])) == 0)
                break;
        if (i < sizeof(names) / sizeof(names[0])) {
            lab_queue_push(q, names[i][1], strlen(names[i][1]));
            word += strlen(names[i][0]);
        } else {
            lab_queue_push(q, word++, 1);
        }
    }
    lab_queue_push(q, "", 1);
}

__attribute__((format(printf, 3, 4))) static void push_env(struct lab_queue *q, uint32_t *n_p,
                                                           const char *format, ...)
{
    char text[1024];
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    lab_queue_push(q, text, (size_t)n + 1);
    (*n_p)++;
}

/* A shell takes the last of two values of a variable, and a program the first. So only one is sent.
 */
static bool is_given(char *const *envs, const char *name)
{
    for (; *envs != NULL; envs++)
        if (strncmp(*envs, name, strlen(name)) == 0 && (*envs)[strlen(name)] == '=')
            return true;
    return false;
}

static uint32_t push_envs(struct lab_queue *q, const struct lab_job *job, int rank, int node)
{
    const struct lab_opts *o = job->opts;
    char nodes[LAB_MAX_NODES * 16];
    int i, at = 0;
    uint32_t n = 0;

    for (i = 0; i < o->n_nodes; i++)
        at +=
            snprintf(nodes + at, sizeof(nodes) - (size_t)at, "%s" ADDRESS, i > 0 ? " " : "", i + 1);
    push_env(q, &n, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    push_env(q, &n, "HOME=/root");
    push_env(q, &n, "LC_ALL=C.UTF-8");
    push_env(q, &n, "VB_NODE=%d", node);
    push_env(q, &n, "VB_NODES=%s", nodes);
    if (!is_plain(job)) {
        push_env(q, &n, "VB_RANK=%d", rank);
        push_env(q, &n, "VB_WORLD=%d", job->n_ranks);
        push_env(q, &n, "VB_ROOT=%s", ROOT);
        push_env(q, &n, "VB_SECRET_FILE=%s", LAB_SECRET_FILE);
    }
    for (i = 0; o->envs[i] != NULL; i++, n++)
        lab_queue_push(q, o->envs[i], strlen(o->envs[i]) + 1);
    if (!is_given(o->envs, "VB_PATIENCE"))
        push_env(q, &n, "VB_PATIENCE=4");
    return n;
}

static void start_rank(struct lab_job *job, struct lab_node *node, int rank)
{
    const struct lab_opts *o = job->opts;
    struct lab_start start = {.n_args = (uint32_t)o->n_args};
    struct lab_queue words = {0}, all = {0};
    char folder[PATH_MAX];
    int i;

    if (o->shell >= 0)
        start.flags = isatty(STDIN_FILENO) ? LAB_TERMINAL : LAB_INPUT;
    if (getcwd(folder, sizeof(folder)) == NULL)
        snprintf(folder, sizeof(folder), "/");
    lab_queue_push(&words, folder, strlen(folder) + 1);
    for (i = 0; i < o->n_args; i++)
        push_word(&words, job, rank, o->args[i]);
    start.n_envs = push_envs(&words, job, rank, node->index);
    lab_queue_push(&all, &start, sizeof(start));
    lab_queue_push(&all, lab_queue_head(&words), words.len_bytes);
    lab_frame_push(&node->to_agent, LAB_START, rank, lab_queue_head(&all), all.len_bytes);
    lab_queue_fini(&words);
    lab_queue_fini(&all);
}

void lab_job_start(struct lab_job *job, struct lab_node *node)
{
    int i;

    for (i = 0; i < job->n_ranks; i++)
        if (job->ranks[i].node == node->index)
            start_rank(job, node, i);
}

static void rank_done(struct lab_job *job, struct lab_rank *rank, int status, struct lab_output *o)
{
    if (rank->done)
        return;
    rank->done = true;
    job->n_done++;
    if (job->status == 0)
        job->status = status;
    lab_output_end(o, &rank->out);
    lab_output_end(o, &rank->err);
}

void lab_job_frame(struct lab_job *job, struct lab_node *node, const struct lab_frame *f,
                   struct lab_output *o)
{
    struct lab_rank *rank;
    int32_t status;
    bool quiet;

    if (f->type == LAB_FAIL)
        lab_die("node%d: %.*s", node->index, (int)f->len_bytes, (const char *)f->data);
    if (f->rank >= job->n_ranks || job->ranks[f->rank].node != node->index)
        lab_die("node%d sent a message about rank %d, which it does not have", node->index,
                f->rank);
    rank = &job->ranks[f->rank];
    if (f->type == LAB_OUT && f->rank == 0) {
        lab_queue_push(&o->out, f->data, f->len_bytes);
    } else if (f->type == LAB_OUT) {
        lab_output_lines(o, &rank->out, f->data, f->len_bytes);
    } else if (f->type == LAB_ERR) {
        lab_output_lines(o, &rank->err, f->data, f->len_bytes);
    } else if (f->type == LAB_EXIT && f->len_bytes == sizeof(status)) {
        memcpy(&status, f->data, sizeof(status));
        quiet = status == 0 || job->opts->shell >= 0;
        if (!quiet && job->opts->each)
            lab_output_say(o, "node%d: the program ended with status %d", rank->node, status);
        else if (!quiet)
            lab_output_say(o, "rank %d on node%d ended with status %d", f->rank, rank->node,
                           status);
        rank_done(job, rank, status, o);
    } else {
        lab_die("node%d sent a message of type %d", node->index, f->type);
    }
}

void lab_job_lose_node(struct lab_job *job, int node, struct lab_output *o)
{
    int i;

    for (i = 0; i < job->n_ranks; i++)
        if (job->ranks[i].node == node)
            rank_done(job, &job->ranks[i], 0, o);
}
