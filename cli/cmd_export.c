/* SPDX-License-Identifier: MIT
 *
 * verbena export: writes the parameters of a checkpoint as .npy files, which numpy.load() reads.
 *
 * A file of format 1.0 has a magic number, the length of the header, the header (a Python
 * dictionary, padded with blanks) and the elements.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define NPY_HEAD 128 /* bytes of magic number, length and header; a multiple of 64 */
#define NPY_FRONT 10 /* number of bytes of magic number and length */

struct export_args {
    const char *out;
    bool state, json;
};

#define FIELD(name) offsetof(struct export_args, name)

static const struct vb_opt export_opts[] = {
    {"out", VB_OPT_TEXT, FIELD(out), .arg = "DIR",
     .help = "folder to write to; it is created if it does not exist"},
    {"state", VB_OPT_FLAG, FIELD(state),
     .help = "also write the state of the update rule, such as momentum"},
    {"json", VB_OPT_FLAG, FIELD(json), .help = "print one JSON object instead of text"},
};

static const char *type_str(enum vb_array_type type)
{
    return type == VB_ARRAY_F32 ? "float32" : "uint32";
}

static void npy_head(const struct vb_checkpoint_array *a, char head[NPY_HEAD])
{
    const char *descr = a->type == VB_ARRAY_F32 ? "<f4" : "<u4";
    char shape[64];
    int n;

    if (a->cols == 1)
        snprintf(shape, sizeof(shape), "%lld,", (long long)a->rows);
    else
        snprintf(shape, sizeof(shape), "%lld, %lld", (long long)a->rows, (long long)a->cols);
    memset(head, ' ', NPY_HEAD);
    memcpy(head, "\x93NUMPY\1\0", 8);
    head[8] = (char)(NPY_HEAD - NPY_FRONT);
    head[9] = 0;
    n = snprintf(head + NPY_FRONT, NPY_HEAD - NPY_FRONT,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    head[NPY_FRONT + n] = ' '; /* the blank replaces the zero at the end of the text */
    head[NPY_HEAD - 1] = '\n';
}

static vb_status write_all(int fd, const char *path, const void *data, size_t len)
{
    const char *from = data;
    ssize_t n;

    while (len > 0) {
        n = write(fd, from, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return vb_err_sys("cannot write %s", path);
        from += n;
        len -= (size_t)n;
    }
    return VB_OK;
}

static vb_status write_npy(int fd, const char *path, const struct vb_checkpoint_array *a)
{
    char head[NPY_HEAD];
    vb_status st;

    npy_head(a, head);
    st = write_all(fd, path, head, sizeof(head));
    if (st == VB_OK)
        st = write_all(fd, path, a->data, (size_t)a->rows * (size_t)a->cols * sizeof(float));
    if (st == VB_OK && fsync(fd) != 0)
        st = vb_err_sys("cannot sync %s", path);
    return st;
}

/* Writes a temporary file and renames it, so that an old file is replaced only by a complete
 * one. */
static vb_status replace_npy(const char *path, const struct vb_checkpoint_array *a)
{
    char temp[PATH_MAX];
    vb_status st;
    int fd;

    if ((size_t)snprintf(temp, sizeof(temp), "%s.%ld.tmp", path, (long)getpid()) >= sizeof(temp))
        return vb_err(VB_ERR_USAGE, "cannot write %.64s...: the path is too long", path);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return vb_err_sys("cannot create %s", path);
    st = write_npy(fd, path, a);
    close(fd);
    if (st == VB_OK && rename(temp, path) != 0)
        st = vb_err_sys("cannot rename %s to %s", temp, path);
    if (st != VB_OK)
        unlink(temp);
    return st;
}

static void print_array(const struct vb_checkpoint_array *a, const char *path, struct vb_json *json)
{
    if (json == NULL) {
        printf("%s: ", path);
        if (a->cols == 1)
            printf("%lld %s\n", (long long)a->rows, type_str(a->type));
        else
            printf("%lld x %lld %s\n", (long long)a->rows, (long long)a->cols, type_str(a->type));
        return;
    }
    vb_json_object(json, NULL);
    vb_json_text(json, "name", a->name);
    vb_json_text(json, "file", path);
    vb_json_text(json, "type", type_str(a->type));
    vb_json_array(json, "shape");
    vb_json_int(json, NULL, a->rows);
    if (a->cols != 1)
        vb_json_int(json, NULL, a->cols);
    vb_json_end(json);
    vb_json_bool(json, "state", a->state);
    vb_json_end(json);
}

/* Checks the paths of all files or, if writes is true, writes and prints them. */
static vb_status export_arrays(const struct export_args *a, const struct vb_checkpoint *cp,
                               bool writes, struct vb_json *json)
{
    const struct vb_checkpoint_array *array;
    char path[PATH_MAX];
    vb_status st = writes ? vb_dir_make(a->out) : VB_OK;
    int i;

    for (i = 0; st == VB_OK && i < cp->n_arrays; i++) {
        array = &cp->arrays[i];
        if (array->state && !a->state)
            continue;
        if ((size_t)snprintf(path, PATH_MAX, "%s/%s.npy", a->out, array->name) >= PATH_MAX)
            return vb_err(VB_ERR_USAGE, "cannot write %.64s...: the path is too long", a->out);
        st = writes ? replace_npy(path, array) : vb_file_may_replace(path);
        if (st == VB_OK && writes)
            print_array(array, path, json);
    }
    return st;
}

static vb_status export_json(const struct export_args *a, const char *path,
                             const struct vb_checkpoint *cp)
{
    struct vb_json *json = cli_json_object();
    vb_status st;

    if (json == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for JSON");
    vb_json_text(json, "checkpoint", path);
    vb_json_text(json, "model", cp->model);
    vb_json_int(json, "step", cp->step);
    cli_json_view(json, &cp->view);
    vb_json_array(json, "arrays");
    st = export_arrays(a, cp, true, json);
    vb_json_end(json);
    if (st == VB_OK)
        return cli_print_json(json);
    vb_json_destroy(json);
    return st;
}

static void print_head(const char *path, const struct vb_checkpoint *cp)
{
    char text[VB_CHECKPOINT_VIEW_TEXT];

    printf("%s: %s at step %lld", path, cp->model, (long long)cp->step);
    if (cp->view.run > 0)
        printf(", %s", vb_checkpoint_view_text(&cp->view, text));
    printf("\n");
}

static vb_status export_checkpoint(const struct export_args *a, const char *given)
{
    struct vb_checkpoint *cp;
    char path[PATH_MAX];
    vb_status st = cli_find_checkpoint(given, path);

    if (st == VB_OK)
        st = vb_checkpoint_read(path, &cp);
    if (st != VB_OK)
        return st;
    st = export_arrays(a, cp, false, NULL); /* check all paths before writing */
    if (st != VB_OK) {
        vb_checkpoint_free(cp);
        return st;
    }
    if (a->json) {
        st = export_json(a, path, cp);
    } else {
        print_head(path, cp);
        st = export_arrays(a, cp, true, NULL);
    }
    vb_checkpoint_free(cp);
    return st;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct export_args args;
    const struct vb_opt_group groups[] = {{"Options", export_opts, VB_COUNT(export_opts), &args}};
    struct vb_opts parsed;
    int rc = cli_parse(command, groups, VB_COUNT(groups), 1, argc, argv, &parsed);

    if (rc >= 0)
        return rc;
    if (parsed.n_operands != 1)
        return cli_refuse(
            command, "the checkpoint is missing: name a .vbc file or a folder with checkpoints");
    if (args.out == NULL)
        return cli_refuse(command, "--out DIR is missing: name the folder to write to");
    return cli_finish(cli_exit_code(export_checkpoint(&args, parsed.operands[0])));
}

const struct cli_command cli_export = {
    .name = "export",
    .summary = "write the parameters of a checkpoint as .npy files",
    .usage = "CHECKPOINT --out DIR [--state] [--json]",
    .about = "Writes each parameter of a checkpoint to DIR/NAME.npy, row-major, for numpy.load().\n"
             "CHECKPOINT is a .vbc file, or a folder, whose latest checkpoint is used.\n"
             "\n"
             "  verbena export runs/lenet --out params\n"
             "  verbena export runs/lenet/checkpoint-5000.vbc --out params --state",
    .run = run,
};
