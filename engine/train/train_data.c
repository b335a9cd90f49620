/* SPDX-License-Identifier: MIT
 *
 * The data of a rank: opens it, once a host, and describes it in lines of text. All ranks compare
 * these lines before the first step, a joiner compares them with those of the job, and a run that
 * resumes with those of its checkpoint.
 */
#include "engine/train/train_room_priv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "training samples="
#define FILES_LINE "files="

/* ---- opening --------------------------------------------------------------------------------- */

static void digest(struct vb_trainer *t)
{
    t->data.digest[0] = vb_dataset_digest(&t->data.train);
    t->data.digest[1] = vb_dataset_digest(&t->data.test);
}

/* Opens the data, or maps the copy of another rank of this host. */
static vb_status open_sets(struct vb_trainer *t, const struct vb_data_ask *ask)
{
    const struct vb_mem *shared;
    struct vb_mem own;
    vb_status st = vb_copies_take(t, VB_COPY_DATA, 0, &shared);

    if (st == VB_OK)
        return vb_data_unpack(shared->ptr, shared->len_bytes, &t->data.train, &t->data.test);
    if (st == VB_AGAIN)
        st = vb_data_open_both(ask, &t->data.train, &t->data.test);
    if (st == VB_OK)
        digest(t);
    if (st == VB_OK && t->copies.keeps)
        st = vb_data_pack(&t->data.train, &t->data.test, &own);
    if (st == VB_OK && t->copies.keeps)
        st = vb_copies_give(t, VB_COPY_DATA, 0, &own);
    return st;
}

vb_status vb_train_open_data(struct vb_trainer *t)
{
    struct vb_data_ask ask = t->o->data.ask;
    struct vb_data_spec test;
    uint64_t key;
    vb_status st;

    ask.seed = t->o->seed;
    vb_data_spec_prefer(&ask.data, t->model.net->synth);
    if (ask.test != NULL) {
        test = *ask.test;
        vb_data_spec_prefer(&test, t->model.net->synth);
        ask.test = &test;
    }
    st = vb_copies_open(t, vb_data_key(&ask, &key) ? key : 0);
    if (st == VB_OK)
        st = open_sets(t, &ask);
    if (st != VB_OK)
        return st;
    if (t->o->data.whole_steps && t->data.train.n > t->o->length.batch * t->world)
        t->data.train.n -= (int)(t->data.train.n % (t->o->length.batch * t->world));
    t->data.n_test = t->data.test.n;
    if (t->o->data.test_limit > 0 && t->o->data.test_limit < t->data.n_test)
        t->data.n_test = (int)t->o->data.test_limit;
    return VB_OK;
}

/* ---- describing ------------------------------------------------------------------------------ */

/* Appends the path of a file from the root, because ranks may have different working folders. */
static void add_path(char *text, size_t size, const struct vb_data_spec *spec)
{
    char full[PATH_MAX];
    size_t len = strlen(text), i;
    const char *path = spec->path != NULL ? spec->path : "";

    if (spec->format == VB_DATA_SYNTH)
        path = "generated data";
    else if (realpath(path, full) != NULL)
        path = full;
    snprintf(text + len, size - len, "%.400s", path);
    for (i = len; text[i] != '\0'; i++)
        if (text[i] == '\n')
            text[i] = '?';
}

void vb_train_describe_data(const struct vb_trainer *t, char text[VB_DATA_TEXT])
{
    const struct vb_dataset *d = &t->data.train;
    int len = snprintf(text, VB_DATA_TEXT,
                       FIRST_LINE "%d\nfeatures=%d\nclasses=%d\nimage size=%d x %d x %d\n"
                                  "contents of the training data=%016llx\ntest samples=%d\n"
                                  "contents of the test data=%016llx\n" FILES_LINE,
                       d->n, d->features, d->classes, d->c, d->h, d->w,
                       (unsigned long long)t->data.digest[0], t->data.test.n,
                       (unsigned long long)t->data.digest[1]);

    add_path(text, VB_DATA_TEXT - 2, &t->o->data.ask.data);
    if (t->o->data.ask.test != NULL) {
        len = (int)strlen(text);
        snprintf(text + len, VB_DATA_TEXT - 2 - (size_t)len, " and ");
        add_path(text, VB_DATA_TEXT - 2, t->o->data.ask.test);
    }
    strcat(text, "\n");
}

const char *vb_train_data_part(const char *settings)
{
    const char *at = strstr(settings, "\n" FIRST_LINE);

    return at != NULL ? at + 1 : NULL;
}

/* Returns the value of a line of a description and its length, or NULL. */
static const char *value_of(const char *text, const char *name, size_t name_len, int *len_p)
{
    for (; *text != '\0'; text += strcspn(text, "\n"), text += *text == '\n') {
        if (strncmp(text, name, name_len) == 0) {
            *len_p = (int)strcspn(text + name_len, "\n");
            return text + name_len;
        }
    }
    return NULL;
}

/* Writes what differs in a line, with the files of both descriptions. */
static void explain(const char *name, size_t name_len, const char *a, const char *b,
                    char why[VB_DATA_WHY])
{
    int n_a = 0, n_b = 0, f_a = 0, f_b = 0;
    const char *v_a = value_of(a, name, name_len, &n_a), *v_b = value_of(b, name, name_len, &n_b);
    const char *in_a = value_of(a, FILES_LINE, strlen(FILES_LINE), &f_a);
    const char *in_b = value_of(b, FILES_LINE, strlen(FILES_LINE), &f_b);

    snprintf(why, VB_DATA_WHY, "%.*s: %.*s in %.*s, but %.*s in %.*s", (int)name_len - 1, name, n_a,
             v_a != NULL ? v_a : "", f_a, in_a != NULL ? in_a : "", n_b, v_b != NULL ? v_b : "",
             f_b, in_b != NULL ? in_b : "");
}

bool vb_train_data_differ(const char *a, const char *b, bool training, char why[VB_DATA_WHY])
{
    const char *line = a, *of_b;
    size_t name_len, len;
    int b_len;

    for (; *line != '\0'; line += len, line += *line == '\n') {
        len = strcspn(line, "\n");
        name_len = strcspn(line, "=\n") + 1;
        if (strncmp(line, FILES_LINE, strlen(FILES_LINE)) == 0 ||
            (training && strncmp(line, "test samples=", 13) == 0))
            return false; /* the lines about testing follow those about training */
        of_b = value_of(b, line, name_len, &b_len);
        if (of_b == NULL || (size_t)b_len != len - name_len ||
            memcmp(of_b, line + name_len, len - name_len) != 0) {
            explain(line, name_len, a, b, why);
            return true;
        }
    }
    return false;
}
