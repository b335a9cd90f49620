/* SPDX-License-Identifier: MIT
 *
 * The folder of a demo. It is known by its demo.json, so nothing is overwritten that a demo has not
 * made: train and report replace the files of their own earlier runs there.
 */
#include "cli/demo/demo.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Room for the names of the files that the commands make in the folder. */
#define DIR_MAX (PATH_MAX - 512)

static bool is_empty(const char *dir)
{
    DIR *open_dir = opendir(dir);
    struct dirent *entry;
    bool empty = true;

    if (open_dir == NULL)
        return false;
    while (empty && (entry = readdir(open_dir)) != NULL)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(open_dir);
    return empty;
}

/* An earlier demo wrote this folder. */
static bool is_ours(const char *dir)
{
    char path[PATH_MAX];
    struct vb_json *json;
    struct stat info;
    bool ours;

    snprintf(path, sizeof(path), "%s/%s", dir, DEMO_FILE);
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    json = vb_json_read(path);
    ours = json != NULL && vb_json_get_text(json, "demo") != NULL;
    vb_json_destroy(json);
    return ours;
}

static vb_status print_mark(const void *arg, FILE *out)
{
    (void)arg;
    return fputs("{\"demo\":\"verbena\"}\n", out) >= 0 ? VB_OK : VB_ERR_IO;
}

int cli_demo_open(const struct cli_command *command, const char *dir)
{
    char path[PATH_MAX];
    struct stat info;

    if (dir[0] == '\0' || strlen(dir) > DIR_MAX)
        return cli_refuse(command, "--out: the path must have from 1 to %d characters", DIR_MAX);
    if (strpbrk(dir, " \t\n'") != NULL) /* commands are shown as one could type them */
        return cli_refuse(command, "--out %s: a path with blanks or quotes is not possible here",
                          dir);
    if (stat(dir, &info) == 0 && !S_ISDIR(info.st_mode))
        return cli_refuse(command, "--out %s: is not a folder; name another one", dir);
    if (stat(dir, &info) == 0 && !is_empty(dir) && !is_ours(dir))
        return cli_refuse(command,
                          "--out %s: the folder is not empty and no demo has made it; name another "
                          "one, such as --out /tmp/verbena-demo",
                          dir);
    if (vb_dir_make(dir) != VB_OK)
        return CLI_FAILED;
    snprintf(path, sizeof(path), "%s/%s", dir, DEMO_FILE);
    return vb_file_print(path, print_mark, NULL, NULL) == VB_OK ? -1 : CLI_FAILED;
}
