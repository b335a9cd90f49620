/* SPDX-License-Identifier: MIT
 *
 * Opens the files of a run folder, for the commands that show runs.
 */
#include "cli/cli.h"
#include "record/record.h"

#include <errno.h>
#include <sys/stat.h>

#define FORMAT 1 /* of run.json */

static vb_status check_format(const char *dir, const struct vb_json *json)
{
    double format = vb_json_get_real(json, "run.format");

    if (!(format >= 1))
        return vb_err(VB_ERR_INPUT,
                      "%s/run.json was not written by train --run: it has no key run.format", dir);
    if (format > FORMAT)
        return vb_err(VB_ERR_INPUT,
                      "%s/run.json has format %g; this version of verbena reads format %d", dir,
                      format, FORMAT);
    return VB_OK;
}

vb_status cli_run_json(const char *dir, struct vb_json **json_p)
{
    char path[PATH_MAX + 16];
    struct stat info;
    vb_status st;

    snprintf(path, sizeof(path), "%s/run.json", dir);
    if (stat(dir, &info) != 0)
        return vb_err_sys("cannot read %s", dir);
    if (!S_ISDIR(info.st_mode))
        return vb_err(VB_ERR_INPUT, "%s is not a folder; name one that train --run has made", dir);
    if (stat(path, &info) != 0 && errno == ENOENT)
        return vb_err(VB_ERR_NO_FILE,
                      "%s has no run.json: it is not a run folder, or the run has not begun yet; "
                      "name a folder that train --run has made",
                      dir);
    *json_p = vb_json_read(path);
    if (*json_p == NULL)
        return VB_ERR_INPUT;
    st = check_format(dir, *json_p);
    if (st != VB_OK) {
        vb_json_destroy(*json_p);
        *json_p = NULL;
    }
    return st;
}

struct vb_series *cli_run_series(const char *dir, int rank, const char *name,
                                 const struct vb_series_kind *kind, vb_status *st_p)
{
    struct vb_series *series = NULL;
    char path[PATH_MAX + 320], folder[24] = "";
    struct stat info;

    if (rank >= 0)
        snprintf(folder, sizeof(folder), "rank%d/", rank);
    snprintf(path, sizeof(path), "%s/%s%s", dir, folder, name);
    *st_p = VB_OK;
    if (stat(path, &info) != 0 || info.st_size == 0)
        return NULL;
    *st_p = vb_series_open(path, &series);
    if (*st_p == VB_OK && kind != NULL && !vb_series_fits(series, kind)) {
        *st_p =
            vb_err(VB_ERR_INPUT, "%s has other columns than this version of verbena writes", path);
        vb_series_close(series);
        series = NULL;
    }
    return series;
}
