/* SPDX-License-Identifier: MIT
 *
 * Parses the arguments of cluster. lab/run has already checked the user's arguments; this file
 * checks only properties that cluster relies on.
 */
#include "lab/lab.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static void event_add(struct lab_opts *o, enum lab_event_type type, int node, double at_s)
{
    if (o->n_events == LAB_MAX_EVENTS)
        lab_die("more than %d events", LAB_MAX_EVENTS);
    o->events[o->n_events++] =
        (struct lab_event){.type = type, .node = node, .at_ms = (int64_t)(at_s * 1000)};
}

/* Parses NODE@SECONDS[:FOR]. */
static void event_parse(struct lab_opts *o, enum lab_event_type type, const char *word)
{
    double at_s, for_s;
    int node, n = sscanf(word, "%d@%lf:%lf", &node, &at_s, &for_s);

    if (n < 2 || node < 0 || node >= LAB_MAX_NODES || at_s < 0)
        lab_die("%s: must be NODE@SECONDS", word);
    event_add(o, type, node, at_s);
    if (type == LAB_CUT && n == 3)
        event_add(o, LAB_JOIN, node, at_s + for_s);
}

static int number(const char *word, int min, int max)
{
    char *end;
    long n = strtol(word, &end, 10);

    if (end == word || *end != '\0' || n < min || n > max)
        lab_die("%s: must be a number from %d to %d", word, min, max);
    return (int)n;
}

static const struct option options[] = {{"nodes", required_argument, NULL, 'n'},
                                        {"per-node", required_argument, NULL, 'p'},
                                        {"each", no_argument, NULL, 'e'},
                                        {"shell", required_argument, NULL, 's'},
                                        {"timeout", required_argument, NULL, 't'},
                                        {"kill", required_argument, NULL, 'k'},
                                        {"cut", required_argument, NULL, 'c'},
                                        {"share", required_argument, NULL, 'd'},
                                        {"env", required_argument, NULL, 'E'},
                                        {"append", required_argument, NULL, 'a'},
                                        {"qemu", required_argument, NULL, 'q'},
                                        {"verbose", no_argument, NULL, 'v'},
                                        {NULL, 0, NULL, 0}};

void lab_opts_parse(struct lab_opts *o, int argc, char **argv)
{
    int n_envs = 0, n_shares = 0, opt;

    *o = (struct lab_opts){.n_nodes = 1, .per_node = 1, .shell = -1, .append = ""};
    o->envs = lab_alloc((size_t)argc, sizeof(*o->envs));
    o->shares = lab_alloc((size_t)argc, sizeof(*o->shares));
    while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (opt == 'n')
            o->n_nodes = number(optarg, 1, LAB_MAX_NODES);
        else if (opt == 'p')
            o->per_node = number(optarg, 1, LAB_MAX_RANKS / LAB_MAX_NODES);
        else if (opt == 'e')
            o->each = true;
        else if (opt == 's')
            o->shell = number(optarg, 0, LAB_MAX_NODES - 1);
        else if (opt == 't')
            o->timeout_s = number(optarg, 0, INT_MAX / 1000);
        else if (opt == 'k' || opt == 'c')
            event_parse(o, opt == 'k' ? LAB_KILL : LAB_CUT, optarg);
        else if (opt == 'd')
            o->shares[n_shares++] = optarg;
        else if (opt == 'E')
            o->envs[n_envs++] = optarg;
        else if (opt == 'a')
            o->append = optarg;
        else if (opt == 'q')
            o->n_qemu = number(optarg, 1, INT_MAX);
        else if (opt == 'v')
            o->verbose = true;
        else
            exit(LAB_USAGE);
    }
    o->qemu = argv + optind;
    o->args = o->qemu + o->n_qemu;
    o->n_args = argc - optind - o->n_qemu;
    if (o->n_qemu < 1 || o->n_args < 1)
        lab_die("the program to run is missing");
}
