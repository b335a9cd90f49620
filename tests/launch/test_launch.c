/* SPDX-License-Identifier: MIT
 *
 * Tests the environment variables of srun and torchrun, valid and broken. Also tests how the ranks
 * of one host find each other without any other information.
 *
 * Covers: launch/launch_find.c launch/launch_meet.c launch/launch_slurm.c launch/launch_torch.c
 * Covers: launch/pmix.c net/control/root.c net/control/sock.c
 */
#include "launch/launch_priv.h"
#include "net/control/sock.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define TIMEOUT_MS 20000
#define LISTENS 0x10000 /* the flag of a listening socket in /proc/net/unix */

/* ---- lists in Slurm's format ----------------------------------------------------------------- */

static void host_lists_of_slurm(void **state)
{
    static const struct {
        const char *text, *first;
        int hosts;
    } good[] = {
        {"vm", "vm", 1},
        {"node[01-03,07],gpu1", "node01", 5},
        {"node[7]", "node7", 1},
        {"node[0009-0010]", "node0009", 2},
        {"rack[0-1]node[00-15]", "rack0node00", 32},
        {"a[1-2]b", "a1b", 2},
        {"[1-3]", "1", 3},
        {"tux-1.example.org,b_2", "tux-1.example.org", 2},
        {"10.0.0.1,10.0.0.2", "10.0.0.1", 2},
        {"n[0-99999],m[1-900000]", "n0", 1000000},
    };
    static const char *const bad[] = {
        "",
        ",",
        "a,",
        ",a",
        "a,,b",
        "a b",
        "a[",
        "a[]",
        "a[1",
        "a[1-",
        "a[1-]",
        "a[-1]",
        "a[3-1]",
        "a[1,]",
        "a[,1]",
        "a]",
        "a[x]",
        "a[1-2-3]",
        "-oProxy",
        "a;b",
        "a[1]]",
        "a[[1]]",
        "a[1234567890]",
        "n[0-999999],m,n,o",
        "a[0-9999]b[0-9999]",
        "a[1-2,3-4",
        "a$(id)",
        "a/b",
        "[1-3",
    };
    char first[64];
    int64_t hosts;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(good); i++) {
        assert_true(vb_slurm_hosts_parse(good[i].text, first, sizeof(first), &hosts));
        assert_string_equal(first, good[i].first);
        assert_int_equal(hosts, good[i].hosts);
    }
    for (i = 0; i < VB_COUNT(bad); i++)
        if (vb_slurm_hosts_parse(bad[i], first, sizeof(first), &hosts))
            fail_msg("\"%s\" was accepted as hosts", bad[i]);
    /* this buffer is one byte too small for the name */
    assert_false(vb_slurm_hosts_parse("node[01-03]", first, 6, &hosts));
    assert_true(vb_slurm_hosts_parse("node[01-03]", first, 7, &hosts));
}

static void task_lists_of_slurm(void **state)
{
    static const struct {
        const char *text;
        int node, tasks;
    } good[] = {{"3", 0, 3},       {"2(x3),1", 0, 2}, {"2(x3),1", 2, 2},
                {"2(x3),1", 3, 1}, {"1,2,3", 1, 2},   {"4(x2),1(x100000)", 100001, 1}};
    static const struct {
        const char *text;
        int node;
    } bad[] = {{"", 0},      {"3", 1},           {"2(x3),1", 4}, {"0", 0},
               {"2(x0)", 0}, {"2(x", 0},         {"2(x3", 0},    {"2(3)", 0},
               {"2,", 0},    {",2", 0},          {"2(x3)1", 0},  {"-1", 0},
               {"x", 0},     {"99999999999", 0}, {"1025", 0},    {"2 ", 0}};
    int64_t tasks;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(good); i++) {
        assert_true(vb_slurm_tasks_parse(good[i].text, good[i].node, &tasks));
        assert_int_equal(tasks, good[i].tasks);
    }
    for (i = 0; i < VB_COUNT(bad); i++)
        if (vb_slurm_tasks_parse(bad[i].text, bad[i].node, &tasks))
            fail_msg("\"%s\" was accepted as the tasks of node %d", bad[i].text, bad[i].node);
}

static void ports_do_not_clash(void **state)
{
    int port;

    (void)state;
    for (port = 1; port <= 65535; port++) {
        assert_true(vb_launch_port((uint64_t)port) != port);
        assert_true(vb_launch_port((uint64_t)port) != vb_launch_port((uint64_t)port + 1));
        assert_true(vb_launch_port((uint64_t)port) >= 1024 &&
                    vb_launch_port((uint64_t)port) < 32768);
    }
    assert_true(vb_launch_port(UINT64_MAX) < 32768);
}

/* ---- where rank 0 listens -------------------------------------------------------------------- */

/* Listens at the address `given`. Sets root to the address with the chosen port. Returns true if
 * the socket listens on loopback only, and false if it listens at all addresses. */
static bool listens_on_loopback(const char *given, char root[VB_ROOT_TEXT], int *fd_p)
{
    const char *colon = strrchr(given, ':');
    char want[VB_ROOT_TEXT];
    struct sock_addr at;

    snprintf(root, VB_ROOT_TEXT, "%s", given);
    assert_int_equal(vb_root_listen(root, fd_p), VB_OK);
    assert_int_equal(vb_sock_local(*fd_p, &at), VB_OK);
    assert_true(vb_sock_port(&at) > 0);
    snprintf(want, sizeof(want), "%.*s:%d", (int)(colon - given), given, vb_sock_port(&at));
    assert_string_equal(root, want);
    return vb_sock_is_loopback(&at);
}

static void roots_are_opened(void **state)
{
    static const char *const bad[] = {"", "node", "node:", "node:x", "127.0.0.1:70000", ":1"};
    char root[VB_ROOT_TEXT], again[VB_ROOT_TEXT], said[1000];
    struct t_stderr caught;
    vb_status st;
    size_t i;
    int fd;

    (void)state;
    assert_true(listens_on_loopback("127.0.0.1:0", root, &fd));
    close(fd);
    assert_true(listens_on_loopback("localhost:0", root, &fd));
    close(fd);
    /* 192.0.2.1 is not an address of this host, so the socket listens at all addresses */
    assert_false(listens_on_loopback("192.0.2.1:0", root, &fd));
    snprintf(again, sizeof(again), "%s", root);
    t_stderr_catch(&caught);
    st = vb_root_listen(again, &fd);
    t_stderr_release(&caught, said, sizeof(said));
    assert_true(st < 0);
    assert_non_null(strstr(said, "--root HOST:PORT chooses a different port"));
    assert_string_equal(again, root);
    close(fd);
    for (i = 0; i < VB_COUNT(bad); i++) {
        snprintf(root, sizeof(root), "%s", bad[i]);
        t_stderr_catch(&caught);
        st = vb_root_listen(root, &fd);
        t_stderr_release(&caught, said, sizeof(said));
        assert_int_equal(st, VB_ERR_USAGE);
    }
    assert_true(vb_root_wants_port("node:0") && vb_root_wants_port("[::1]:0"));
    assert_false(vb_root_wants_port("node:10") || vb_root_wants_port("node"));
}

/* ---- environments ---------------------------------------------------------------------------- */

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_NODEID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_JOB_NODELIST",
                                        "SLURM_STEP_TASKS_PER_NODE",
                                        "PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "PMI_RANK",
                                        "PMI_SIZE"};

/* Removes all variables of launchers, then sets the variables in "NAME=VALUE NAME=VALUE ...". */
static void set_environment(const char *text)
{
    char copy[600], *at, *rest = NULL, *equals;
    size_t i;

    for (i = 0; i < VB_COUNT(variables); i++)
        unsetenv(variables[i]);
    assert_true((size_t)snprintf(copy, sizeof(copy), "%s", text) < sizeof(copy));
    for (at = strtok_r(copy, " ", &rest); at != NULL; at = strtok_r(NULL, " ", &rest)) {
        equals = strchr(at, '=');
        assert_non_null(equals);
        *equals = '\0';
        setenv(at, equals + 1, 1);
    }
}

static vb_status find(int timeout_ms, struct vb_launch *launch)
{
    struct vb_launch_opts opts = {.timeout_ms = timeout_ms};

    *launch = (struct vb_launch){.root_fd = -1, .rank = -1};
    return vb_launch_find(&opts, launch);
}

#define STEP "SLURM_JOB_ID=77 SLURM_STEP_ID=1 "
#define TASK STEP "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 "
#define TWO "SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_NODEID=0 "
#define TORCH "RANK=1 WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29500 "

/* The first of these processes are shells in which a user may call srun, and batch scripts. None of
 * the processes is a rank. */
static void environments_without_a_rank(void **state)
{
    static const char *const plain[] = {
        "",
        "SLURM_JOB_ID=77 SLURM_NTASKS=3 SLURM_JOB_NODELIST=n[1-3]",               /* salloc */
        "SLURM_JOB_ID=77 SLURM_NTASKS=3 SLURM_PROCID=0 SLURM_LOCALID=0",          /* sbatch */
        "SLURM_JOB_ID=77 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=3", /* also salloc */
        "SLURM_JOB_ID=77 SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=3", /* batch step */
        "SLURM_STEP_ID=1 SLURM_NTASKS=3",
        "SLURM_PROCID=1 SLURM_NTASKS=3",
        "WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29500",
        "RANK=3",
        "RANK= WORLD_SIZE=",
        "PMIX_RANK=0",
        "PMI_RANK=0 PMI_SIZE=1",
        "PMI_SIZE=3",
        "PMIX_RANK= PMIX_NAMESPACE=x",
    };
    struct vb_launch launch;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(plain); i++) {
        set_environment(plain[i]);
        assert_int_equal(find(TIMEOUT_MS, &launch), VB_OK);
        if (launch.supervised)
            fail_msg("\"%s\" was accepted as a rank", plain[i]);
    }
}

static void broken_environments_are_named(void **state)
{
    static const struct {
        const char *text, *why;
    } broken[] = {
        {STEP "SLURM_PROCID=0", "SLURM_NTASKS is not set: must be a number from 1 to 1024"},
        {STEP "SLURM_PROCID=0 SLURM_NTASKS=0", "SLURM_NTASKS 0: must be"},
        {STEP "SLURM_PROCID=0 SLURM_NTASKS=three", "SLURM_NTASKS three: must be"},
        {STEP "SLURM_PROCID=0 SLURM_NTASKS=99999999999999999999", "SLURM_NTASKS 99999"},
        {STEP "SLURM_PROCID=0 SLURM_NTASKS=2000", "SLURM_NTASKS 2000: must be"},
        {STEP "SLURM_PROCID=3 SLURM_NTASKS=3", "SLURM_PROCID 3: must be a number from 0 to 2"},
        {STEP "SLURM_PROCID=-1 SLURM_NTASKS=3", "SLURM_PROCID -1: must be"},
        {STEP "SLURM_PROCID=x SLURM_STEP_NUM_TASKS=3 SLURM_NTASKS=9", "SLURM_PROCID x: must be a "
                                                                      "number from 0 to 2"},
        {"SLURM_JOB_ID=x SLURM_STEP_ID=1 SLURM_PROCID=0", "SLURM_JOB_ID x, SLURM_STEP_ID 1"},
        {"SLURM_JOB_ID=1 SLURM_STEP_ID=-1 SLURM_PROCID=0", "SLURM_STEP_ID -1: must be numbers"},
        {TASK, "SLURM_JOB_NODELIST is not set: must be a list of hosts"},
        {TASK "SLURM_STEP_NODELIST=n[1-", "SLURM_STEP_NODELIST n[1-: must be a list of hosts"},
        {TASK "SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE=2,2",
         "SLURM_NODEID is not set"},
        {TASK "SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE=2,x SLURM_NODEID=0",
         "SLURM_STEP_TASKS_PER_NODE 2,x: must be a list of tasks per node, such as 2(x3),1, that "
         "includes node 0"},
        {TASK "SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE=2,2 SLURM_NODEID=2",
         "that includes node 2"},
        {TASK "SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_NODEID=1",
         "SLURM_LOCALID 1: must be a number from 0 to 0"},
        {TASK TWO, "srun has started 4 ranks on several hosts"},
        {"PMI_RANK=1 PMI_SIZE=3", "PMI_SIZE 3: this mpirun offers PMI, but ranks need PMIx"},
        {TASK TWO "PMI_RANK=1 PMI_SIZE=8", "PMI_RANK 1, PMI_SIZE 8: this mpirun offers PMI"},
        {TASK TWO "PMI_RANK=2 PMI_SIZE=4", "PMI_RANK 2, PMI_SIZE 4: this mpirun offers PMI"},
        {TASK TWO "PMI_RANK=1 PMI_SIZE=4",
         "srun has started 4 ranks on several hosts"}, /* --mpi=pmi2 */
        {STEP "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_JOB_NODELIST=n1 PMI_RANK=0 "
              "PMI_SIZE=3",
         "PMI_RANK 0, PMI_SIZE 3: this mpirun offers PMI"},
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE 0: must be a number from 1 to 1024"},
        {"RANK=0 WORLD_SIZE=1e3", "WORLD_SIZE 1e3: must be"},
        {"RANK=4 WORLD_SIZE=4", "RANK 4: must be a number from 0 to 3"},
        {"RANK=a WORLD_SIZE=4", "RANK a: must be"},
        {"RANK=0 WORLD_SIZE=4", "MASTER_ADDR is not set: must be"},
        {"RANK=0 WORLD_SIZE=4 MASTER_ADDR=n/1", "MASTER_ADDR n/1: must be"},
        {"RANK=0 WORLD_SIZE=4 MASTER_ADDR=n1", "MASTER_PORT is not set: must be"},
        {"RANK=0 WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=70000", "MASTER_PORT 70000: must be"},
        {TORCH "LOCAL_WORLD_SIZE=5 LOCAL_RANK=0", "LOCAL_WORLD_SIZE 5: must be"},
        {TORCH "LOCAL_WORLD_SIZE=2 LOCAL_RANK=2", "LOCAL_RANK 2: must be a number from 0 to 1"},
        {TORCH "LOCAL_WORLD_SIZE=2 LOCAL_RANK=1", "torchrun has started 4 ranks on several hosts"},
        {TORCH "LOCAL_WORLD_SIZE=4 LOCAL_RANK=0", "all 4 ranks are on this host, so rank 0 must be "
                                                  "local rank 0, but rank 1 is local rank 0"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500 LOCAL_WORLD_SIZE=2 LOCAL_RANK=1",
         "but rank 0 is local rank 1"},
        {STEP "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_STEP_NODELIST=n1",
         "but rank 1 is local rank 0"},
        {TORCH, "give all of them the same --secret-file FILE or VB_SECRET"},
        {TORCH, "(RANK, WORLD_SIZE, LOCAL_WORLD_SIZE)"},
        {TASK TWO, "(SLURM_PROCID, SLURM_STEP_NODELIST)"},
    };
    struct vb_launch launch;
    struct t_stderr caught;
    char said[1000];
    vb_status st;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(broken); i++) {
        set_environment(broken[i].text);
        t_stderr_catch(&caught);
        st = find(TIMEOUT_MS, &launch);
        t_stderr_release(&caught, said, sizeof(said));
        if (st != VB_ERR_USAGE || strstr(said, broken[i].why) == NULL)
            fail_msg(
                "environment \"%s\": the status is %d and the message is \"%s\", expected \"%s\"",
                broken[i].text, st, said, broken[i].why);
        assert_non_null(strstr(said, "; --ranks 1 runs a single rank\n"));
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1); /* there is only one line */
        assert_false(launch.supervised);
    }
}

static void rank_and_host_are_read(void **state)
{
    struct launch_found found = {0}, torch = {0};

    (void)state;
    set_environment(TASK TWO "SLURM_NTASKS=9 SLURM_JOB_NODELIST=m[1-9]");
    assert_int_equal(vb_launch_find_slurm(&found), VB_OK);
    assert_int_equal(found.by, LAUNCH_BY_SLURM);
    assert_int_equal(found.rank, 1);
    assert_int_equal(found.world, 4);
    assert_int_equal(found.local_rank, 1);
    assert_int_equal(found.local_ranks, 3);
    assert_false(found.one_host);
    assert_string_equal(found.host, "n1");
    assert_int_equal(found.port, vb_launch_port(77 * 64 + 1));

    set_environment(TORCH "LOCAL_WORLD_SIZE=4 LOCAL_RANK=1");
    assert_int_equal(vb_launch_find_torch(&torch), VB_OK);
    assert_int_equal(torch.by, LAUNCH_BY_TORCHRUN);
    assert_int_equal(torch.rank, 1);
    assert_int_equal(torch.world, 4);
    assert_int_equal(torch.local_rank, 1);
    assert_true(torch.one_host);
    assert_string_equal(torch.host, "n1");
    assert_int_equal(torch.port, vb_launch_port(29500));
}

/* A single rank does not have to find other ranks and needs no secret. If srun and torchrun both
 * set variables, the variables of torchrun count. */
static void one_task_is_one_rank(void **state)
{
    struct vb_launch launch;

    (void)state;
    set_environment(STEP "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_JOB_NODELIST=n1");
    assert_int_equal(find(TIMEOUT_MS, &launch), VB_OK);
    assert_true(launch.supervised && launch.rank == 0 && launch.world == 1);
    set_environment(TASK TWO "RANK=0 WORLD_SIZE=1");
    assert_int_equal(find(TIMEOUT_MS, &launch), VB_OK);
    assert_true(launch.supervised && launch.rank == 0 && launch.world == 1);
}

/* Computes the secret of a Slurm step from the user's secret, as rank 1 of 2 on another host than
 * rank 0. */
static void secret_of_step(int job, int step, unsigned char secret[VB_SECRET_BYTES])
{
    struct vb_launch_opts opts = {.timeout_ms = TIMEOUT_MS};
    struct vb_launch launch = {.root_fd = -1, .has_secret = true, .secret = {1, 2, 3}};
    char text[300];

    snprintf(text, sizeof(text),
             "SLURM_JOB_ID=%d SLURM_STEP_ID=%d SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 "
             "SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NODEID=1",
             job, step);
    set_environment(text);
    assert_int_equal(vb_launch_find(&opts, &launch), VB_OK);
    memcpy(secret, launch.secret, VB_SECRET_BYTES);
}

/* The same for a run of torchrun. */
static void secret_of_torch(const char *run_id, int restarts, const char *given,
                            unsigned char secret[VB_SECRET_BYTES])
{
    struct vb_launch_opts opts = {.timeout_ms = TIMEOUT_MS, .run_id = given};
    struct vb_launch launch = {.root_fd = -1, .has_secret = true, .secret = {1, 2, 3}};
    char text[300];

    snprintf(text, sizeof(text),
             "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=n1 MASTER_PORT=29500 "
             "TORCHELASTIC_RUN_ID=%s TORCHELASTIC_RESTART_COUNT=%d",
             run_id, restarts);
    set_environment(text);
    assert_int_equal(vb_launch_find(&opts, &launch), VB_OK);
    assert_non_null(strstr(launch.run_id, given != NULL ? given : run_id));
    memcpy(secret, launch.secret, VB_SECRET_BYTES);
}

/* Agents count restarts each by themselves, so the count is not part of the run's name. */
static void each_run_of_torchrun_has_its_own_secret(void **state)
{
    unsigned char a[VB_SECRET_BYTES], b[VB_SECRET_BYTES];

    (void)state;
    secret_of_torch("monday", 0, NULL, a);
    secret_of_torch("monday", 1, NULL, b);
    assert_memory_equal(a, b, sizeof(a));
    secret_of_torch("tuesday", 0, NULL, b);
    assert_memory_not_equal(a, b, sizeof(a));
    secret_of_torch("monday", 0, "again", b);
    assert_memory_not_equal(a, b, sizeof(a));
    secret_of_torch("tuesday", 0, "again", a); /* the user's text overrides the launcher's */
    assert_memory_equal(a, b, sizeof(a));
}

/* Jobs 77 and 333 have the same port but different secrets. */
static void each_job_of_slurm_has_its_own_secret(void **state)
{
    static const unsigned char given[VB_SECRET_BYTES] = {1, 2, 3};
    unsigned char a[VB_SECRET_BYTES], b[VB_SECRET_BYTES];

    (void)state;
    assert_int_equal(vb_launch_port(77 * 64 + 1), vb_launch_port(333 * 64 + 1));
    secret_of_step(77, 1, a);
    assert_memory_not_equal(a, given, sizeof(a));
    secret_of_step(77, 1, b);
    assert_memory_equal(a, b, sizeof(a));
    secret_of_step(333, 1, b);
    assert_memory_not_equal(a, b, sizeof(a));
    secret_of_step(77, 2, b);
    assert_memory_not_equal(a, b, sizeof(a));
}

/* ---- ranks that find each other -------------------------------------------------------------- */

struct told {
    vb_status st;
    struct vb_launch launch;
    bool listens;
};

/* Starts a process as task `rank` of `world` in a Slurm step. Pins the process to `cpu`, unless cpu
 * is -1. */
static pid_t start(int step, int rank, int world, int cpu, int timeout_ms, int fd)
{
    struct told told = {.st = VB_ERR_IO};
    cpu_set_t cpus;
    char text[300];
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    CPU_ZERO(&cpus);
    if (cpu >= 0)
        CPU_SET(cpu, &cpus);
    if (cpu >= 0 && sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
        _exit(1);
    snprintf(text, sizeof(text),
             "SLURM_JOB_ID=%d SLURM_STEP_ID=%d SLURM_PROCID=%d SLURM_LOCALID=%d SLURM_NTASKS=%d "
             "SLURM_STEP_NODELIST=n1",
             (int)getppid(), step, rank, rank, world);
    set_environment(text);
    told.st = find(timeout_ms, &told.launch);
    told.listens = told.launch.root_fd >= 0;
    _exit(write(fd, &told, sizeof(told)) == sizeof(told) ? 0 : 1);
}

static void ended_well(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Reads the results of n ranks from the pipe and sorts them by rank. */
static void listen_to(int fd, int n, struct told *told)
{
    struct told one;
    int i;

    for (i = 0; i < n; i++) {
        assert_int_equal(read(fd, &one, sizeof(one)), sizeof(one));
        assert_int_equal(one.st, VB_OK);
        assert_true(one.launch.rank >= 0 && one.launch.rank < n);
        told[one.launch.rank] = one;
    }
}

static void check_same_secret(const struct told *told, int n)
{
    static const unsigned char none[VB_SECRET_BYTES];
    int i;

    assert_memory_not_equal(told[0].launch.secret, none, sizeof(none));
    for (i = 0; i < n; i++) {
        assert_true(told[i].launch.supervised && told[i].launch.has_secret);
        assert_int_equal(told[i].launch.world, n);
        assert_memory_equal(told[i].launch.secret, told[0].launch.secret, VB_SECRET_BYTES);
        assert_string_equal(told[i].launch.root, told[0].launch.root);
        assert_int_equal(strncmp(told[i].launch.root, "127.0.0.1:", 10), 0);
        assert_int_equal(told[i].listens, i == 0);
    }
}

static void ranks_of_a_host_find_each_other(void **state)
{
    struct told told[5], again[5];
    pid_t pids[5];
    int fds[2], i;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (i = 4; i >= 0; i--)
        pids[i] = start(900, i, 5, -1, TIMEOUT_MS, fds[1]);
    listen_to(fds[0], 5, told);
    for (i = 0; i < 5; i++)
        ended_well(pids[i]);
    check_same_secret(told, 5);
    for (i = 0; i < 5; i++) {
        assert_int_equal(told[i].launch.local_rank, i);
        assert_int_equal(told[i].launch.local_ranks, 5);
    }

    for (i = 0; i < 5; i++) /* the same step starts again later */
        pids[i] = start(900, i, 5, -1, TIMEOUT_MS, fds[1]);
    listen_to(fds[0], 5, again);
    for (i = 0; i < 5; i++)
        ended_well(pids[i]);
    check_same_secret(again, 5);
    assert_memory_not_equal(again[0].launch.secret, told[0].launch.secret, VB_SECRET_BYTES);
    close(fds[0]);
    close(fds[1]);
}

/* Finds the first two CPUs that this process may use. Returns false if it may use only one. */
static bool two_cpus(int cpu[2])
{
    cpu_set_t cpus;
    int i, n = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
    for (i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &cpus))
            cpu[n++] = i;
    return n == 2;
}

static void ranks_with_their_own_cpus_do_not_share(void **state)
{
    int cpu[2], fds[2], i, shared;
    struct told told[2];
    pid_t pids[2];

    (void)state;
    if (!two_cpus(cpu))
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (shared = 0; shared < 2; shared++) {
        for (i = 0; i < 2; i++)
            pids[i] = start(901, i, 2, cpu[shared ? 0 : i], TIMEOUT_MS, fds[1]);
        listen_to(fds[0], 2, told);
        for (i = 0; i < 2; i++) {
            ended_well(pids[i]);
            assert_int_equal(told[i].launch.local_ranks, shared ? 2 : 1);
            assert_int_equal(told[i].launch.local_rank, shared ? i : 0);
        }
    }
    close(fds[0]);
    close(fds[1]);
}

/* Ranks 0 and 2 are pinned to one CPU, rank 1 is pinned to another CPU, and rank 3 may use all
 * CPUs. Ranks with the same CPUs are counted together. */
static void ranks_with_the_same_cpus_share_them(void **state)
{
    static const int numbers[] = {0, 0, 1, 0}, ranks[] = {2, 1, 2, 1};
    int cpu[2], fds[2], i;
    struct told told[4];
    pid_t pids[4];

    (void)state;
    if (!two_cpus(cpu))
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (i = 0; i < 4; i++)
        pids[i] = start(907, i, 4, i == 3 ? -1 : cpu[i % 2], TIMEOUT_MS, fds[1]);
    listen_to(fds[0], 4, told);
    for (i = 0; i < 4; i++) {
        ended_well(pids[i]);
        assert_int_equal(told[i].launch.local_rank, numbers[i]);
        assert_int_equal(told[i].launch.local_ranks, ranks[i]);
    }
    check_same_secret(told, 4);
    close(fds[0]);
    close(fds[1]);
}

static void a_missing_rank_is_named(void **state)
{
    struct told told;
    int fds[2], rank;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (rank = 0; rank < 2; rank++) {
        ended_well(start(902, rank, 2, -1, 100, fds[1]));
        assert_int_equal(read(fds[0], &told, sizeof(told)), sizeof(told));
        assert_int_equal(told.st, VB_ERR_TIMEOUT);
        assert_false(told.launch.supervised);
    }
    close(fds[0]);
    close(fds[1]);
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* Returns whether the process has the socket with this inode open. */
static bool has_socket(pid_t pid, unsigned long inode)
{
    char path[64], want[64], link[64];
    const struct dirent *entry;
    bool found = false;
    ssize_t n;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    dir = opendir(path);
    assert_non_null(dir);
    while (!found && (entry = readdir(dir)) != NULL) {
        n = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        found = strcmp(link, want) == 0;
    }
    closedir(dir);
    return found;
}

/* Returns whether a line of /proc/net/unix describes the socket at which process `pid` waits for
 * the other ranks. Stores the name of the socket. */
static bool is_socket_of_ranks(const char *line, pid_t pid, char name[120])
{
    const char *at = strstr(line, "@verbena-launch-");
    unsigned long flags, inode;

    if (at == NULL || sscanf(line, "%*s %*s %*s %lx %*s %*s %lu", &flags, &inode) != 2 ||
        (flags & LISTENS) == 0 || !has_socket(pid, inode))
        return false;
    snprintf(name, 120, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
    return true;
}

/* Finds the name of the socket at which process `pid`, which is rank 0, waits for the other ranks.
 * Sockets of other jobs on this machine are ignored. */
static void socket_of_ranks(pid_t pid, char name[120])
{
    bool found = false;
    char line[400];
    FILE *in;
    int i;

    for (i = 0; i < TIMEOUT_MS && !found; i++) {
        in = fopen("/proc/net/unix", "re");
        assert_non_null(in);
        while (!found && fgets(line, sizeof(line), in) != NULL)
            found = is_socket_of_ranks(line, pid, name);
        fclose(in);
        usleep(1000);
    }
    assert_true(found);
}

static uid_t another_user(void)
{
    const struct passwd *nobody = getpwnam("nobody");

    return nobody != NULL ? nobody->pw_uid : 65534;
}

/* A process of another user connects to rank 0. Rank 0 must close the connection without an answer,
 * and the job must continue. */
static void a_call_of_another_user_is_not_answered(void **state)
{
    char name[120], byte;
    struct told told[2];
    pid_t pids[2], stranger;
    int fds[2], fd;

    (void)state;
    if (getuid() != 0)
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pids[0] = start(903, 0, 2, -1, TIMEOUT_MS, fds[1]);
    socket_of_ranks(pids[0], name);
    stranger = fork();
    assert_true(stranger >= 0);
    if (stranger == 0) {
        if (setuid(another_user()) != 0 ||
            vb_sock_connect_unix(name, vb_clock_ns() + 1000000000, &fd) != VB_OK)
            _exit(1);
        _exit(vb_sock_read(fd, &byte, 1, vb_clock_ns() + UINT64_C(10000000000)) == VB_ERR_PEER ? 0
                                                                                               : 2);
    }
    ended_well(stranger);
    pids[1] = start(903, 1, 2, -1, TIMEOUT_MS, fds[1]);
    listen_to(fds[0], 2, told);
    ended_well(pids[0]);
    ended_well(pids[1]);
    check_same_secret(told, 2);
    close(fds[0]);
    close(fds[1]);
}

/* Strangers connect to rank 0 all the time, even as the same user. Rank 0 must still give up at its
 * deadline. */
static void strangers_do_not_delay_rank_0(void **state)
{
    char name[120], said[1000];
    struct t_stderr caught;
    struct told told;
    pid_t pid, strangers[2];
    int fds[2], fd, i;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    t_stderr_catch(&caught);
    pid = start(905, 0, 2, -1, 2000, fds[1]);
    socket_of_ranks(pid, name);
    for (i = 0; i < 2; i++) {
        strangers[i] = fork();
        assert_true(strangers[i] >= 0);
        if (strangers[i] == 0)
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (strangers[i] == 0)
            if (vb_sock_connect_unix(name, vb_clock_ns() + 1000000000, &fd) == VB_OK)
                close(fd);
    }
    ended_well(pid);
    t_stderr_release(&caught, said, sizeof(said));
    t_kill_all(strangers, 2);
    assert_int_equal(read(fds[0], &told, sizeof(told)), sizeof(told));
    assert_int_equal(told.st, VB_ERR_TIMEOUT);
    assert_non_null(strstr(said, "only 1 of the 2 ranks on this host have started"));
    assert_non_null(strstr(said, "refused a process that is not a rank"));
    assert_null(strstr(strstr(said, "refused") + 1, "refused")); /* the message is printed once */
    close(fds[0]);
    close(fds[1]);
}

static void an_address_in_use_is_reported(void **state)
{
    char name[120], said[1000];
    struct t_stderr caught;
    struct told told;
    int fds[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = start(906, 0, 2, -1, TIMEOUT_MS, fds[1]);
    socket_of_ranks(pid, name);
    t_stderr_catch(&caught);
    ended_well(start(906, 0, 2, -1, TIMEOUT_MS, fds[1]));
    t_stderr_release(&caught, said, sizeof(said));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(read(fds[0], &told, sizeof(told)), sizeof(told));
    assert_true(told.st < 0 && told.st != VB_ERR_TIMEOUT);
    assert_non_null(strstr(said, "another job or user has taken the name"));
    close(fds[0]);
    close(fds[1]);
}

/* A process of another user listens at the address of rank 0. A rank must report this and must send
 * nothing to that process. */
static void a_listener_of_another_user_is_refused(void **state)
{
    char name[120], byte;
    int fds[2], ready[2], fd, caller;
    struct told told;
    pid_t pid, squatter;

    (void)state;
    if (getuid() != 0)
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = start(904, 0, 2, -1, TIMEOUT_MS, fds[1]);
    socket_of_ranks(pid, name);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    squatter = fork();
    assert_true(squatter >= 0);
    if (squatter == 0) {
        if (setuid(another_user()) != 0 || vb_sock_listen_unix(name, NULL, &fd) != VB_OK ||
            write(ready[1], "r", 1) != 1)
            _exit(1);
        do
            caller = accept(fd, NULL, NULL);
        while (caller < 0 && usleep(1000) == 0);
        _exit(recv(caller, &byte, 1, 0) == 0 ? 0 : 2);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    ended_well(start(904, 1, 2, -1, TIMEOUT_MS, fds[1]));
    assert_int_equal(read(fds[0], &told, sizeof(told)), sizeof(told));
    assert_int_equal(told.st, VB_ERR_ACCESS);
    ended_well(squatter);
    close(fds[0]);
    close(fds[1]);
    close(ready[0]);
    close(ready[1]);
}

/* ---- PMIx ------------------------------------------------------------------------------------ */

/* The server accepts the connection but never answers, so the rank must give up. Some versions of
 * the PMIx library give up first, with their own message. */
static void a_silent_pmix_server_is_given_up(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(at);
    struct pollfd called = {.fd = fd, .events = POLLIN};
    struct vb_launch launch;
    char uri[80], text[560];
    pid_t pid;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(uri, sizeof(uri), "mute.0;tcp4://127.0.0.1:%d", ntohs(at.sin_port));
    snprintf(text, sizeof(text),
             "PMIX_RANK=0 PMIX_NAMESPACE=job PMIX_SECURITY_MODE=native PMIX_SERVER_URI51=%s "
             "PMIX_SERVER_URI41=%s PMIX_SERVER_URI4=%s PMIX_SERVER_URI3=%s",
             uri, uri, uri, uri);
    pid = fork();
    assert_true(pid >= 0);
    /* The call runs in a child process, so that all threads of the library end with the child. */
    if (pid == 0) {
        set_environment(text);
        _exit(find(300, &launch) != VB_OK ? 0 : 1);
    }
    ended_well(pid);
    assert_int_equal(poll(&called, 1, 0), 1); /* the child has connected to the server */
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_lists_of_slurm),
        cmocka_unit_test(task_lists_of_slurm),
        cmocka_unit_test(ports_do_not_clash),
        cmocka_unit_test(roots_are_opened),
        cmocka_unit_test(environments_without_a_rank),
        cmocka_unit_test(broken_environments_are_named),
        cmocka_unit_test(rank_and_host_are_read),
        cmocka_unit_test(one_task_is_one_rank),
        cmocka_unit_test(each_job_of_slurm_has_its_own_secret),
        cmocka_unit_test(each_run_of_torchrun_has_its_own_secret),
        cmocka_unit_test(ranks_of_a_host_find_each_other),
        cmocka_unit_test(ranks_with_their_own_cpus_do_not_share),
        cmocka_unit_test(ranks_with_the_same_cpus_share_them),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(a_call_of_another_user_is_not_answered),
        cmocka_unit_test(strangers_do_not_delay_rank_0),
        cmocka_unit_test(an_address_in_use_is_reported),
        cmocka_unit_test(a_listener_of_another_user_is_refused),
        cmocka_unit_test(a_silent_pmix_server_is_given_up),
    };

    return T_RUN(tests);
}
