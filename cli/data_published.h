/* SPDX-License-Identifier: MIT
 *
 * Comparison of a user's files with the published ones, for verbena data info.
 */
#ifndef VB_CLI_DATA_PUBLISHED_H
#define VB_CLI_DATA_PUBLISHED_H

#include "cli/cli.h"
#include "data/data.h"

enum match { MATCHES, DIFFERS, SAME_SIZE /* and the digest is not known */ };

struct compared {
    struct vb_published_file file;
    uint64_t bytes;  /* uncompressed; of a file that is too long, what was read */
    bool longer;     /* the file goes on */
    char sha256[65]; /* of what was read */
    enum match match;
};

struct comparison {
    struct compared files[VB_PUBLISHED_MAX];
    int n;
};

/* Reads the files of a part that have the names of published files, and compares them. A file is
 * read no further than the published one is long. */
vb_status cli_data_compare(const struct vb_data_spec *spec, enum vb_synth_part part,
                           struct comparison *c);

void cli_data_compared_print(const struct comparison *c);
void cli_data_compared_json(const struct comparison *c, struct vb_json *json);

#endif
