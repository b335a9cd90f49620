/* SPDX-License-Identifier: MIT
 *
 * Says whether a user's files are the published ones. Results of two people can be compared only if
 * both had the same data, and a download that was cut off or a file of another version often reads
 * well.
 */
#include "cli/data_published.h"

#include "net/net.h"

static void add(void *arg, const void *bytes, size_t len_bytes)
{
    vb_sha256_add(arg, bytes, len_bytes);
}

static vb_status compare(struct compared *c)
{
    const struct vb_published *as = c->file.as;
    struct vb_sha256_state state;
    vb_status st;

    vb_sha256_begin(&state);
    st = vb_data_bytes(c->file.path, as->bytes, add, &state, &c->bytes);
    if (st != VB_OK)
        return st;
    vb_sha256_end(&state, c->sha256);
    c->longer = c->bytes > as->bytes;
    if (c->bytes != as->bytes)
        c->match = DIFFERS;
    else if (as->sha256 == NULL)
        c->match = SAME_SIZE;
    else
        c->match = strcmp(c->sha256, as->sha256) == 0 ? MATCHES : DIFFERS;
    return VB_OK;
}

vb_status cli_data_compare(const struct vb_data_spec *spec, enum vb_synth_part part,
                           struct comparison *c)
{
    struct vb_published_file found[VB_PUBLISHED_MAX];
    vb_status st = VB_OK;
    int i;

    c->n = vb_data_published(spec, part, found);
    for (i = 0; i < c->n && st == VB_OK; i++) {
        c->files[i].file = found[i];
        st = compare(&c->files[i]);
    }
    return st;
}

static void print_difference(const struct compared *c)
{
    const struct vb_published *as = c->file.as;

    if (c->longer)
        printf(" differs from the published file (longer than its %llu bytes)",
               (unsigned long long)as->bytes);
    else if (c->bytes != as->bytes)
        printf(" differs from the published file (size %llu, published %llu)",
               (unsigned long long)c->bytes, (unsigned long long)as->bytes);
    else
        printf(" differs from the published file (size %llu as published, SHA-256 %s, published "
               "%s)",
               (unsigned long long)c->bytes, c->sha256, as->sha256);
}

void cli_data_compared_print(const struct comparison *c)
{
    const struct compared *one;

    for (one = c->files; one < c->files + c->n; one++) {
        printf("published  %s", one->file.path);
        if (one->match == MATCHES)
            printf(" matches the published file");
        else if (one->match == DIFFERS)
            print_difference(one);
        else
            printf(" has the size of the published file, whose SHA-256 is not known here; compare "
                   "that of the archive (docs/data.md)");
        printf("\n");
    }
}

void cli_data_compared_json(const struct comparison *c, struct vb_json *json)
{
    const struct compared *one;

    vb_json_array(json, "published");
    for (one = c->files; one < c->files + c->n; one++) {
        vb_json_object(json, NULL);
        vb_json_text(json, "file", one->file.path);
        if (one->match == SAME_SIZE)
            vb_json_text(json, "matches", NULL);
        else
            vb_json_bool(json, "matches", one->match == MATCHES);
        if (one->longer)
            vb_json_text(json, "bytes", NULL);
        else
            vb_json_int(json, "bytes", (int64_t)one->bytes);
        vb_json_text(json, "sha256", one->longer ? NULL : one->sha256);
        vb_json_int(json, "published_bytes", (int64_t)one->file.as->bytes);
        vb_json_text(json, "published_sha256", one->file.as->sha256);
        vb_json_end(json);
    }
    vb_json_end(json);
}
