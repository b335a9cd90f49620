/* SPDX-License-Identifier: MIT */
#include "cli/ops.h"

#include <errno.h>
#include <unistd.h>

#include "cli/cli.h"
#include "topo/topo.h"

#define SECONDS 0.3 /* of each measurement */

static void path_of(const char *dir, const struct ops_peak *p, char *path, size_t size)
{
    char host[64];
    size_t i;

    snprintf(host, sizeof(host), "%s", p->host);
    for (i = 0; host[i] != '\0'; i++)
        if (host[i] == '/' || host[i] == '.')
            host[i] = '_';
    snprintf(path, size, "%s/peak-%s-%d.json", dir, host, p->threads);
}

static bool read_peak(const char *dir, struct ops_peak *p)
{
    struct vb_json *json;
    char path[4300];

    path_of(dir, p, path, sizeof(path));
    if (access(path, R_OK) != 0)
        return false;
    json = vb_json_read(path);
    p->gflop_s = vb_json_get_real(json, "gflop_s");
    p->gb_s = vb_json_get_real(json, "gb_s");
    vb_json_destroy(json);
    return p->gflop_s > 0 && p->gb_s > 0; /* false for NAN, too */
}

/* The figures are kept, so that the same run always shows the same. A folder that cannot be written
 * is no error. */
static void keep_peak(const char *dir, const struct ops_peak *p)
{
    char path[4300], text[256];
    FILE *file;

    path_of(dir, p, path, sizeof(path));
    snprintf(text, sizeof(text), "{\"threads\": %d, \"gflop_s\": %.3f, \"gb_s\": %.3f}\n",
             p->threads, p->gflop_s, p->gb_s);
    file = fopen(path, "we");
    if (file == NULL || fputs(text, file) < 0)
        VB_LOG_INFO("%s is not kept: %s", path, strerror(errno));
    if (file != NULL)
        (void)fclose(file);
}

static bool measure_peak(struct ops_peak *p)
{
    char here[64] = "";

    (void)gethostname(here, sizeof(here) - 1);
    if (strcmp(here, p->host) != 0) {
        VB_LOG_WARN("the peak of %s is not known: run verbena ops once on that host", p->host);
        return false;
    }
    vb_team_size(p->threads);
    p->gflop_s = vb_k_gemm_peak(SECONDS);
    p->gb_s = vb_k_memory_peak(SECONDS);
    return p->gflop_s > 0 && p->gb_s > 0;
}

const struct ops_peak *cli_ops_peak(const char *dir, const char *host, int threads,
                                    struct ops_list *list)
{
    struct ops_peak p = {.threads = threads > 0 ? threads : 1};
    int i;

    snprintf(p.host, sizeof(p.host), "%s", host);
    for (i = 0; i < list->n_peaks; i++)
        if (strcmp(list->peaks[i].host, p.host) == 0 && list->peaks[i].threads == p.threads)
            return &list->peaks[i];
    if (list->n_peaks == OPS_PEAKS)
        return NULL;
    if (!read_peak(dir, &p)) {
        if (!measure_peak(&p))
            return NULL;
        keep_peak(dir, &p);
    }
    list->peaks[list->n_peaks] = p;
    return &list->peaks[list->n_peaks++];
}
