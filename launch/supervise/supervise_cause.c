/* SPDX-License-Identifier: MIT
 *
 * Why a job ends. If a rank is stopped or cannot be reached, the others end first: they notice that
 * it is silent. So the first rank that ends is often not the cause. Ranks tell the supervisor which
 * peer they lost and why; from that it finds the rank to name.
 */
#include "launch/supervise/supervise_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOORS " doors "

vb_status vb_causes_init(struct vb_causes *c, int ranks, int room)
{
    int i;

    c->ranks = 0;
    c->len = 0;
    c->n_begun = 0;
    c->reporter = -1;
    c->doors[0] = '\0';
    c->ask.n = 0;
    c->blames = calloc((size_t)room, sizeof(*c->blames));
    c->ends = calloc((size_t)room, sizeof(*c->ends));
    c->numbers = calloc((size_t)room, sizeof(*c->numbers));
    c->trains = calloc((size_t)room, sizeof(*c->trains));
    if (c->blames == NULL || c->ends == NULL || c->numbers == NULL || c->trains == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < ranks; i++) {
        vb_causes_grow(c);
        c->numbers[i] = i;
    }
    return VB_OK;
}

void vb_causes_grow(struct vb_causes *c)
{
    int rank = c->ranks++;

    c->blames[rank].peer = -1;
    c->numbers[rank] = c->trains[rank] = -1;
}

void vb_causes_fini(struct vb_causes *c)
{
    free(c->blames);
    free(c->ends);
    free(c->numbers);
    free(c->trains);
    c->blames = NULL;
    c->ends = NULL;
    c->numbers = NULL;
    c->trains = NULL;
}

int vb_causes_number(const struct vb_causes *c, int rank)
{
    return c->numbers[rank] >= 0 ? c->numbers[rank] : rank;
}

/* Returns the process that the others know by this number; -1: none, or one of somebody else. */
static int find_number(const struct vb_causes *c, int number)
{
    int i;

    for (i = 0; i < c->ranks; i++)
        if (c->numbers[i] == number)
            return i;
    return -1;
}

static void take_end(struct vb_causes *c, int rank, const char *line)
{
    struct vb_ending *end = &c->ends[rank];
    char how[8];
    int number;

    if (sscanf(line, " reaped %7s %d", how, &number) != 2 || number < 0 || number > 255)
        return;
    end->by_signal = strcmp(how, "signal") == 0;
    end->reaped = end->by_signal || strcmp(how, "exit") == 0;
    end->number = number;
}

static void take_number(struct vb_causes *c, int rank, const char *line)
{
    int number;

    if (sscanf(line, " number %d", &number) == 1 && number >= 0)
        c->numbers[rank] = number;
    if (sscanf(line, " trains %d", &number) != 1 || number < 0)
        return;
    c->trains[rank] = number;
    if (c->numbers[rank] < 0)
        c->numbers[rank] = number;
}

static void take_over(struct vb_causes *c, const char *line)
{
    int reporter;

    if (sscanf(line, " over %d", &reporter) == 1 && reporter >= 0)
        c->reporter = reporter;
}

static void take_request(struct vb_causes *c, int rank, const char *line)
{
    struct vb_add_request ask = {.by = rank};

    _Static_assert(VB_HOST_NAME == 256, "sscanf() reads the name of a host");
    if (sscanf(line, " add %d %d %255s", &ask.number, &ask.n, ask.host) == 3 && ask.n > 0 &&
        ask.n <= VB_ADD_MAX)
        c->ask = ask;
}

void vb_causes_take(struct vb_causes *c, int rank, const char *line)
{
    int number = -1, peer, at = 0;

    if (strncmp(line, DOORS, strlen(DOORS)) == 0)
        snprintf(c->doors, sizeof(c->doors), "%s", line + strlen(DOORS));
    if (rank < 0 || rank >= c->ranks)
        return;
    take_end(c, rank, line);
    take_number(c, rank, line);
    take_over(c, line);
    take_request(c, rank, line);
    if (sscanf(line, " lost %d %n", &number, &at) != 1 || at == 0 || number < 0)
        return;
    peer = find_number(c, number);
    if (peer < 0 || peer == rank)
        return;
    c->blames[rank].peer = peer;
    snprintf(c->blames[rank].why, VB_NEWS_WHY, "%s", line + at);
    c->ends[peer].lost = true;
    c->ends[peer].lost_by = rank;
}

/* Returns true for "begun". */
static bool take_line(struct vb_causes *c, const char *line)
{
    int rank = -1, at = 0;

    if (strcmp(line, "begun") == 0)
        return true;
    if (sscanf(line, "%d%n", &rank, &at) == 1)
        vb_causes_take(c, rank, line + at);
    return false;
}

bool vb_causes_read(struct vb_causes *c, int fd)
{
    bool begun = false;
    char *line, *end;
    ssize_t n;

    while ((n = read(fd, c->buf + c->len, sizeof(c->buf) - 1 - c->len)) > 0) {
        c->len += (size_t)n;
        c->buf[c->len] = '\0';
        for (line = c->buf; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = '\0';
            if (take_line(c, line)) {
                c->n_begun++;
                begun = true;
            }
        }
        c->len = strlen(line);
        memmove(c->buf, line, c->len);
        if (c->len == sizeof(c->buf) - 1)
            c->len = 0; /* no rank writes such a line */
    }
    return begun;
}

const struct vb_blame *vb_causes_find(const struct vb_causes *c, int rank, int *by_p)
{
    const struct vb_blame *blame = NULL, *next = &c->blames[rank];
    int i, by = rank;

    /* two ranks that lost each other would lead from one to the other for ever */
    for (i = 0; i < c->ranks && next->peer >= 0 && next->peer != rank; i++) {
        blame = next;
        *by_p = by;
        by = blame->peer;
        next = &c->blames[by];
    }
    return blame;
}

int vb_causes_stranger(const struct vb_causes *c)
{
    return c->reporter >= 0 && find_number(c, c->reporter) < 0 ? c->reporter : -1;
}

void vb_death_explain(int rank, const siginfo_t *info, bool goes_on, struct vb_oom *oom, char *why,
                      size_t size)
{
    int number = info->si_status, n;

    if (info->si_code == CLD_EXITED) {
        snprintf(why, size, "rank %d failed with exit code %d", rank, number);
        return;
    }
    if (goes_on)
        n = snprintf(why, size, "rank %d was killed by signal %d", rank, number);
    else
        n = snprintf(why, size, "rank %d died: signal %d (%s)%s", rank, number, strsignal(number),
                     info->si_code == CLD_DUMPED ? ", core dumped" : "");
    if (number == SIGKILL && vb_oom_killed(oom) && (size_t)n < size)
        snprintf(why + n, size - (size_t)n,
                 ": memory ran out (limit: %s); use fewer ranks on this host, a smaller --batch or "
                 "less data, or raise the limit; verbena train --dry-run says what a job needs",
                 oom->limit);
}
