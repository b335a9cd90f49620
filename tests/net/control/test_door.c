/* SPDX-License-Identifier: MIT
 *
 * Tests that strangers keep no rank out and fill no log: silent callers, floods, and a process that
 * has no descriptor left.
 *
 * Covers: net/control/accept.c net/control/handshake.c net/control/rendezvous.c net/control/sock.c
 */
#include "tests/support/ranks.h"

#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#define SILENT 2000 /* many more than the places of a listener */

/* Makes a socket with an address of this host: 127.0.0.1 for 1, and so on. */
static int stranger_from(int host)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr = {htonl(0x7f000000u + (unsigned)host)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0 ? fd : -1;
}

static bool calls(int fd, const char *root)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};

    at.sin_port = htons((uint16_t)atoi(strrchr(root, ':') + 1));
    return fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

static int meet(struct vb_group *g, void *arg)
{
    (void)arg;
    return T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void start(struct t_rank *ranks, pthread_t *ids)
{
    int i;

    for (i = 0; i < ranks[0].job->world; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, t_rank_main, &ranks[i]), 0);
}

static void finish(struct t_rank *ranks, pthread_t *ids)
{
    int i;

    for (i = 0; i < ranks[0].job->world; i++)
        pthread_join(ids[i], NULL);
    for (i = 0; i < ranks[0].job->world; i++)
        assert_int_equal(ranks[i].wrong, 0);
}

/* Strangers that say nothing and never hang up. Some are there before rank 0 accepts anybody, the
 * others come while the ranks call. */
static _Atomic bool flooding;
struct silent {
    const char *root;
    int fds[SILENT];
};

static void *keep_calling(void *arg)
{
    struct silent *s = arg;
    int i;

    for (i = SILENT / 4; i < SILENT && flooding; i++) {
        s->fds[i] = stranger_from(1);
        (void)calls(s->fds[i], s->root);
    }
    return NULL;
}

static void silent_strangers_keep_no_rank_out(void **state)
{
    struct t_job job = {.fn = meet, .world = 8, .transport = VB_TRANSPORT_SHM};
    struct t_rank ranks[T_RANKS_MAX];
    pthread_t ids[T_RANKS_MAX], stranger;
    struct silent s;
    struct t_stderr t;
    char text[16384];
    int i, round;

    (void)state;
    for (round = 0; round < 5; round++) {
        t_prepare(ranks, &job);
        s.root = ranks[0].root;
        memset(s.fds, -1, sizeof(s.fds));
        for (i = 0; i < SILENT / 4; i++) {
            s.fds[i] = stranger_from(1);
            assert_true(calls(s.fds[i], s.root));
        }
        t_stderr_catch(&t);
        flooding = true;
        assert_int_equal(pthread_create(&stranger, NULL, keep_calling, &s), 0);
        start(ranks, ids);
        for (i = 0; i < job.world; i++)
            pthread_join(ids[i], NULL);
        flooding = false;
        pthread_join(stranger, NULL);
        t_stderr_release(&t, text, sizeof(text));
        for (i = 0; i < SILENT; i++)
            if (s.fds[i] >= 0)
                close(s.fds[i]);
        for (i = 0; i < job.world; i++)
            if (ranks[i].wrong != 0)
                fail_msg("rank %d failed: %s", i, text);
        assert_true(count(text, "\n") <= 3);
    }
}

/* Strangers that reach rank 0 while all other ranks call: each sends one byte, and comes back when
 * it is refused. */
static void *flood(void *arg)
{
    int fds[64], i, n;

    while (flooding) {
        for (n = 0; n < 64; n++) {
            fds[n] = stranger_from(2 + n);
            if (calls(fds[n], arg))
                (void)!send(fds[n], "x", 1, MSG_NOSIGNAL);
        }
        for (i = 0; i < n; i++)
            if (fds[i] >= 0)
                close(fds[i]);
    }
    return NULL;
}

static int many_meetings(struct vb_group *g, void *arg)
{
    int i, wrong = 0;

    (void)arg;
    for (i = 0; i < 200; i++)
        wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    return wrong;
}

static void a_flood_fills_no_log(void **state)
{
    struct t_job job = {.fn = many_meetings, .world = 3, .transport = VB_TRANSPORT_TCP};
    struct t_rank ranks[T_RANKS_MAX];
    pthread_t ids[T_RANKS_MAX], stranger;
    struct t_stderr t;
    char text[65536];

    (void)state;
    t_prepare(ranks, &job);
    t_stderr_catch(&t);
    flooding = true;
    assert_int_equal(pthread_create(&stranger, NULL, flood, ranks[0].root), 0);
    start(ranks, ids);
    while (ranks[0].wrong < 0 && flooding) {
        struct timespec nap = {.tv_nsec = 100000000};

        nanosleep(&nap, NULL);
        flooding = ranks[0].wrong < 0 && ranks[1].wrong < 0 && ranks[2].wrong < 0;
    }
    flooding = false;
    pthread_join(stranger, NULL);
    finish(ranks, ids);
    t_stderr_release(&t, text, sizeof(text));
    assert_true(count(text, "refused a connection") >= 1);
    if (count(text, "\n") > 20)
        fail_msg("the log has %d lines", count(text, "\n"));
}

/* ---- no descriptor left ---------------------------------------------------------------------- */

static double cpu_s(void)
{
    struct timespec ts;

    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts), 0);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The group has one rank, so its only threads are this one, which sleeps, and the control thread.
 */
static void a_full_table_of_files_costs_no_time(void **state)
{
    struct t_job job = {.world = 1};
    struct timespec nap = {.tv_sec = 2};
    struct rlimit before, low;
    struct vb_group_opts opts;
    struct vb_group *g;
    struct t_stderr t;
    char root[32], text[4096];
    int fd = t_listen(root), caller, files[256], n = 0;
    double cpu;

    (void)state;
    t_group_opts(&job, 0, root, fd, &opts);
    assert_int_equal(vb_group_open(&opts, &g), VB_OK);
    caller = stranger_from(1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 64;
    t_stderr_catch(&t);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (n < 256 && (files[n] = dup(STDERR_FILENO)) >= 0)
        n++;
    assert_true(calls(caller, root)); /* the kernel accepts it, the process cannot */
    cpu = cpu_s();
    nanosleep(&nap, NULL);
    cpu = cpu_s() - cpu;
    while (n > 0)
        close(files[--n]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    vb_group_close(g);
    t_stderr_release(&t, text, sizeof(text));
    close(caller);
    if (cpu > 0.5)
        fail_msg("the control thread used %.1f s of CPU in 2 s", cpu);
    assert_int_equal(count(text, "ulimit -n raises the limit"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_strangers_keep_no_rank_out),
        cmocka_unit_test(a_flood_fills_no_log),
        cmocka_unit_test(a_full_table_of_files_costs_no_time),
    };

    return T_RUN(tests);
}
