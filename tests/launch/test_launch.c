/* SPDX-License-Identifier: MIT
 *
 * Tests the environment variables of srun and torchrun, valid and broken.
 *
 * Covers: launch/launch_find.c launch/launch_slurm.c launch/launch_torch.c net/control/root.c
 */
#include "net/control/sock.h"
#include "tests/support/fixtures/launch_fixture.h"

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
        t_set_environment(plain[i]);
        assert_int_equal(t_find(TIMEOUT_MS, &launch), VB_OK);
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
        t_set_environment(broken[i].text);
        t_stderr_catch(&caught);
        st = t_find(TIMEOUT_MS, &launch);
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
    t_set_environment(TASK TWO "SLURM_NTASKS=9 SLURM_JOB_NODELIST=m[1-9]");
    assert_int_equal(vb_launch_find_slurm(&found), VB_OK);
    assert_int_equal(found.by, LAUNCH_BY_SLURM);
    assert_int_equal(found.rank, 1);
    assert_int_equal(found.world, 4);
    assert_int_equal(found.local_rank, 1);
    assert_int_equal(found.local_ranks, 3);
    assert_false(found.one_host);
    assert_string_equal(found.host, "n1");
    assert_int_equal(found.port, vb_launch_port(77 * 64 + 1));

    t_set_environment(TORCH "LOCAL_WORLD_SIZE=4 LOCAL_RANK=1");
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
    t_set_environment(STEP "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_JOB_NODELIST=n1");
    assert_int_equal(t_find(TIMEOUT_MS, &launch), VB_OK);
    assert_true(launch.supervised && launch.rank == 0 && launch.world == 1);
    t_set_environment(TASK TWO "RANK=0 WORLD_SIZE=1");
    assert_int_equal(t_find(TIMEOUT_MS, &launch), VB_OK);
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
    t_set_environment(text);
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
    t_set_environment(text);
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
    };

    return T_RUN(tests);
}
