/* SPDX-License-Identifier: MIT
 *
 * Reads the variables that srun sets for a task. A task of a step has SLURM_STEP_ID and
 * SLURM_PROCID. The script of sbatch and a shell of salloc lack one of them, or have a step with a
 * reserved number: they start jobs, but they are not ranks.
 */
#include "launch/launch_priv.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define STEP_RESERVED 0xfffffff0 /* this number and higher ones are shells of sbatch and salloc */
#define STEPS_A_JOB 64 /* up to this many steps of a job at a time surely get different ports */
#define HOSTS_MAX 1000000
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

/* The name of the first host of a list, as far as the list is parsed. */
struct first {
    char *buf;
    size_t len, size;
    bool fits;
};

static void first_add(struct first *first, const char *text, size_t n)
{
    if (first == NULL)
        return;
    first->fits = first->fits && first->len + n < first->size;
    if (!first->fits)
        return;
    memcpy(first->buf + first->len, text, n);
    first->len += n;
    first->buf[first->len] = '\0';
}

/* Parses "07" or "01-03" at *at and adds the number of values to *n_p. */
static bool parse_range(const char **at, int64_t *n_p, struct first *first)
{
    size_t width = strspn(*at, "0123456789"), width2;
    int64_t from, to;

    if (width == 0 || width > 9)
        return false;
    from = to = strtoll(*at, NULL, 10);
    first_add(first, *at, width);
    *at += width;
    if (**at == '-') {
        ++*at;
        width2 = strspn(*at, "0123456789");
        if (width2 == 0 || width2 > 9)
            return false;
        to = strtoll(*at, NULL, 10);
        *at += width2;
    }
    if (to < from || to - from >= HOSTS_MAX)
        return false;
    *n_p += to - from + 1;
    return true;
}

/* Parses "[01-03,07]" at *at and multiplies *n_p by the number of values. */
static bool parse_bracket(const char **at, int64_t *n_p, struct first *first)
{
    int64_t n = 0;

    do {
        ++*at; /* skips the bracket or the comma */
        if (!parse_range(at, &n, first))
            return false;
        first = NULL;
    } while (**at == ',');
    if (**at != ']' || n > HOSTS_MAX || *n_p * n > HOSTS_MAX)
        return false;
    ++*at;
    *n_p *= n;
    return true;
}

/* Parses a name such as "rack[0-1]node[01-16]" at *at, up to a comma or the end. */
static bool parse_name(const char **at, int64_t *n_p, struct first *first)
{
    int64_t n = 1;
    size_t len;

    if (**at == '-' || **at == '\0' || **at == ',')
        return false;
    while (**at != '\0' && **at != ',') {
        len = strspn(*at, NAME_CHARS);
        first_add(first, *at, len);
        *at += len;
        if (**at == '[' ? !parse_bracket(at, &n, first) : len == 0)
            return false;
    }
    *n_p += n;
    return *n_p <= HOSTS_MAX;
}

bool vb_slurm_hosts_parse(const char *text, char *first, size_t size, int64_t *hosts_p)
{
    struct first name = {.buf = first, .size = size, .fits = true};
    int64_t n = 0;

    if (!parse_name(&text, &n, &name) || !name.fits)
        return false;
    while (*text == ',') {
        text++;
        if (!parse_name(&text, &n, NULL))
            return false;
    }
    *hosts_p = n;
    return true;
}

static bool parse_count(const char **at, int64_t max, int64_t *n_p)
{
    size_t width = strspn(*at, "0123456789");

    if (width == 0 || width > 9)
        return false;
    *n_p = strtoll(*at, NULL, 10);
    *at += width;
    return *n_p >= 1 && *n_p <= max;
}

bool vb_slurm_tasks_parse(const char *text, int64_t node, int64_t *tasks_p)
{
    int64_t tasks, nodes, seen = 0;
    bool found = false;

    do {
        nodes = 1;
        if (!parse_count(&text, VB_WORLD_MAX, &tasks))
            return false;
        if (strncmp(text, "(x", 2) == 0) {
            text += 2;
            if (!parse_count(&text, HOSTS_MAX, &nodes) || *text++ != ')')
                return false;
        }
        if (node >= seen && node < seen + nodes) {
            *tasks_p = tasks;
            found = true;
        }
        seen += nodes;
    } while (seen <= HOSTS_MAX && *text++ == ',');
    return found && text[-1] == '\0';
}

/* False for a shell in which srun may be called. */
static bool is_task(int64_t *job_p, int64_t *step_p)
{
    const char *step = vb_launch_variable("SLURM_STEP_ID"),
               *job = vb_launch_variable("SLURM_JOB_ID");

    if (step == NULL || job == NULL || vb_launch_variable("SLURM_PROCID") == NULL)
        return false;
    if (!vb_parse_int(step, step_p) || !vb_parse_int(job, job_p))
        *job_p = *step_p = -1; /* vb_launch_find_slurm() refuses these numbers */
    return *step_p < STEP_RESERVED;
}

static vb_status read_hosts(struct launch_found *found)
{
    const char *name = "SLURM_STEP_NODELIST", *list = vb_launch_variable(name);
    int64_t hosts = 0;

    if (list == NULL)
        list = vb_launch_variable(name = "SLURM_JOB_NODELIST");
    if (list == NULL || !vb_slurm_hosts_parse(list, found->host, sizeof(found->host), &hosts))
        return vb_err(VB_ERR_USAGE,
                      "%s %.64s: must be a list of hosts such as node[01-03,07],gpu1" LAUNCH_ALONE,
                      name, list != NULL ? list : "is not set");
    found->one_host = hosts == 1;
    return VB_OK;
}

/* Without a list of tasks per node the ranks find their neighbours when the group has formed. */
static vb_status read_local(struct launch_found *found)
{
    const char *name = "SLURM_STEP_TASKS_PER_NODE", *list = vb_launch_variable(name);
    int64_t node = 0, tasks = 0, local = 0;
    vb_status st;

    if (found->one_host) {
        tasks = found->world;
    } else {
        if (list == NULL)
            return VB_OK;
        st = vb_launch_number("SLURM_NODEID", 0, HOSTS_MAX, &node);
        if (st != VB_OK)
            return st;
        if (!vb_slurm_tasks_parse(list, node, &tasks) || tasks > found->world)
            return vb_err(VB_ERR_USAGE,
                          "%s %.64s: must be a list of tasks per node, such as 2(x3),1, that "
                          "includes node %d" LAUNCH_ALONE,
                          name, list, (int)node);
    }
    st = vb_launch_number("SLURM_LOCALID", 0, tasks - 1, &local);
    found->local_rank = (int)local;
    found->local_ranks = (int)tasks;
    return st;
}

vb_status vb_launch_find_slurm(struct launch_found *found)
{
    const char *tasks = vb_launch_variable("SLURM_STEP_NUM_TASKS") != NULL ? "SLURM_STEP_NUM_TASKS"
                                                                           : "SLURM_NTASKS";
    int64_t job, step;
    vb_status st;

    if (!is_task(&job, &step))
        return VB_OK;
    if (step < 0 || job < 0)
        return vb_err(VB_ERR_USAGE,
                      "SLURM_JOB_ID %.32s, SLURM_STEP_ID %.32s: must be numbers" LAUNCH_ALONE,
                      vb_launch_variable("SLURM_JOB_ID"), vb_launch_variable("SLURM_STEP_ID"));
    st = vb_launch_place(tasks, "SLURM_PROCID", VB_WORLD_MAX, &found->world, &found->rank);
    if (st != VB_OK)
        return st;
    found->port = vb_launch_port((uint64_t)job * STEPS_A_JOB + (uint64_t)step);
    snprintf(found->job, sizeof(found->job), "slurm %lld.%lld", (long long)job, (long long)step);
    snprintf(found->run, sizeof(found->run), "%.64s", found->job);
    st = read_hosts(found);
    if (st == VB_OK)
        st = read_local(found);
    if (st == VB_OK)
        found->by = LAUNCH_BY_SLURM;
    return st;
}
