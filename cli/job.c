/* SPDX-License-Identifier: MIT */
#include "cli/job.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#define FIELD(name) offsetof(struct cli_job, name)

static const char *const transport_choices[] = {"auto", "shm", "tcp", "verbs",
                                                NULL}; /* as in its enum */

static const char *const imm_choices[] = {"on", "off", NULL};
static const char *const spin_choices[] = {"auto", "off", NULL};

const struct vb_opt cli_job_opts[CLI_JOB_OPTS] = {
    {"ranks", VB_OPT_INT, FIELD(ranks), NULL, 1, VB_WORLD_MAX, NULL, "N",
     "start this many ranks on this host; without it one, or what srun, mpirun or torchrun say"},
    {"logs", VB_OPT_TEXT, FIELD(logs), NULL, 0, 0, NULL, "DIR",
     "keep what each rank says in DIR/rank-0.log and so on (with --ranks and --hosts)"},
    {"transport", VB_OPT_CHOICE, FIELD(transport), "auto", 0, 0, transport_choices, "HOW",
     "how bytes move between ranks"},
    {"timeout", VB_OPT_INT, FIELD(timeout_s), "60", 1, 86400, NULL, "SECONDS",
     "how long to wait for other ranks before giving up"},
    {"patience", VB_OPT_REAL, FIELD(patience), "1", 0, 1000, NULL, "FACTOR",
     "all deadlines are so many times longer, also the 3 s after which a silent rank is lost"},
    {"rank", VB_OPT_INT, FIELD(rank), NULL, 0, VB_WORLD_MAX - 1, NULL, "I",
     "be this one rank of a job whose ranks are started by hand"},
    {"world", VB_OPT_INT, FIELD(world), NULL, 1, VB_WORLD_MAX, NULL, "N",
     "how many ranks that job has"},
    {"root", VB_OPT_TEXT, FIELD(root), NULL, 0, 0, NULL, "HOST:PORT",
     "where rank 0 of that job listens"},
    {"secret-file", VB_OPT_TEXT, FIELD(secret_file), NULL, 0, 0, NULL, "FILE",
     "what all ranks of that job share: 32 bytes or 64 hexadecimal digits, readable by nobody "
     "else; or set VB_SECRET to the digits"},
    {"spin", VB_OPT_CHOICE, FIELD(spin), "auto", 0, 0, spin_choices, "auto|off",
     "poll for a moment before sleeping, or sleep at once and leave the cpu to others"},
    {"device", VB_OPT_TEXT, FIELD(device), NULL, 0, 0, NULL, "NAME",
     "the RDMA device to use; without it the way to each peer decides"},
    {"bind", VB_OPT_TEXT, FIELD(bind), NULL, 0, 0, NULL, "ADDR",
     "the address of this host to use for RDMA"},
    {"verbs-imm", VB_OPT_CHOICE, FIELD(verbs_imm), "on", 0, 0, imm_choices, "on|off",
     "off: notes follow RDMA writes as messages, as with devices that have no immediate data"},
    {"any-interface", VB_OPT_FLAG, FIELD(any_interface), NULL, 0, 0, NULL, NULL,
     "let hosts talk over loopback, bridges and the control network too"},
};

/* Processes that this one would start, or be. */
static int64_t to_start(const struct cli_job *job)
{
    return (job->ranks > 0 ? job->ranks : 1) + job->extra;
}

/* Options that contradict each other, or need one another. */
static const char *contradiction(const struct cli_job *job, const struct vb_launch *launch)
{
    bool by_hand =
        job->has_rank || job->root != NULL || (job->secret_file != NULL && !job->outlive);

    if (launch->supervised)
        return NULL;
    if (job->ranks > 1 && (job->world > 0 || by_hand))
        return "--ranks starts all ranks here; --rank, --world, --root and --secret-file are for "
               "ranks started by hand";
    if (job->ranks + job->extra > VB_WORLD_MAX)
        return "--ranks and --dedicated-servers are more processes than a job can have";
    if (job->world == 0 && by_hand)
        return "--rank, --root and --secret-file need --world";
    if (job->world > 0 && job->rank >= job->world)
        return "--rank must be less than --world";
    if (job->world > 1 && job->root == NULL)
        return "--world needs --root HOST:PORT, where rank 0 listens";
    if (job->world > 1 && vb_root_wants_port(job->root))
        return "--root HOST:0: the other ranks would not know the port";
    if (job->world > 1 && job->secret_file == NULL && !launch->has_secret)
        return "--world needs the job's secret: --secret-file FILE or VB_SECRET";
    return NULL;
}

/* Only our own supervisor keeps logs; ours: it has started this process. */
static const char *lost_logs(const struct cli_job *job, const struct vb_launch *launch, bool ours)
{
    bool keeps = !launch->supervised && (job->hosts || to_start(job) > 1);

    if (job->logs == NULL || ours || keeps)
        return NULL;
    return "--logs is for ranks that --ranks N or --hosts starts";
}

static void announce(const char *why)
{
    fprintf(stderr, "transport: %s\n", why);
}

void cli_job_group(const struct cli_job *job, struct vb_group_opts *g)
{
    g->root_fd = -1;
    g->transport = (enum vb_transport_choice)job->transport;
    g->timeout_ms = (int)job->timeout_s * 1000;
    g->patience = job->patience;
    g->never_spin = job->spin == 1;
    g->device = job->device;
    g->bind = job->bind;
    g->no_immediate = job->verbs_imm == 1;
    g->any_interface = job->any_interface;
    g->announce = announce;
}

static void fill_group(const struct cli_job *job, const struct vb_launch *launch,
                       struct vb_group_opts *g)
{
    memset(g, 0, sizeof(*g));
    cli_job_group(job, g);
    if (launch->supervised) {
        g->rank = launch->rank;
        g->world = launch->world;
        g->root = launch->root;
        g->root_fd = launch->root_fd;
    } else {
        g->rank = (int)job->rank;
        g->world = (int)(job->world > 0 ? job->world : to_start(job));
        g->root = job->root;
    }
    if (launch->has_secret)
        memcpy(g->secret, launch->secret, sizeof(g->secret));
}

/* Who says where the ranks are is not asked who else might. */
static bool says_where(const struct cli_job *job)
{
    return job->ranks > 0 || job->has_rank || job->world > 0 || job->hosts;
}

/* ours_p: it was a supervisor of ours that made this process a rank. */
static vb_status find_launch(const struct cli_job *job, struct vb_launch *launch, bool *ours_p)
{
    double patience = job->patience > 0 ? job->patience : 1;
    struct vb_launch_opts opts = {.root = job->root,
                                  .secret_file = job->secret_file,
                                  .timeout_ms =
                                      (int64_t)((double)job->timeout_s * 1000 * patience)};
    vb_status st = vb_launch_read(launch);

    *ours_p = st == VB_OK && launch->supervised;
    if (st == VB_OK && !launch->supervised && !says_where(job))
        st = vb_launch_find(&opts, launch);
    return st;
}

int cli_job_place(const struct cli_command *command, const struct cli_job *job,
                  struct vb_launch *launch, struct vb_group_opts *group)
{
    const char *why;
    vb_status st;
    bool ours;

    st = find_launch(job, launch, &ours);
    if (st != VB_OK)
        return cli_exit_code(st);
    why = contradiction(job, launch);
    if (why == NULL)
        why = lost_logs(job, launch, ours);
    if (why != NULL)
        return cli_refuse(command, why);
    fill_group(job, launch, group);
    if (job->secret_file != NULL && !launch->supervised &&
        vb_secret_read(job->secret_file, group->secret) != VB_OK)
        return CLI_FAILED;
    return -1;
}

char **cli_job_arguments(int argc, char **argv)
{
    char **copy = calloc((size_t)argc + 1, sizeof(*copy));

    if (copy != NULL && argc > 0)
        memcpy(copy, argv, (size_t)argc * sizeof(*copy));
    return copy;
}

int cli_supervise(const struct cli_command *command, struct vb_supervise_opts *o, int argc,
                  char **argv)
{
    static char name[] = "verbena";
    char **full = calloc((size_t)argc + 3, sizeof(*full));
    int code = CLI_FAILED;
    vb_status st;

    if (full == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    full[0] = name;
    full[1] = (char *)command->name;
    memcpy(full + 2, argv, (size_t)argc * sizeof(*full));
    o->argv = full;
    vb_k_blas_no_threads_in_children();
    st = vb_supervise(o, &code);
    free(full);
    return st == VB_OK ? code : cli_exit_code(st);
}

void cli_job_outlive(const struct cli_job *job, const unsigned char *secret,
                     struct vb_supervise_opts *opts)
{
    opts->outlive = job->outlive;
    opts->vital = job->vital;
    opts->vital_end = job->vital_end;
    opts->workers = job->workers;
    opts->secret = job->outlive && job->secret_file != NULL ? secret : NULL;
}

bool cli_job_supervise(const struct cli_command *command, const struct cli_job *job,
                       const struct vb_launch *launch, const struct vb_group_opts *group, int argc,
                       char **argv, int *code_p)
{
    struct vb_supervise_opts o = {.ranks = (int)to_start(job), .logs = job->logs};

    if (o.ranks < 2 || launch->supervised)
        return false;
    cli_job_outlive(job, group->secret, &o);
    *code_p = cli_supervise(command, &o, argc, argv);
    return true;
}
