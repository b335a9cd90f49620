/* SPDX-License-Identifier: MIT
 *
 * verbena topo: shows the machine as the engine sees it, and the placement of ranks and threads.
 */
#include "cli/cli.h"
#include "net/net.h"
#include "topo/topo.h"

#include <string.h>

struct topo_args {
    int64_t ranks, threads;
    const char *synthetic, *xml, *cpus, *save;
    bool json;
};

#define FIELD(name) offsetof(struct topo_args, name)

static const struct vb_opt opts[] = {
    {"ranks", VB_OPT_INT, FIELD(ranks), "1", .min = 1, .max = VB_PLACEMENT_RANKS_MAX, .arg = "N",
     .help = "number of ranks to place on this host"},
    {"threads", VB_OPT_INT, FIELD(threads), "0", .max = VB_PLACEMENT_THREADS_MAX, .arg = "T",
     .help = "compute threads per rank; 0: as many as the machine suggests"},
    {"synthetic", VB_OPT_TEXT, FIELD(synthetic), .arg = "STRING",
     .help = "use an imaginary machine in hwloc's notation, such as \"pack:2 numa:1 core:8 pu:2\""},
    {"xml", VB_OPT_TEXT, FIELD(xml), .arg = "FILE",
     .help = "use a machine that was recorded with --save or with lstopo FILE.xml"},
    {"cpus", VB_OPT_TEXT, FIELD(cpus), .arg = "LIST",
     .help = "use only these hardware threads, such as 0-3,8"},
    {"save", VB_OPT_TEXT, FIELD(save), .arg = "FILE",
     .help = "record the machine in a file, which --xml reads on any host"},
    {"json", VB_OPT_FLAG, FIELD(json), .help = "print one JSON object instead of text"},
};

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns how many numbers, beginning with number i, follow each other at the same distance; at
 * least 1. *step_p: the distance. */
static int run_length(const struct vb_ints *ints, int i, int *step_p)
{
    int n = 1;

    *step_p = i + 1 < ints->n ? ints->v[i + 1] - ints->v[i] : 1;
    while (i + n < ints->n && ints->v[i + n] - ints->v[i + n - 1] == *step_p)
        n++;
    return n;
}

/* Writes a list in the notation of taskset, such as "0-3,8", or "0-14:2" for every second
 * number. */
static void list_text(const struct vb_ints *ints, char *out, size_t size)
{
    size_t len = 0;
    int i, n, step;

    snprintf(out, size, "-");
    for (i = 0; i < ints->n && len < size; i += n) {
        n = run_length(ints, i, &step);
        if (n < 3 && step != 1)
            n = 1;
        len += (size_t)snprintf(out + len, size - len, "%s%d", i > 0 ? "," : "", ints->v[i]);
        if (n > 1 && len < size)
            len += (size_t)snprintf(out + len, size - len, "-%d", ints->v[i + n - 1]);
        if (n > 1 && step != 1 && len < size)
            len += (size_t)snprintf(out + len, size - len, ":%d", step);
    }
}

static void print_nic(const struct vb_nic *nic)
{
    printf("nic       %s%s%s", nic->net != NULL ? nic->net : "",
           nic->net != NULL && nic->rdma != NULL ? " = " : "", nic->rdma != NULL ? nic->rdma : "");
    if (nic->rdma != NULL)
        printf(", RDMA");
    if (nic->mbit_s > 0)
        printf(", %g Gb/s", (double)nic->mbit_s / 1000);
    if (nic->active >= 0)
        printf(", %s", nic->active ? "up" : "down");
    if (nic->node >= 0)
        printf(", near NUMA node %d", nic->node);
    else if (nic->package >= 0)
        printf(", near package %d", nic->package);
    printf("%s\n", nic->avoid ? ", control network: not used for job traffic" : "");
}

static void print_machine(const struct vb_topo_facts *facts)
{
    int i;

    printf("machine   %s%s%s: %d package%s, %d NUMA node%s, %d core%s, %d hardware thread%s, "
           "%.1f GiB\n",
           facts->origin, facts->cpu_model != NULL ? ", " : "",
           facts->cpu_model != NULL ? facts->cpu_model : "", facts->n_packages,
           facts->n_packages == 1 ? "" : "s", facts->n_nodes, facts->n_nodes == 1 ? "" : "s",
           facts->n_cores, facts->n_cores == 1 ? "" : "s", facts->n_cpus,
           facts->n_cpus == 1 ? "" : "s", (double)facts->memory_bytes / (1 << 30));
    for (i = 0; i < facts->n_caches; i++)
        printf("%sL%d %d x %lld KiB", i == 0 ? "caches    " : ", ", facts->caches[i].level,
               facts->caches[i].n, (long long)facts->caches[i].bytes >> 10);
    if (facts->n_caches > 0)
        printf("\n");
    printf("allowed   %d of %d cores, %d of %d hardware threads", facts->n_allowed_cores,
           facts->n_cores, facts->n_allowed_cpus, facts->n_cpus);
    if (facts->cpu_quota > 0)
        printf(", CPU time limited to that of %.1f hardware threads", facts->cpu_quota);
    printf("\n");
    for (i = 0; i < facts->n_nics; i++)
        print_nic(&facts->nics[i]);
}

#define COLUMNS 7
#define CELL 64

static const char *const titles[COLUMNS] = {"rank",    "package", "NUMA",    "cores",
                                            "threads", "on cpus", "progress"};

static const char *nic_of(const struct vb_placement_rank *rank)
{
    if (rank->nic == NULL)
        return NULL;
    return rank->nic->rdma != NULL ? rank->nic->rdma : rank->nic->net;
}

static void fill_row(const struct vb_placement_rank *rank, int threads, char cells[COLUMNS][CELL])
{
    snprintf(cells[0], CELL, "%d", rank->rank);
    snprintf(cells[1], CELL, "several");
    if (rank->package >= 0)
        snprintf(cells[1], CELL, "%d", rank->package);
    list_text(&rank->nodes, cells[2], CELL);
    list_text(&rank->cores, cells[3], CELL);
    snprintf(cells[4], CELL, "%d", threads);
    list_text(rank->compute.n > 0 ? &rank->compute : &rank->cpus, cells[5], CELL);
    snprintf(cells[6], CELL, "any");
    if (rank->progress_cpu >= 0)
        snprintf(cells[6], CELL, "%d", rank->progress_cpu);
}

static void print_placement(const struct vb_placement *placement)
{
    int widths[COLUMNS], i, c;
    char cells[COLUMNS][CELL];

    for (c = 0; c < COLUMNS; c++)
        widths[c] = (int)strlen(titles[c]);
    for (i = 0; i < placement->n_ranks; i++) {
        fill_row(&placement->ranks[i], placement->threads, cells);
        for (c = 0; c < COLUMNS; c++)
            if ((int)strlen(cells[c]) > widths[c])
                widths[c] = (int)strlen(cells[c]);
    }
    printf("\n");
    for (c = 0; c < COLUMNS; c++)
        printf("%-*s  ", widths[c], titles[c]);
    printf("nic\n");
    for (i = 0; i < placement->n_ranks; i++) {
        fill_row(&placement->ranks[i], placement->threads, cells);
        for (c = 0; c < COLUMNS; c++)
            printf("%-*s  ", widths[c], cells[c]);
        printf("%s\n", nic_of(&placement->ranks[i]) != NULL ? nic_of(&placement->ranks[i]) : "-");
    }
    printf("\n");
    for (i = 0; i < placement->n_ranks; i++)
        if (i == 0 || strcmp(placement->ranks[i].nic_why, placement->ranks[i - 1].nic_why) != 0)
            printf("nic of rank %d: %s\n", i, placement->ranks[i].nic_why);
    if (placement->note[0] != '\0')
        printf("note: %s\n", placement->note);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_ints(struct vb_json *json, const char *key, const struct vb_ints *ints)
{
    int i;

    vb_json_array(json, key);
    for (i = 0; i < ints->n; i++)
        vb_json_int(json, NULL, ints->v[i]);
    vb_json_end(json);
}

static void json_nic(struct vb_json *json, const struct vb_nic *nic)
{
    vb_json_object(json, NULL);
    vb_json_text(json, "net", nic->net);
    vb_json_text(json, "rdma", nic->rdma);
    vb_json_int(json, "package", nic->package);
    vb_json_int(json, "numa", nic->node);
    vb_json_int(json, "active", nic->active);
    vb_json_real(json, "gbit_s", (double)nic->mbit_s / 1000);
    vb_json_bool(json, "control", nic->avoid);
    vb_json_end(json);
}

static void json_machine(struct vb_json *json, const struct vb_topo_facts *facts)
{
    int i;

    vb_json_object(json, "machine");
    vb_json_text(json, "origin", facts->origin);
    vb_json_text(json, "cpu_model", facts->cpu_model);
    vb_json_int(json, "packages", facts->n_packages);
    vb_json_int(json, "numa_nodes", facts->n_nodes);
    vb_json_int(json, "cores", facts->n_cores);
    vb_json_int(json, "cpus", facts->n_cpus);
    vb_json_int(json, "allowed_cores", facts->n_allowed_cores);
    vb_json_int(json, "allowed_cpus", facts->n_allowed_cpus);
    vb_json_real(json, "cpu_quota", facts->cpu_quota);
    vb_json_int(json, "memory_bytes", facts->memory_bytes);
    vb_json_array(json, "caches");
    for (i = 0; i < facts->n_caches; i++) {
        vb_json_object(json, NULL);
        vb_json_int(json, "level", facts->caches[i].level);
        vb_json_int(json, "count", facts->caches[i].n);
        vb_json_int(json, "bytes", facts->caches[i].bytes);
        vb_json_end(json);
    }
    vb_json_end(json);
    vb_json_array(json, "nics");
    for (i = 0; i < facts->n_nics; i++)
        json_nic(json, &facts->nics[i]);
    vb_json_end(json);
    vb_json_end(json);
}

/* The value of "nic" is the name of the RDMA device or, if there is none, the name of the network
 * interface. */
static void json_rank(struct vb_json *json, const struct vb_placement_rank *rank)
{
    vb_json_object(json, NULL);
    vb_json_int(json, "rank", rank->rank);
    vb_json_int(json, "package", rank->package);
    json_ints(json, "cores", &rank->cores);
    vb_json_int(json, "progress_core", rank->progress_core);
    vb_json_text(json, "nic", nic_of(rank));
    vb_json_text(json, "nic_why", rank->nic_why);
    json_ints(json, "cpus", &rank->cpus);
    json_ints(json, "compute_cpus", &rank->compute);
    vb_json_int(json, "progress_cpu", rank->progress_cpu);
    json_ints(json, "other_cpus", &rank->others);
    json_ints(json, "numa", &rank->nodes);
    vb_json_end(json);
}

static vb_status print_json(const struct vb_topo *topo, const struct vb_placement *placement)
{
    struct vb_json *json = cli_json_object();
    int i;

    json_machine(json, vb_topo_facts(topo));
    vb_json_int(json, "threads", placement->threads);
    vb_json_bool(json, "overlap", placement->overlap);
    vb_json_bool(json, "pinned", placement->pinned);
    vb_json_text(json, "note", placement->note);
    vb_json_array(json, "ranks");
    for (i = 0; i < placement->n_ranks; i++)
        json_rank(json, &placement->ranks[i]);
    vb_json_end(json);
    return cli_print_json(json);
}

static vb_status show(const struct vb_topo *topo, const struct topo_args *args)
{
    struct vb_placement_want want = {
        .ranks = (int)args->ranks, .threads = (int)args->threads, .progress = true};
    struct vb_placement *placement;
    vb_status st = vb_placement_create(topo, &want, &placement);

    if (st != VB_OK)
        return st;
    if (args->json) {
        st = print_json(topo, placement);
    } else {
        print_machine(vb_topo_facts(topo));
        print_placement(placement);
    }
    vb_placement_destroy(placement);
    return st;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct topo_args args;
    struct vb_opt_group group = {"Options", opts, VB_COUNT(opts), &args};
    struct vb_topo_source source = {0};
    char control[64];
    struct vb_opts parsed;
    struct vb_topo *topo;
    vb_status st;
    int rc = cli_parse(command, &group, 1, 0, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    source.synthetic = args.synthetic;
    source.xml = args.xml;
    source.cpus = args.cpus;
    if (args.synthetic == NULL && args.xml == NULL &&
        vb_net_control_if("", control, sizeof(control)))
        source.avoid_if = control;
    st = args.save != NULL ? vb_file_may_replace(args.save) : VB_OK;
    if (st == VB_OK)
        st = vb_topo_open(&source, &topo);
    if (st != VB_OK)
        return cli_exit_code(st);
    if (args.save != NULL)
        st = vb_topo_save(topo, args.save);
    if (st == VB_OK)
        st = show(topo, &args);
    vb_topo_close(topo);
    return cli_finish(cli_exit_code(st));
}

const struct cli_command cli_topo = {
    .name = "topo",
    .summary = "show the machine, and where ranks and threads will run",
    .usage = "[--ranks N] [--threads T] [--synthetic STRING | --xml FILE] [--json]",
    .about =
        "Prints packages, NUMA nodes, cores, caches and network cards, and how many of the cores "
        "this\nprocess may use. Then it prints the placement of each rank: its cores, the hardware "
        "threads\nof its compute threads and of its progress thread, the NUMA nodes of its memory "
        "and its\nnetwork card.\n"
        "\n"
        "  verbena topo                          this machine, one rank\n"
        "  verbena topo --ranks 4 --threads 2    four ranks with two compute threads each\n"
        "  verbena topo --save node1.xml         record a machine ...\n"
        "  verbena topo --xml node1.xml --json   ... and place ranks on it, on any host\n"
        "\n"
        "Cores have the logical numbers of hwloc; hardware threads (cpus) have the numbers of the\n"
        "operating system. Ranks share a core only if there are more ranks than cores.",
    .run = run,
};
