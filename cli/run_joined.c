/* SPDX-License-Identifier: MIT
 *
 * What a run folder tells about a worker that has joined: the last event "began" of its slot.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LINE_MAX_BYTES 65536

static bool is_began(const struct vb_json *json)
{
    const char *what = vb_json_get_text(json, "what");

    return what != NULL && strcmp(what, "began") == 0;
}

/* Lines that are cut or broken are left out: the worker may be writing, or was killed. */
static struct vb_json *last_began(FILE *file)
{
    struct vb_json *found = NULL, *json;
    char *line = malloc(LINE_MAX_BYTES);

    while (line != NULL && fgets(line, LINE_MAX_BYTES, file) != NULL) {
        json = vb_json_parse(line, strlen(line));
        if (is_began(json)) {
            vb_json_destroy(found);
            found = json;
        } else {
            vb_json_destroy(json);
        }
    }
    free(line);
    return found;
}

struct vb_json *cli_run_joined(const char *dir, int rank, uint64_t since_ns)
{
    struct vb_json *found = NULL;
    char path[PATH_MAX + 40];
    struct stat info;
    FILE *file;

    snprintf(path, sizeof(path), "%s/rank%d/events.jsonl", dir, rank);
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) ||
        (uint64_t)info.st_mtim.tv_sec < since_ns / 1000000000u)
        return NULL;
    file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    found = last_began(file);
    fclose(file);
    return found;
}
