/* SPDX-License-Identifier: MIT
 *
 * Keeps the choices of earlier runs in a text file. The first line names all that choices depend on
 * besides the shape; its checksum is part of the file name, so machines that share a home directory
 * have separate files. Each further line is a choice: shape (with ":fast-math" if the choice was
 * made with it), pass, backend.
 */
#include "kernels/choice/choice_priv.h"
#include "kernels/layer/level.h"
#include "kernels/onednn/onednn.h"

#include <omp.h>
#include <limits.h>
#include <stdlib.h>

#define SHAPE_TEXT 160
#define KEY_TEXT 448
#define ENTRIES_MAX 4096

struct entry {
    char shape[SHAPE_TEXT];
    enum vb_k_pass pass;
    const struct vb_k_backend *backend;
};

struct vb_k_cache {
    char key[KEY_TEXT];
    char path[PATH_MAX]; /* "": the choices are not saved */
    struct entry *entries;
    int n;
    bool changed;
};

#define CPU_TEXT 128

/* Collects the lines that identify the CPU: "model name" on amd64. On Arm there is no such line,
 * but there are lines with the numbers of the implementer and the part. */
static bool cpu_line(char *line, void *arg)
{
    static const char *const wanted[] = {"model name", "CPU implementer", "CPU part",
                                         "CPU variant"};
    char *cpu = arg, *colon = strchr(line, ':');
    size_t i, used = strlen(cpu);

    if (line[0] == '\0') /* end of the first cpu's lines */
        return false;
    for (i = 0; i < VB_COUNT(wanted) && colon != NULL; i++)
        if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
            snprintf(cpu + used, CPU_TEXT - used, "%s", colon + 1);
    return true;
}

static void make_key(char key[KEY_TEXT])
{
    char cpu[CPU_TEXT] = "", onednn[32], names[224] = "";
    struct vb_k_blas blas;
    size_t used = 0;
    int i;

    vb_probe_lines(cpu_line, cpu, "/proc/cpuinfo");
    vb_k_onednn_version(onednn, sizeof(onednn));
    vb_k_blas_probe(&blas);
    for (i = 0; i < vb_k_n_backends && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, " %s", vb_k_backends[i]->name);
    snprintf(key, KEY_TEXT,
             "verbena choices 4; cpu%s; oneDNN %s; OpenBLAS %s %s; own %s; threads %d;%s", cpu,
             onednn, blas.version, blas.core, vb_k_level_name(), omp_get_max_threads(), names);
}

static void shape_text(const struct vb_k_shape *s, bool fast_math, char text[SHAPE_TEXT])
{
    snprintf(text, SHAPE_TEXT, "%s:n%d:c%d:h%d:w%d:o%d:k%dx%d:s%d:p%d:r%d%s",
             vb_k_kind_str(s->kind), s->n, s->c, s->h, s->w, s->oc, s->kh, s->kw, s->stride, s->pad,
             s->relu, fast_math ? ":fast-math" : "");
}

static const struct vb_k_backend *find(const struct vb_k_cache *cache, const char *shape,
                                       enum vb_k_pass pass)
{
    int i;

    for (i = 0; i < cache->n; i++)
        if (cache->entries[i].pass == pass && strcmp(cache->entries[i].shape, shape) == 0)
            return cache->entries[i].backend;
    return NULL;
}

const struct vb_k_backend *vb_k_cache_find(const struct vb_k_cache *cache,
                                           const struct vb_k_shape *shape, enum vb_k_pass pass,
                                           bool fast_math)
{
    const struct vb_k_backend *backend;
    char text[SHAPE_TEXT];

    shape_text(shape, fast_math, text);
    backend = find(cache, text, pass);
    /* The file may have been edited. */
    return backend != NULL && vb_k_backend_allowed(backend, fast_math) ? backend : NULL;
}

static void append(struct vb_k_cache *cache, const char *shape, enum vb_k_pass pass,
                   const struct vb_k_backend *backend)
{
    struct entry *entry = &cache->entries[cache->n];

    if (cache->n == ENTRIES_MAX || find(cache, shape, pass) != NULL)
        return; /* a full cache does not take new entries; these choices are timed again */
    snprintf(entry->shape, sizeof(entry->shape), "%s", shape);
    entry->pass = pass;
    entry->backend = backend;
    cache->n++;
}

void vb_k_cache_add(struct vb_k_cache *cache, const struct vb_k_shape *shape, enum vb_k_pass pass,
                    bool fast_math, const struct vb_k_backend *backend)
{
    char text[SHAPE_TEXT];

    shape_text(shape, fast_math, text);
    append(cache, text, pass, backend);
    cache->changed = true;
}

struct reading {
    struct vb_k_cache *cache;
    int line;     /* number of the line being read */
    bool foreign; /* the first line of the file belongs to another machine or program */
    bool broken;
};

static bool read_entry(struct vb_k_cache *cache, char *line)
{
    char *rest = NULL, *shape = strtok_r(line, " ", &rest);
    char *pass_text = strtok_r(NULL, " ", &rest), *name = strtok_r(NULL, " ", &rest);
    const struct vb_k_backend *backend;
    enum vb_k_pass pass;

    if (name == NULL || strtok_r(NULL, " ", &rest) != NULL || strlen(shape) >= SHAPE_TEXT)
        return false;
    backend = vb_k_backend_find(name);
    if (backend == NULL || !vb_k_pass_find(pass_text, &pass))
        return false;
    append(cache, shape, pass, backend);
    return true;
}

static bool read_line(char *line, void *arg)
{
    struct reading *r = arg;

    if (r->line++ == 0)
        r->foreign = strcmp(line, r->cache->key) != 0;
    else
        r->broken = !read_entry(r->cache, line);
    return !r->foreign && !r->broken;
}

static void load(struct vb_k_cache *cache)
{
    struct reading r = {.cache = cache};

    vb_probe_lines(read_line, &r, "%s", cache->path);
    if (r.foreign)
        VB_LOG_WARN("the file %s is ignored: it belongs to a different machine or program",
                    cache->path);
    else if (r.broken)
        VB_LOG_WARN("%s, line %d: expected a shape, a pass and a backend; the file is ignored",
                    cache->path, r.line);
    if (r.foreign || r.broken)
        cache->n = 0;
}

static void save(const struct vb_k_cache *cache)
{
    size_t size = KEY_TEXT + (size_t)cache->n * (SHAPE_TEXT + 64), at;
    char *text = malloc(size);
    int i;

    if (text == NULL) {
        VB_LOG_WARN("no memory to write %s", cache->path);
        return;
    }
    at = (size_t)snprintf(text, size, "%s\n", cache->key);
    for (i = 0; i < cache->n; i++)
        at += (size_t)snprintf(text + at, size - at, "%s %s %s\n", cache->entries[i].shape,
                               vb_k_pass_str(cache->entries[i].pass),
                               cache->entries[i].backend->name);
    /* vb_file_replace() has logged the reason */
    if (vb_file_replace(cache->path, text, at) != VB_OK)
        VB_LOG_WARN("kernels will be timed again in the next run");
    free(text);
}

static void make_path(struct vb_k_cache *cache, const char *folder)
{
    char dir[PATH_MAX];
    int n;

    if (folder == NULL && !vb_cache_dir(dir, sizeof(dir)))
        return;
    n = snprintf(cache->path, sizeof(cache->path), "%s/plan-%08x", folder != NULL ? folder : dir,
                 vb_crc32c(0, cache->key, strlen(cache->key)));
    if (n < 0 || (size_t)n >= sizeof(cache->path))
        cache->path[0] = '\0';
}

vb_status vb_k_cache_open(const char *folder, struct vb_k_cache **cache_p)
{
    struct vb_k_cache *cache = calloc(1, sizeof(*cache));

    if (cache == NULL)
        return vb_err_sys("calloc");
    cache->entries = calloc(ENTRIES_MAX, sizeof(*cache->entries));
    if (cache->entries == NULL) {
        free(cache);
        return vb_err_sys("calloc");
    }
    make_key(cache->key);
    make_path(cache, folder);
    if (cache->path[0] != '\0')
        load(cache);
    *cache_p = cache;
    return VB_OK;
}

void vb_k_cache_close(struct vb_k_cache *cache)
{
    if (cache == NULL)
        return;
    if (cache->changed && cache->path[0] != '\0')
        save(cache);
    free(cache->entries);
    free(cache);
}
