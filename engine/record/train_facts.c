/* SPDX-License-Identifier: MIT
 *
 * Where a run takes place, and with what: the machine of every rank, the data, the plan and the
 * transports. The command writes these facts to run.json.
 */
#include "engine/train/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct vb_rank_facts) <= VB_RECORD_MAX, "facts fit into one message");

/* Writes "1 package, 1 node, 2 cores, 2 cpus; L3 16 MiB" or so. */
static void describe_topo(const struct vb_topo_facts *facts, char *text, size_t size)
{
    size_t len = (size_t)snprintf(text, size, "packages %d, NUMA nodes %d, cores %d, cpus %d",
                                  facts->n_packages, facts->n_nodes, facts->n_cores, facts->n_cpus);
    int i;

    for (i = 0; i < facts->n_caches && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, ", L%d %lld KiB", facts->caches[i].level,
                                (long long)facts->caches[i].bytes >> 10);
}

/* Processors of x86 have a name; ARM's have numbers of their maker and of their kind. */
static bool take_model(char *line, void *arg)
{
    struct vb_rank_facts *f = arg;
    const char *colon = strchr(line, ':'), *value = colon != NULL ? colon + 1 : "";
    size_t len = strlen(f->cpu_model);

    value += strspn(value, " ");
    if (strncmp(line, "model name", 10) == 0)
        snprintf(f->cpu_model, sizeof(f->cpu_model), "%s", value);
    else if (strncmp(line, "CPU implementer", 15) == 0)
        snprintf(f->cpu_model, sizeof(f->cpu_model), "implementer %s", value);
    else if (strncmp(line, "CPU part", 8) == 0)
        snprintf(f->cpu_model + len, sizeof(f->cpu_model) - len, ", part %s", value);
    else
        return true;
    return strncmp(line, "CPU implementer", 15) == 0;
}

static void fill_machine(const struct vb_trainer *t, struct vb_rank_facts *f)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    const struct vb_topo_facts *topo = t->place.topo != NULL ? vb_topo_facts(t->place.topo) : NULL;
    struct utsname name;

    f->memory_bytes = pages > 0 && page_bytes > 0 ? (int64_t)pages * page_bytes : 0;
    f->cpus = CPU_COUNT(&t->cpus);
    if (uname(&name) == 0)
        snprintf(f->kernel, sizeof(f->kernel), "%.60s %.60s %.30s", name.sysname, name.release,
                 name.machine);
    if (topo != NULL)
        describe_topo(topo, f->topology, sizeof(f->topology));
    if (topo != NULL && topo->cpu_model != NULL)
        snprintf(f->cpu_model, sizeof(f->cpu_model), "%s", topo->cpu_model);
    else
        vb_probe_lines(take_model, f, "/proc/cpuinfo");
}

/* group: NULL if this is the only rank. */
static void fill_rank(const struct vb_trainer *t, struct vb_group *group, struct vb_rank_facts *f)
{
    int i, n = group != NULL ? vb_group_world(group) : 1;

    memset(f, 0, sizeof(*f));
    f->rank = t->number;
    f->pid = (int)getpid();
    f->server = t->serves;
    gethostname(f->host, sizeof(f->host) - 1);
    fill_machine(t, f);
    for (i = 0; i < n && i < VB_FACTS_PEERS; i++)
        if (group == NULL || i == t->number || !vb_group_member(group, i))
            f->via[i] = '-';
        else
            f->via[i] = vb_group_transport(group, i)[0];
    if (group != NULL)
        snprintf(f->device, sizeof(f->device), "%s", vb_group_device(group, t->number == 0));
}

static vb_status fill_data(const struct vb_trainer *t, struct vb_run_facts *facts)
{
    facts->train_rows = t->data.train.n;
    facts->test_rows = t->data.n_test;
    facts->features = (int64_t)t->data.train.features;
    facts->classes = t->data.train.classes;
    facts->data_digest[0] = t->data.digest[0];
    facts->data_digest[1] = t->data.digest[1];
    facts->steps = t->recipe.steps;
    facts->steps_per_epoch = t->recipe.steps_per_epoch;
    facts->global_batch = t->recipe.global_batch;
    facts->chosen = t->recipe.chosen;
    facts->resumed = t->resumed;
    facts->plan = t->kernels.text != NULL ? strdup(t->kernels.text) : NULL;
    return t->kernels.text != NULL && facts->plan == NULL ? vb_err_sys("strdup") : VB_OK;
}

vb_status vb_train_fill_facts(struct vb_trainer *t)
{
    struct vb_group *group = t->joiner == NULL ? t->place.group : NULL;
    struct vb_run_facts *facts = t->o->run.facts, none;
    struct vb_rank_facts own;
    struct timespec now;
    vb_status st = VB_OK;

    if (facts == NULL) /* the other ranks may have a run folder */
        facts = &none;
    memset(facts, 0, sizeof(*facts));
    facts->n_ranks = group != NULL ? vb_group_world(group) : 1;
    facts->ranks = calloc((size_t)facts->n_ranks, sizeof(*facts->ranks));
    if (facts->ranks == NULL)
        return vb_err_sys("calloc");
    fill_rank(t, group, &own);
    facts->ranks[0] = own;
    if (group != NULL)
        st = vb_group_gather(group, &own, sizeof(own), facts->ranks);
    clock_gettime(CLOCK_REALTIME, &now);
    facts->clock_ns = vb_record_clock_ns();
    facts->unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (group != NULL)
        snprintf(facts->transport_why, sizeof(facts->transport_why), "%s", vb_group_why(group));
    if (st == VB_OK)
        st = fill_data(t, facts);
    if (st != VB_OK || facts == &none)
        vb_run_facts_fini(facts);
    return st;
}

/* Whoever writes run.json has no collective operation with a joiner, so the facts go to the events
 * of the joiner. */
vb_status vb_train_joined_facts(struct vb_trainer *t, struct vb_group *group)
{
    struct vb_rank_facts *facts;

    if (t->joiner == NULL || t->record.joined != NULL)
        return VB_OK;
    facts = calloc(1, sizeof(*facts));
    if (facts == NULL)
        return vb_err_sys("calloc");
    fill_rank(t, group, facts);
    t->record.joined = facts;
    return VB_OK;
}

static void json_via(struct vb_json *json, const struct vb_rank_facts *r)
{
    static const char *const names[] = {"shm", "tcp", "verbs"};
    size_t k;
    int i;

    vb_json_object(json, "transports");
    for (k = 0; k < VB_COUNT(names); k++) {
        if (memchr(r->via, names[k][0], sizeof(r->via)) == NULL)
            continue;
        vb_json_array(json, names[k]);
        for (i = 0; i < VB_FACTS_PEERS; i++)
            if (r->via[i] == names[k][0])
                vb_json_int(json, NULL, i);
        vb_json_end(json);
    }
    vb_json_end(json);
}

void vb_rank_facts_json(struct vb_json *json, const char *key, const struct vb_rank_facts *r)
{
    vb_json_object(json, key);
    vb_json_int(json, "rank", r->rank);
    vb_json_text(json, "role", r->server ? "server" : "worker");
    vb_json_text(json, "host", r->host);
    vb_json_int(json, "pid", r->pid);
    vb_json_int(json, "cpus", r->cpus);
    vb_json_text(json, "cpu_model", r->cpu_model);
    vb_json_text(json, "kernel", r->kernel);
    vb_json_int(json, "memory_bytes", r->memory_bytes);
    vb_json_text(json, "topology", r->topology);
    vb_json_text(json, "rdma_device", r->device[0] != '\0' ? r->device : NULL);
    json_via(json, r);
    vb_json_end(json);
}

void vb_run_facts_fini(struct vb_run_facts *facts)
{
    free(facts->ranks);
    free(facts->plan);
    memset(facts, 0, sizeof(*facts));
}
