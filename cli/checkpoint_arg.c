/* SPDX-License-Identifier: MIT
 *
 * Finds the checkpoint that an argument of eval or export names.
 */
#include "cli/cli.h"
#include "engine/engine.h"

#include <sys/stat.h>

vb_status cli_find_checkpoint(const char *given, char path[PATH_MAX])
{
    struct stat info;
    vb_status st;

    if (stat(given, &info) == 0 && S_ISDIR(info.st_mode)) {
        st = vb_checkpoint_latest(given, path, PATH_MAX);
        return st == VB_ERR_NO_FILE ? vb_err(st, "%s: there is no checkpoint in this folder", given)
                                    : st;
    }
    if ((size_t)snprintf(path, PATH_MAX, "%s", given) >= PATH_MAX)
        return vb_err(VB_ERR_USAGE, "cannot read %.64s...: the path is too long", given);
    return VB_OK;
}
