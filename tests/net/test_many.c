/* SPDX-License-Identifier: MIT
 *
 * Tests groups of many ranks on one host: they start, meet and end, and their control threads sleep
 * while nothing happens. VB_MANY=N runs N ranks instead of the few of the quick run.
 *
 */
#include "tests/support/ranks.h"

#include <dirent.h>
#include <stdatomic.h>
#include <time.h>

#define MANY_MAX 256
#define IDLE_S 4
#define WAKES_MAX 40 /* wakes of a control thread a second: independent of the number of ranks */

/* What the ranks, which are processes, report to the test. */
struct board {
    double up_s[MANY_MAX];   /* time from the fork to the first barrier */
    double wakes[MANY_MAX];  /* wakes of the control thread a second */
    double cpu_ms[MANY_MAX]; /* CPU time of the control thread a second */
};

static double now_s(void)
{
    return (double)vb_clock_ns() / 1e9;
}

/* Opens a file of the control thread of this process. */
static FILE *control_file(const char *what)
{
    char path[600], name[32] = "";
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    FILE *found = NULL, *comm;

    while (dir != NULL && found == NULL && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        comm = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (comm == NULL)
            continue;
        if (fgets(name, sizeof(name), comm) != NULL && strcmp(name, "vb-control\n") == 0) {
            snprintf(path, sizeof(path), "/proc/self/task/%s/%s", entry->d_name, what);
            found = fopen(path, "r");
        }
        fclose(comm);
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

static double wakes(void)
{
    FILE *file = control_file("status");
    char line[256];
    long n = -1;

    while (file != NULL && n < 0 && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) != 1)
            n = -1;
    if (file != NULL)
        fclose(file);
    return (double)n;
}

static double cpu_ms(void)
{
    FILE *file = control_file("schedstat");
    unsigned long long ns = 0;

    if (file != NULL && fscanf(file, "%llu", &ns) != 1)
        ns = 0;
    if (file != NULL)
        fclose(file);
    return (double)ns / 1e6;
}

/* One rank. Returns its exit code. */
static int rank_main(const struct t_job *job, int rank, const char *root, int fd, struct board *b,
                     double start_s)
{
    struct timespec idle = {.tv_sec = IDLE_S};
    struct vb_group_opts opts;
    struct vb_group *g;
    double from, cpu;
    int wrong;

    vb_log_set_rank(rank);
    t_group_opts(job, rank, root, fd, &opts);
    opts.elastic = job->arg != NULL;
    if (vb_group_open(&opts, &g) != VB_OK)
        return 1;
    wrong = T_WRONG(vb_group_barrier(g) == VB_OK);
    b->up_s[rank] = now_s() - start_s;
    from = wakes();
    cpu = cpu_ms();
    nanosleep(&idle, NULL);
    b->wakes[rank] = (wakes() - from) / IDLE_S;
    b->cpu_ms[rank] = (cpu_ms() - cpu) / IDLE_S;
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_group_close(g);
    return wrong > 0;
}

static void run(int world, enum vb_transport_choice transport, bool elastic)
{
    struct t_job job = {
        .transport = transport, .world = world, .arg = elastic ? &job : NULL, .never_spin = true};
    struct board *b =
        mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double start_s = now_s(), up_s = 0, most = 0, cpu = 0;
    pid_t pids[MANY_MAX];
    char root[32];
    int i, status, fd = t_listen(root), failed = 0;

    assert_true(b != MAP_FAILED && world <= MANY_MAX);
    for (i = 0; i < world; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(rank_main(&job, i, root, fd, b, start_s));
        }
    }
    close(fd);
    for (i = 0; i < world; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        failed += status != 0;
        up_s = b->up_s[i] > up_s ? b->up_s[i] : up_s;
        most = b->wakes[i] > most ? b->wakes[i] : most;
        cpu += b->cpu_ms[i];
    }
    printf("%d ranks over %s%s: up in %.1f s, control threads: %.1f %% of a core, at most %.0f "
           "wakes a second\n",
           world, transport == VB_TRANSPORT_TCP ? "tcp" : "shm", elastic ? ", elastic" : "", up_s,
           cpu / 10, most);
    assert_int_equal(failed, 0);
    assert_true(most > 0 && most < WAKES_MAX);
    munmap(b, sizeof(*b));
}

static void many_ranks_share_memory(void **state)
{
    (void)state;
    run(t_number("VB_MANY") > 0 ? t_number("VB_MANY") : 40, VB_TRANSPORT_SHM, false);
}

static void many_ranks_use_tcp(void **state)
{
    (void)state;
    run(t_number("VB_MANY") > 0 ? t_number("VB_MANY") : 34, VB_TRANSPORT_TCP, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_ranks_share_memory),
        cmocka_unit_test(many_ranks_use_tcp),
    };

    return T_RUN(tests);
}
