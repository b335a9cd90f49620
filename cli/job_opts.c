/* SPDX-License-Identifier: MIT */
#include "cli/job_opts.h"

#include <stdlib.h>
#include <string.h>

#define FIELD(name) offsetof(struct cli_job, name)
#define WHY (VB_TIMES_WHY + 160)

const char *const cli_on_off[] = {"on", "off", NULL};
const char *const cli_orders[] = {"rank", "any", NULL};
const char *const cli_wires[] = {"f32", "bf16", NULL};

/* names in the order of enum vb_transport_choice */
static const char *const transport_choices[] = {"auto", "shm", "tcp", "verbs", NULL};
static const char *const spin_choices[] = {"auto", "off", NULL};

static const struct vb_opt rank_opts[] = {
    {"ranks", VB_OPT_INT, FIELD(ranks), .min = 1, .max = VB_WORLD_MAX, .arg = "N",
     .help = "start N ranks on this host; by default 1, or as many as srun, mpirun or torchrun "
             "started"},
    {"transport", VB_OPT_CHOICE, FIELD(transport), "auto", .choices = transport_choices,
     .arg = "HOW", .help = "how ranks exchange data; verbs is RDMA"},
    {"link", VB_OPT_TEXT, FIELD(link), .arg = "RATE[:MS]", .level = VB_OPT_MORE,
     .help = "for experiments, as root: give each rank of --ranks a network namespace, and connect "
             "them by links of RATE bits a second (100m, 1g, 10g) with MS milliseconds of latency"},
    {"timeout", VB_OPT_INT, FIELD(timeout_s), "60", .min = 1, .max = 86400, .arg = "SECONDS",
     .level = VB_OPT_MORE,
     .help = "how long to wait for other ranks, or for a sign of the supervisor of --hosts, before "
             "giving up"},
    {"detect", VB_OPT_REAL, FIELD(detect_s), "1", .max = VB_DETECT_MAX_S, .arg = "SECONDS",
     .level = VB_OPT_MORE,
     .help = "how long a rank may be silent before it counts as lost; a busy rank on the same host "
             "never does. Heartbeats, timeouts of sockets and RDMA retries follow from it; "
             "--timeout must be longer. Give all ranks the same"},
    {"logs", VB_OPT_TEXT, FIELD(logs), .arg = "DIR",
     .help = "with --ranks or --hosts: also write the messages of rank I to DIR/rank-I.log"},
};

static const struct vb_opt hosts_opts[] = {
    {"hosts", VB_OPT_TEXT, FIELD(hosts), .arg = "LIST|FILE",
     .help = "start the ranks over ssh: a,b:2 is one rank on host a and two on host b; a file has "
             "one host per line"},
    {"ssh", VB_OPT_TEXT, FIELD(ssh), .arg = "COMMAND", .level = VB_OPT_MORE,
     .help =
         "command that runs another command on a host, as words separated by blanks; by default "
         "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o "
         "ServerAliveCountMax=6"},
    {"program", VB_OPT_TEXT, FIELD(program), .arg = "PATH", .level = VB_OPT_MORE,
     .help = "path of verbena on the hosts; by default the same path as on this host"},
};

static const struct vb_opt by_hand_opts[] = {
    {"rank", VB_OPT_INT, FIELD(rank), .max = VB_WORLD_MAX - 1, .arg = "I", .level = VB_OPT_MORE,
     .help = "be rank I of a job whose ranks are started by hand, one command per rank"},
    {"world", VB_OPT_INT, FIELD(world), .min = 1, .max = VB_WORLD_MAX, .arg = "N",
     .level = VB_OPT_MORE, .help = "number of ranks of that job"},
    {"root", VB_OPT_TEXT, FIELD(root), .arg = "HOST:PORT", .level = VB_OPT_MORE,
     .help = "address at which rank 0 of that job listens"},
    {"secret-file", VB_OPT_TEXT, FIELD(secret_file), .arg = "FILE", .level = VB_OPT_MORE,
     .help = "file with the secret that all ranks of that job share: 32 bytes or 64 hexadecimal "
             "digits. Only its owner may be able to read it. The variable VB_SECRET can hold the "
             "digits instead"},
    {"run-id", VB_OPT_TEXT, FIELD(run_id), .arg = "TEXT", .level = VB_OPT_MORE,
     .help = "a text that differs in each run with the same secret, such as the date; a rank left "
             "over from an earlier run is then refused. srun, mpirun and torchrun have their own"},
};

static const struct vb_opt network_opts[] = {
    {"device", VB_OPT_TEXT, FIELD(device), .arg = "NAME", .level = VB_OPT_MORE,
     .help = "RDMA device to use; by default the one on the route to each peer"},
    {"bind", VB_OPT_TEXT, FIELD(bind), .arg = "ADDR", .level = VB_OPT_MORE,
     .help = "address of this host to use for RDMA"},
    {"any-interface", VB_OPT_FLAG, FIELD(any_interface), .level = VB_OPT_MORE,
     .help = "allow traffic between hosts over loopback, bridges and the control network, too"},
    {"spin", VB_OPT_CHOICE, FIELD(spin), "auto", .choices = spin_choices, .arg = "auto|off",
     .level = VB_OPT_MORE,
     .help = "poll for a moment before sleeping; off: sleep at once and leave the CPU to others"},
    {"patience", VB_OPT_REAL, FIELD(patience), "1", .max = 1000, .arg = "FACTOR",
     .level = VB_OPT_MORE,
     .help = "multiply all timeouts by FACTOR, --detect and --timeout among them"},
    {"verbs-imm", VB_OPT_CHOICE, FIELD(verbs_imm), "on", .choices = cli_on_off, .arg = "on|off",
     .level = VB_OPT_MORE,
     .help = "off: send notes as messages after RDMA writes, as on devices without immediate data"},
};

void cli_job_groups(struct cli_job *job, struct vb_opt_group groups[CLI_JOB_GROUPS])
{
    groups[0] = (struct vb_opt_group){"Ranks", rank_opts, VB_COUNT(rank_opts), job};
    groups[1] = (struct vb_opt_group){"Hosts", hosts_opts, VB_COUNT(hosts_opts), job};
    groups[2] = (struct vb_opt_group){"Ranks that are started by hand", by_hand_opts,
                                      VB_COUNT(by_hand_opts), job};
    groups[3] = (struct vb_opt_group){"Network", network_opts, VB_COUNT(network_opts), job};
}

int cli_job_parse(const struct cli_command *command, const struct vb_opt_group *groups,
                  int n_groups, int max_operands, int argc, char **argv, struct cli_job *job,
                  struct vb_opts *opts)
{
    static char name[] = "verbena";
    int code;

    job->argc = argc;
    job->argv = calloc((size_t)argc + 3, sizeof(*job->argv));
    if (job->argv == NULL)
        return cli_exit_code(vb_err_sys("calloc"));
    job->argv[0] = name;
    job->argv[1] = (char *)command->name;
    if (argc > 0)
        memcpy(job->argv + 2, argv, (size_t)argc * sizeof(*argv));
    code = cli_parse(command, groups, n_groups, max_operands, argc, argv, opts);
    job->has_rank = code < 0 && vb_opts_given(opts, "rank");
    return code;
}

/* Returns the number of processes that this process starts if it becomes the supervisor. */
static int64_t to_start(const struct cli_job *job)
{
    return (job->ranks > 0 ? job->ranks : 1) + job->extra;
}

/* Returns whether others may join the job, so that the user may choose its secret although a
 * supervisor starts the ranks. */
static bool takes_joiners(const struct cli_job *job)
{
    return job->outlive || (job->elastic && (job->ranks > 1 || job->hosts != NULL));
}

/* Returns a message if options contradict each other or if an option needs another one; otherwise
 * NULL. */
static const char *contradiction(const struct cli_job *job, const struct vb_launch *launch)
{
    bool by_hand =
        job->has_rank || job->root != NULL || (job->secret_file != NULL && !takes_joiners(job));

    if (launch->supervised)
        return NULL;
    if (job->ranks > 1 && (job->world > 0 || by_hand))
        return "--ranks starts all ranks on this host; --rank, --world, --root and --secret-file "
               "are "
               "for ranks that are started by hand";
    if (job->ranks + job->extra > VB_WORLD_MAX)
        return "--ranks and --dedicated-servers ask for more processes than a job can have";
    if (job->world == 0 && by_hand)
        return "--rank, --root and --secret-file need --world";
    if (job->world > 0 && job->rank >= job->world)
        return "--rank must be less than --world";
    if (job->world > 1 && job->root == NULL)
        return "--world needs --root HOST:PORT, where rank 0 listens";
    if (job->world > 1 && vb_root_wants_port(job->root))
        return "--root HOST:0: the other ranks would not know the port";
    if (job->world > 1 && job->secret_file == NULL && !launch->has_secret)
        return "--world needs the job's secret: give --secret-file FILE or set VB_SECRET";
    return NULL;
}

/* The same for --hosts. --ssh and --program may be set in the environment at all times. */
static const char *hosts_contradiction(const struct cli_job *job)
{
    if (job->ranks > 1)
        return "--hosts decides the number of ranks: a:2 is two ranks on host a; leave --ranks out";
    if (job->has_rank || job->world > 0 || (job->secret_file != NULL && !takes_joiners(job)))
        return "--hosts starts all ranks; --rank, --world and --secret-file are for ranks that are "
               "started by hand";
    if (job->root != NULL && (strrchr(job->root, ':') == NULL || strlen(job->root) >= VB_ROOT_TEXT))
        return "--root must be HOST:PORT, an address at which the others reach the first host";
    return NULL;
}

/* The same for --link. A rank, which has the same arguments, need not check them. */
static const char *link_contradiction(const struct cli_job *job, const struct vb_launch *launch)
{
    if (job->link == NULL || launch->supervised)
        return NULL;
    if (job->hosts != NULL || job->world > 0)
        return "--link connects ranks of this host: use --ranks instead of --hosts or --world";
    if (to_start(job) < 2)
        return "--link needs --ranks, at least 2";
    if (job->transport == VB_TRANSPORT_SHM || job->transport == VB_TRANSPORT_VERBS)
        return "--link is crossed by TCP: leave --transport out, or use --transport tcp";
    return NULL;
}

/* Returns a message if --logs was given but nobody would write logs; otherwise NULL. Only our own
 * supervisor writes logs. ours: our supervisor has started this process. */
static const char *lost_logs(const struct cli_job *job, const struct vb_launch *launch, bool ours)
{
    bool keeps = !launch->supervised && (job->hosts != NULL || to_start(job) > 1);

    if (job->logs == NULL || ours || keeps)
        return NULL;
    return "--logs needs ranks that are started by --ranks N or --hosts";
}

struct vb_times cli_job_times(const struct cli_job *job)
{
    struct vb_times times;

    vb_times_of(job->detect_s, job->patience, &times);
    return times;
}

/* Returns a message if the times of the job cannot be put in order; otherwise NULL. */
static const char *times_contradiction(const struct cli_job *job, char text[WHY])
{
    struct vb_times times = cli_job_times(job);
    double patience = job->patience > 0 ? job->patience : 1;
    char why[VB_TIMES_WHY];

    if (job->detect_s < VB_DETECT_MIN_S) { /* bounds of options are whole numbers */
        snprintf(text, WHY, "--detect %g: must be from %g to %d", job->detect_s, VB_DETECT_MIN_S,
                 VB_DETECT_MAX_S);
        return text;
    }
    if (vb_times_check(&times, (int64_t)((double)job->timeout_s * 1000 * patience), why))
        return NULL;
    snprintf(text, WHY,
             "--detect %g and --timeout %lld do not fit: %s; give a shorter --detect or a longer "
             "--timeout",
             job->detect_s, (long long)job->timeout_s, why);
    return text;
}

static void announce(const char *why)
{
    fprintf(stderr, "transport: %s\n", why);
}

void cli_job_group(const struct cli_job *job, struct vb_group_opts *g)
{
    *g = VB_GROUP_OPTS_DEFAULT;
    g->transport = (enum vb_transport_choice)job->transport;
    g->timeout_ms = (int)job->timeout_s * 1000;
    g->patience = job->patience;
    g->detect_s = job->detect_s;
    g->never_spin = job->spin == 1;
    g->device = job->device;
    g->bind = job->bind;
    g->no_immediate = job->verbs_imm == 1;
    g->any_interface = job->any_interface;
    g->announce = announce;
}

static void fill_group(const struct cli_job *job, struct vb_launch *launch, struct vb_group_opts *g)
{
    cli_job_group(job, g);
    if (!launch->supervised) {
        g->rank = (int)job->rank;
        g->world = (int)(job->world > 0 ? job->world : to_start(job));
        g->root = job->root;
    }
    vb_launch_group(launch, g);
}

int cli_job_secret(const struct cli_job *job, struct vb_launch *launch, struct vb_group_opts *group)
{
    const char *file = launch->supervised ? NULL : job->secret_file;
    unsigned char *secret;

    if (!launch->has_secret && file == NULL)
        return -1;
    if (vb_launch_take_secret(launch, &secret) != VB_OK ||
        (file != NULL && vb_secret_read(file, secret) != VB_OK))
        return CLI_FAILED;
    group->secret = secret;
    if (!launch->supervised && vb_secret_of_run(secret, job->run_id) != VB_OK)
        return CLI_USAGE;
    return -1;
}

/* Finds out whether a launcher has started this process as a rank. *ours_p becomes true if the
 * launcher is our own supervisor. Other launchers (srun, mpirun, torchrun) are ignored if an option
 * says where the ranks run. */
static vb_status find_launch(const struct cli_job *job, struct vb_launch *launch, bool *ours_p)
{
    double patience = job->patience > 0 ? job->patience : 1;
    struct vb_launch_opts opts = {.root = job->root,
                                  .secret_file = job->secret_file,
                                  .run_id = job->run_id,
                                  .timeout_ms =
                                      (int64_t)((double)job->timeout_s * 1000 * patience)};
    bool placed = job->ranks > 0 || job->has_rank || job->world > 0 || job->hosts != NULL;
    vb_status st = vb_launch_read(opts.timeout_ms, launch);

    *ours_p = st == VB_OK && launch->supervised;
    if (st == VB_OK && !launch->supervised && !placed)
        st = vb_launch_find(&opts, launch);
    return st;
}

int cli_job_place(const struct cli_command *command, struct cli_job *job, struct vb_launch *launch,
                  struct vb_group_opts *group)
{
    struct cli_job rank = *job;
    char text[WHY];
    const char *why;
    bool ours;
    int code;
    vb_status st;

    memset(&job->parsed, 0, sizeof(job->parsed));
    if (job->hosts != NULL)
        rank.root = NULL; /* the launcher passes --root on to the ranks */
    st = find_launch(&rank, launch, &ours);
    job->ours = ours;
    if (st != VB_OK)
        return cli_exit_code(st);
    why = contradiction(&rank, launch);
    if (why == NULL)
        why = link_contradiction(job, launch);
    if (why == NULL)
        why = lost_logs(&rank, launch, ours);
    if (why == NULL)
        why = times_contradiction(job, text);
    if (why == NULL && job->link != NULL && vb_link_parse(job->link, &job->cable, text) != VB_OK)
        why = text;
    if (why != NULL)
        return cli_refuse(command, "%s", why);
    fill_group(&rank, launch, group);
    code = cli_job_secret(job, launch, group);
    if (code >= 0 || launch->supervised || job->hosts == NULL)
        return code;
    why = hosts_contradiction(job);
    if (why != NULL)
        return cli_refuse(command, "%s", why);
    if (vb_hosts_parse(job->hosts, &job->parsed) != VB_OK)
        return CLI_USAGE;
    group->world = job->parsed.ranks;
    return -1;
}

/* The arguments of a process that joins the job, without the address. */
static char *const joiner[] = {"verbena", "train", "--join", NULL};

bool cli_job_supervises(const struct cli_job *job, const struct vb_launch *launch)
{
    return job->parsed.n > 0 || (to_start(job) > 1 && !launch->supervised);
}

bool cli_job_launch(struct cli_job *job, const struct vb_launch *launch,
                    const struct vb_group_opts *group, int *code_p)
{
    struct vb_times times = cli_job_times(job);
    struct vb_supervise_opts o = {
        .argv = job->argv,
        .logs = job->logs,
        .run = job->run,
        .append = job->append,
        .link = job->link != NULL ? &job->cable : NULL,
        .why = job->why,
        .why_size = sizeof(job->why),
        .grace_ms = times.grace_ms,
        .outlive = job->outlive,
        .vital = job->vital,
        .vital_end = job->vital_end,
        .workers = job->workers,
        .elastic = job->elastic,
        .restarts = job->restarts,
        .joiner = joiner,
        .secret = takes_joiners(job) && job->secret_file != NULL ? group->secret : NULL,
    };
    vb_status st;

    if (!cli_job_supervises(job, launch))
        return false;
    if (job->parsed.n > 0) {
        o.hosts = &job->parsed;
        o.ssh = job->ssh;
        o.program = job->program;
        o.root = job->root;
    } else {
        o.ranks = (int)to_start(job);
    }
    *code_p = CLI_FAILED;
    st = vb_supervise(&o, code_p);
    if (st != VB_OK)
        *code_p = cli_exit_code(st);
    vb_hosts_fini(&job->parsed);
    return true;
}
