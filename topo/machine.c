/* SPDX-License-Identifier: MIT
 *
 * Opens the topology of a machine: this host, a synthetic machine, or a machine saved in a file.
 *
 * The topology includes the cpus that cgroup and affinity forbid. The allowed cpus are a separate
 * set. So the number of a core does not depend on which cpus are allowed, and is the same as in
 * lstopo.
 */
#include "topo/topo_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XML_MAX_BYTES (64 << 20)
#define CPU_MAX 65535
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
/* maximum number of hardware threads; hwloc needs minutes for larger machines */
#define SYNTHETIC_MAX 4096

const char *vb_topo_library(void)
{
    return "hwloc " HWLOC_VERSION;
}

/* ---- the source of the machine --------------------------------------------------------------- */

/* Reads a whole file into text, which has XML_MAX_BYTES bytes, or is NULL if memory ran out. */
static vb_status read_whole(FILE *file, const char *path, char *text, int *len_p)
{
    struct stat info;
    size_t len;

    if (fstat(fileno(file), &info) == 0 && !S_ISREG(info.st_mode))
        return vb_err(VB_ERR_INPUT, "%s is not a regular file", path);
    if (text == NULL)
        return vb_err_sys("read %s", path);
    len = fread(text, 1, XML_MAX_BYTES, file);
    if (ferror(file))
        return vb_err_sys("read %s", path);
    if (len == XML_MAX_BYTES)
        return vb_err(VB_ERR_INPUT,
                      "%s does not describe a machine: the file is larger than %d MiB", path,
                      XML_MAX_BYTES >> 20);
    text[len] = '\0'; /* hwloc expects a length that includes the final zero */
    *len_p = (int)len + 1;
    return VB_OK;
}

static vb_status not_a_machine(const char *path)
{
    return vb_err(VB_ERR_INPUT, "%s does not describe a machine in hwloc's XML format", path);
}

static vb_status use_xml(hwloc_topology_t hwloc, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    bool good = false;
    int len = 0;
    char *text;
    vb_status st;

    if (file == NULL) {
        st = vb_err_sys("open %s", path);
        if (fd >= 0)
            close(fd);
        return st;
    }
    text = malloc(XML_MAX_BYTES);
    st = read_whole(file, path, text, &len);
    fclose(file);
    if (st == VB_OK)
        st = vb_xml_load_in_child(text, len, &good);
    if (st == VB_OK && (!good || hwloc_topology_set_xmlbuffer(hwloc, text, len) != 0))
        st = not_a_machine(path);
    free(text);
    return st;
}

/* Returns the text after the parentheses at text, or NULL if they are wrong. In hwloc's
 * notation, the first closing parenthesis ends them. */
static const char *behind_attributes(const char *text)
{
    text += 1 + strcspn(text + 1, "()[]");
    return *text == ')' ? text + 1 : NULL;
}

/* Does the same for brackets, which may contain attributes in parentheses. */
static const char *behind_memory(const char *text)
{
    text += 1 + strcspn(text + 1, "()[]");
    if (*text == '(')
        text = behind_attributes(text);
    return text != NULL && *text == ']' ? text + 1 : NULL;
}

/* Reads "name:count" or "count" and multiplies *product by the count, which is decimal, octal or
 * hexadecimal (0x). Returns the text after the count, or NULL if the text is wrong. */
static const char *read_level(const char *text, int64_t *product)
{
    unsigned long long count;
    char *end;

    if (strspn(text, DIGITS) == 0) {
        text += strspn(text, LETTERS DIGITS);
        if (*text++ != ':' || strspn(text, DIGITS) == 0)
            return NULL;
    }
    count = strtoull(text, &end, 0);
    /* strchr() also finds the final zero of the list, so the end of text is accepted */
    if (count == 0 || strchr("( \n", *end) == NULL)
        return NULL;
    *product *= count > SYNTHETIC_MAX ? SYNTHETIC_MAX + 1 : (int64_t)count;
    return end;
}

/* Returns the number of objects in the deepest level or the number of memory objects, whichever is
 * larger, or -1 if text is not a machine. hwloc would build a machine of any size and ignores much
 * text that it does not understand, so hwloc only gets text that this function understands. */
static int64_t synthetic_size(const char *text)
{
    int64_t product = 1, memory = 0;

    if (*text == '\0')
        return -1;
    while (*text != '\0' && product <= SYNTHETIC_MAX && memory <= SYNTHETIC_MAX) {
        if (*text == ' ' || *text == '\n') {
            text++;
        } else if (*text == '(') {
            text = behind_attributes(text);
        } else if (*text == '[') {
            memory += product;
            text = behind_memory(text);
        } else {
            text = read_level(text, &product);
        }
        if (text == NULL)
            return -1;
    }
    return product > memory ? product : memory;
}

static vb_status use_synthetic(hwloc_topology_t hwloc, const char *text)
{
    int64_t size = synthetic_size(text);

    if (size > SYNTHETIC_MAX)
        return vb_err(VB_ERR_USAGE, "\"%.64s\" has more than %d hardware threads or memories", text,
                      SYNTHETIC_MAX);
    if (size < 0 || hwloc_topology_set_synthetic(hwloc, text) != 0)
        return vb_err(VB_ERR_USAGE,
                      "\"%.64s\" does not describe a machine in hwloc's notation "
                      "(such as \"pack:2 numa:1 core:8 pu:2\")",
                      text);
    return VB_OK;
}

/* Leaves out plugins with which hwloc would load OpenCL, CUDA and others to find accelerators, and
 * libpciaccess for names of vendors. Loading these libraries is slow and leaks memory, and hwloc
 * finds PCI devices without them. For a plugin that is not installed, the call fails, which is
 * harmless. */
int vb_topology_configure(hwloc_topology_t hwloc)
{
    static const char *const names[] = {"opencl", "cuda", "nvml", "rsmi", "levelzero", "gl", "pci"};
    size_t i;

    for (i = 0; i < VB_COUNT(names); i++)
        (void)hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            names[i]);
    if (hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0)
        return -1;
    return hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
}

/* ---- what is allowed ------------------------------------------------------------------------- */

/* Reads a number of at most CPU_MAX and moves *text_p behind it. Returns -1 if there is none. */
static int take_number(const char **text_p)
{
    int value = 0, n;

    for (n = 0; (*text_p)[n] >= '0' && (*text_p)[n] <= '9' && value <= CPU_MAX; n++)
        value = value * 10 + (*text_p)[n] - '0';
    *text_p += n;
    return n > 0 && value <= CPU_MAX ? value : -1;
}

/* Parses a list such as "0-3,8". hwloc's own parser would accept numbers so large that the set
 * needs gigabytes. */
static bool parse_list(const char *list, hwloc_bitmap_t set)
{
    int low, high;

    for (;;) {
        low = high = take_number(&list);
        if (*list == '-') {
            list++;
            high = take_number(&list);
        }
        if (low < 0 || high < low || hwloc_bitmap_set_range(set, (unsigned)low, high) != 0)
            return false;
        if (*list == '\0')
            return true;
        if (*list++ != ',')
            return false;
    }
}

static vb_status find_allowed(struct vb_topo *topo, const char *list)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    vb_status st = VB_OK;

    topo->allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topo->hwloc));
    if (topo->allowed == NULL || set == NULL) {
        hwloc_bitmap_free(set);
        return vb_err_sys("hwloc_bitmap_alloc");
    }
    if (topo->this_machine && hwloc_get_cpubind(topo->hwloc, set, HWLOC_CPUBIND_THREAD) == 0)
        hwloc_bitmap_and(topo->allowed, topo->allowed, set);
    hwloc_bitmap_zero(set);
    if (list != NULL && parse_list(list, set))
        hwloc_bitmap_and(topo->allowed, topo->allowed, set);
    else if (list != NULL)
        st = vb_err(VB_ERR_USAGE, "\"%.64s\" is not a list of cpus (such as 0-3,8)", list);
    hwloc_bitmap_free(set);
    return st;
}

/* ---- cores ----------------------------------------------------------------------------------- */

/* Returns the smallest NUMA node that contains a core, or -1. Of several nodes with the same cores,
 * such as a node of fast memory and a node of large memory, the first is returned. */
static int node_of(hwloc_topology_t hwloc, hwloc_obj_t core)
{
    hwloc_obj_t node = NULL, best = NULL;

    while ((node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (!hwloc_bitmap_isincluded(core->cpuset, node->cpuset))
            continue;
        if (best == NULL || hwloc_bitmap_weight(node->cpuset) < hwloc_bitmap_weight(best->cpuset))
            best = node;
    }
    return best != NULL ? (int)best->os_index : -1;
}

static int ancestor_of(hwloc_topology_t hwloc, hwloc_obj_type_t type, hwloc_obj_t core)
{
    hwloc_obj_t obj = hwloc_get_ancestor_obj_by_type(hwloc, type, core);

    return obj != NULL ? (int)obj->logical_index : -1;
}

static void take_core(struct vb_topo *topo, hwloc_obj_t obj, int *n_cpus_p)
{
    struct core *core = &topo->cores[topo->n_cores];
    unsigned cpu;

    core->first_cpu = *n_cpus_p;
    hwloc_bitmap_foreach_begin(cpu, obj->cpuset) if (hwloc_bitmap_isset(topo->allowed, cpu))
        topo->cpus[(*n_cpus_p)++] = (int)cpu;
    hwloc_bitmap_foreach_end();
    core->n_cpus = *n_cpus_p - core->first_cpu;
    if (core->n_cpus == 0)
        return;
    core->number = (int)obj->logical_index;
    core->part[LEVEL_L3] = ancestor_of(topo->hwloc, HWLOC_OBJ_L3CACHE, obj);
    core->part[LEVEL_NODE] = node_of(topo->hwloc, obj);
    core->part[LEVEL_PACKAGE] = ancestor_of(topo->hwloc, HWLOC_OBJ_PACKAGE, obj);
    if (core->part[LEVEL_PACKAGE] < 0)
        core->part[LEVEL_PACKAGE] = 0; /* without packages, the machine counts as one package */
    core->part[LEVEL_MACHINE] = 0;
    topo->n_cores++;
}

/* If the topology has no cores, each cpu counts as a core. */
static hwloc_obj_type_t core_type(hwloc_topology_t hwloc)
{
    return hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

static vb_status find_cores(struct vb_topo *topo)
{
    hwloc_obj_type_t type = core_type(topo->hwloc);
    int n_pus = hwloc_get_nbobjs_by_type(topo->hwloc, HWLOC_OBJ_PU);
    hwloc_obj_t obj = NULL;
    int n_cpus = 0;

    if (n_pus <= 0)
        return vb_err(VB_ERR_INPUT, "%s has no hardware threads", topo->origin);
    topo->cores = calloc((size_t)n_pus, sizeof(*topo->cores));
    topo->cpus = calloc((size_t)n_pus, sizeof(*topo->cpus));
    if (topo->cores == NULL || topo->cpus == NULL)
        return vb_err_sys("calloc");
    while ((obj = hwloc_get_next_obj_by_type(topo->hwloc, type, obj)) != NULL)
        take_core(topo, obj, &n_cpus);
    if (topo->n_cores == 0)
        return vb_err(VB_ERR_USAGE, "no hardware thread of %s is allowed", topo->origin);
    topo->facts.n_allowed_cores = topo->n_cores;
    topo->facts.n_allowed_cpus = n_cpus;
    return VB_OK;
}

/* ---- facts ----------------------------------------------------------------------------------- */

static void count_caches(struct vb_topo *topo)
{
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE,
                                             HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE};
    struct vb_topo_facts *facts = &topo->facts;
    int64_t bytes;
    size_t i;
    int n;

    for (i = 0; i < VB_COUNT(types); i++) {
        n = hwloc_get_nbobjs_by_type(topo->hwloc, types[i]);
        if (n <= 0)
            continue;
        bytes = (int64_t)hwloc_get_obj_by_type(topo->hwloc, types[i], 0)->attr->cache.size;
        if (bytes > 0) /* emulated machines have caches of size 0 */
            facts->caches[facts->n_caches++] = (struct vb_topo_cache){(int)i + 1, n, bytes};
    }
}

/* On most machines, the package has the name of the processor; on others, the root has it. */
static const char *cpu_model(hwloc_topology_t hwloc)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, 0);
    const char *model = NULL;

    if (package != NULL)
        model = hwloc_obj_get_info_by_name(package, "CPUModel");
    if (model == NULL)
        model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(hwloc), "CPUModel");
    return model;
}

static int count(hwloc_topology_t hwloc, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(hwloc, type);

    return n > 0 ? n : 0;
}

static void fill_facts(struct vb_topo *topo)
{
    struct vb_topo_facts *facts = &topo->facts;
    hwloc_topology_t hwloc = topo->hwloc;

    facts->origin = topo->origin;
    facts->cpu_model = cpu_model(hwloc);
    facts->n_packages = count(hwloc, HWLOC_OBJ_PACKAGE);
    if (facts->n_packages == 0)
        facts->n_packages = 1;
    facts->n_nodes = count(hwloc, HWLOC_OBJ_NUMANODE);
    facts->n_cores = count(hwloc, core_type(hwloc));
    facts->n_cpus = count(hwloc, HWLOC_OBJ_PU);
    facts->memory_bytes = (int64_t)hwloc_get_root_obj(hwloc)->total_memory;
    facts->cpu_quota = topo->this_machine ? vb_topo_cpu_quota("") : 0;
    count_caches(topo);
}

/* ---- open, close, save ----------------------------------------------------------------------- */

static vb_status read_machine(struct vb_topo *topo, const struct vb_topo_source *source)
{
    vb_status st = VB_OK;

    if (source->synthetic != NULL)
        st = use_synthetic(topo->hwloc, source->synthetic);
    else if (source->xml != NULL)
        st = use_xml(topo->hwloc, source->xml);
    else
        topo->this_machine = true;
    if (st == VB_OK && vb_topology_configure(topo->hwloc) != 0)
        st = vb_err_sys("hwloc_topology_set_flags");
    if (st == VB_OK && hwloc_topology_load(topo->hwloc) != 0)
        st = source->xml != NULL ? not_a_machine(source->xml)
                                 : vb_err_sys("hwloc cannot read %s", topo->origin);
    if (st == VB_OK)
        st = find_allowed(topo, source->cpus);
    if (st == VB_OK)
        st = find_cores(topo);
    if (st == VB_OK)
        st = vb_nics_find(topo, source->avoid_if);
    if (st == VB_OK)
        fill_facts(topo);
    return st;
}

vb_status vb_topo_open(const struct vb_topo_source *source, struct vb_topo **topo_p)
{
    const char *origin = source->xml != NULL ? source->xml : "this machine";
    struct vb_topo *topo;
    vb_status st;

    if (source->synthetic != NULL && source->xml != NULL)
        return vb_err(VB_ERR_USAGE, "a machine is either synthetic or from a file, not both");
    topo = calloc(1, sizeof(*topo));
    if (topo == NULL)
        return vb_err_sys("calloc");
    topo->origin = strdup(source->synthetic != NULL ? "synthetic" : origin);
    if (topo->origin == NULL || hwloc_topology_init(&topo->hwloc) != 0)
        st = vb_err_sys("hwloc_topology_init");
    else
        st = read_machine(topo, source);
    if (st == VB_OK)
        *topo_p = topo;
    else
        vb_topo_close(topo);
    return st;
}

void vb_topo_close(struct vb_topo *topo)
{
    if (topo == NULL)
        return;
    free(topo->nics);
    free(topo->cores);
    free(topo->cpus);
    hwloc_bitmap_free(topo->allowed);
    if (topo->hwloc != NULL)
        hwloc_topology_destroy(topo->hwloc);
    free(topo->origin);
    free(topo);
}

const struct vb_topo_facts *vb_topo_facts(const struct vb_topo *topo)
{
    return &topo->facts;
}

vb_status vb_topo_save(const struct vb_topo *topo, const char *path)
{
    vb_status st;
    char *text;
    int len;

    if (hwloc_topology_export_xmlbuffer(topo->hwloc, &text, &len, 0) != 0)
        return vb_err_sys("hwloc_topology_export_xmlbuffer");
    st = vb_file_replace(path, text, len > 0 ? (size_t)len - 1 : 0);
    hwloc_free_xmlbuffer(topo->hwloc, text);
    return st;
}
