/* SPDX-License-Identifier: MIT
 *
 * verbena data: what is in a data set, rows as a .csr file, made-up data as files.
 */
#include "cli/cli.h"
#include "data/data.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define ERASE_LINE "\r\033[K"
#define BAR 40             /* characters */
#define PLANTED_MAX 200000 /* rows that the planted model is tried on */

struct data_args {
    int64_t features, seed, n;
    int part;
    bool json;
};

#define FIELD(name) offsetof(struct data_args, name)

static const char *const part_choices[] = {"train", "test", NULL}; /* as in enum vb_synth_part */

static const struct vb_opt data_opts[] = {
    {"features", VB_OPT_INT, FIELD(features), NULL, 1, INT32_MAX, NULL, "F",
     "features of rows: buckets for criteo and synth (33762578 if not given); for the others "
     "as many as there are, and no entry may be beyond F"},
    {"part", VB_OPT_CHOICE, FIELD(part), "train", 0, 0, part_choices, "PART",
     "of data that has two"},
    {"n", VB_OPT_INT, FIELD(n), NULL, 1, VB_DATA_ROWS_MAX, NULL, "N", "samples to make up"},
    {"seed", VB_OPT_INT, FIELD(seed), "1", 0, INT64_MAX, NULL, "S", "decides the made-up data"},
    {"json", VB_OPT_FLAG, FIELD(json), NULL, 0, 0, NULL, NULL, "one JSON object instead of text"},
};

static int refuse(const char *why)
{
    fprintf(stderr, "verbena data: %s\n", why);
    return CLI_USAGE;
}

/* ---- info ------------------------------------------------------------------------------------ */

/* What is printed of a set. */
struct info {
    const char *spec;
    const struct vb_dataset *set;
    struct vb_data_facts facts;
    double planted; /* below 0: there is no planted model */
    double open_s;
};

static void info_json(const struct info *in, struct vb_json *json)
{
    const struct vb_dataset *set = in->set;
    bool rows = set->kind == VB_DATA_ROWS;
    int c;

    vb_json_object(json, NULL);
    vb_json_text(json, "data", in->spec);
    vb_json_text(json, "kind", rows ? "rows" : "images");
    vb_json_int(json, "samples", set->n);
    vb_json_int(json, "features", set->features);
    vb_json_int(json, "classes", set->classes);
    if (!rows) {
        vb_json_int(json, "channels", set->c);
        vb_json_int(json, "height", set->h);
        vb_json_int(json, "width", set->w);
    }
    vb_json_int(json, "nonzeros", in->facts.nonzeros);
    vb_json_int(json, "row_min", in->facts.row_min);
    vb_json_int(json, "row_max", in->facts.row_max);
    vb_json_real(json, "value_min", in->facts.least);
    vb_json_real(json, "value_max", in->facts.most);
    vb_json_array(json, "labels");
    for (c = 0; c < set->classes; c++)
        vb_json_int(json, NULL, in->facts.count[c]);
    vb_json_end(json);
    if (in->planted >= 0)
        vb_json_real(json, "planted_accuracy", in->planted);
    vb_json_real(json, "open_s", in->open_s);
    vb_json_end(json);
}

static vb_status print_json(const struct info *in)
{
    struct vb_json *json = vb_json_create();
    vb_status st;

    info_json(in, json);
    st = vb_json_print(json, stdout);
    vb_json_destroy(json);
    return st;
}

static void print_labels(const struct info *in)
{
    int64_t least = in->facts.count[0], most = least;
    int c, classes = in->set->classes;

    printf("labels    ");
    for (c = 0; c < classes; c++) {
        least = in->facts.count[c] < least ? in->facts.count[c] : least;
        most = in->facts.count[c] > most ? in->facts.count[c] : most;
        if (classes <= 10)
            printf(" %d: %lld (%.1f %%)%s", c, (long long)in->facts.count[c],
                   100.0 * (double)in->facts.count[c] / in->set->n, c + 1 < classes ? "," : "");
    }
    if (classes > 10)
        printf(" %d, with %lld to %lld samples each", classes, (long long)least, (long long)most);
    printf("\n");
}

static void print_text(const struct info *in)
{
    const struct vb_dataset *set = in->set;
    double per_row = (double)in->facts.nonzeros / set->n;

    printf("data       %s, opened in %.3f s\n", in->spec, in->open_s);
    if (set->kind == VB_DATA_IMAGES)
        printf("samples    %d images of %d x %d x %d\n", set->n, set->c, set->h, set->w);
    else
        printf("samples    %d rows of %d features\n", set->n, set->features);
    print_labels(in);
    printf("nonzeros   %lld, %.1f a sample", (long long)in->facts.nonzeros, per_row);
    if (set->kind == VB_DATA_ROWS)
        printf(", from %d to %d", in->facts.row_min, in->facts.row_max);
    if (in->facts.nonzeros > 0)
        printf("\nvalues     from %g to %g\n", in->facts.least, in->facts.most);
    else
        printf("\n");
    if (in->planted >= 0)
        printf("planted    the model behind the labels gets %.2f %% right\n", 100 * in->planted);
}

static int info(const struct data_args *a, const char *text, const struct vb_data_spec *spec)
{
    struct info in = {.spec = text, .planted = -1};
    uint64_t begin_ns = vb_clock_ns();
    struct vb_dataset set;
    vb_status st;

    st = vb_data_open(spec, (uint64_t)a->seed, (enum vb_synth_part)a->part, &set);
    if (st != VB_OK)
        return cli_exit_code(st);
    in.open_s = (double)(vb_clock_ns() - begin_ns) / 1e9;
    in.set = &set;
    st = vb_data_look(&set, &in.facts);
    if (st == VB_OK) {
        (void)vb_synth_planted(&set, set.n < PLANTED_MAX ? set.n : PLANTED_MAX, &in.planted);
        if (a->json)
            st = print_json(&in);
        else
            print_text(&in);
        vb_data_facts_fini(&in.facts);
    }
    vb_dataset_destroy(&set);
    return cli_finish(cli_exit_code(st));
}

/* ---- files ----------------------------------------------------------------------------------- */

static void show_progress(void *arg, double done, int64_t rows)
{
    int full = (int)(done * BAR);

    (void)arg;
    fprintf(stderr, ERASE_LINE "[%.*s%*s] %3.0f %%, %lld rows", full,
            "########################################", BAR - full, "", 100 * done,
            (long long)rows);
}

static vb_status print_written(const struct data_args *a, const char *path,
                               const struct vb_data_written *w)
{
    struct vb_json *json;
    vb_status st;

    if (!a->json) {
        printf("%s: %lld rows of %d features, %lld nonzeros, %.1f %% positive\n", path,
               (long long)w->rows, w->features, (long long)w->nonzeros,
               100.0 * (double)w->positive / (double)w->rows);
        return VB_OK;
    }
    json = vb_json_create();
    vb_json_object(json, NULL);
    vb_json_text(json, "file", path);
    vb_json_int(json, "samples", w->rows);
    vb_json_int(json, "features", w->features);
    vb_json_int(json, "nonzeros", w->nonzeros);
    vb_json_int(json, "positive", w->positive);
    vb_json_end(json);
    st = vb_json_print(json, stdout);
    vb_json_destroy(json);
    return st;
}

static int convert(const struct data_args *a, const struct vb_data_spec *spec, const char *path)
{
    bool terminal = isatty(STDERR_FILENO) == 1;
    struct vb_data_written written;
    vb_status st;

    st = vb_data_convert(spec, (uint64_t)a->seed, (enum vb_synth_part)a->part, path,
                         terminal ? show_progress : NULL, NULL, &written);
    if (terminal)
        fprintf(stderr, ERASE_LINE);
    if (st == VB_OK)
        st = print_written(a, path, &written);
    return cli_finish(cli_exit_code(st));
}

/* The two files of a part, which may be written. */
static vb_status part_paths(enum vb_synth_part part, const char *dir, char images[PATH_MAX],
                            char labels[PATH_MAX])
{
    const char *name = part == VB_SYNTH_TRAIN ? "train" : "t10k";
    vb_status st;

    if ((size_t)snprintf(images, PATH_MAX, "%s/%s-images-idx3-ubyte", dir, name) >= PATH_MAX ||
        (size_t)snprintf(labels, PATH_MAX, "%s/%s-labels-idx1-ubyte", dir, name) >= PATH_MAX)
        return vb_err(VB_ERR_USAGE, "%.64s...: the path is too long", dir);
    st = vb_file_may_replace(images);
    return st == VB_OK ? vb_file_may_replace(labels) : st;
}

static vb_status write_part(const struct data_args *a, const struct vb_data_spec *spec,
                            enum vb_synth_part part, const char *dir)
{
    char images[PATH_MAX], labels[PATH_MAX];
    struct vb_dataset set;
    vb_status st;

    st = part_paths(part, dir, images, labels);
    if (st != VB_OK)
        return st;
    st = vb_data_open(spec, (uint64_t)a->seed, part, &set);
    if (st != VB_OK)
        return st;
    st = vb_idx_write(&set, images, labels);
    if (st == VB_OK)
        printf("%s: %d images of %d x %d\n", images, set.n, set.h, set.w);
    vb_dataset_destroy(&set);
    return st;
}

static vb_status write_digits(const struct data_args *a, const struct vb_data_spec *spec,
                              const char *dir)
{
    char images[PATH_MAX], labels[PATH_MAX];
    vb_status st = part_paths(VB_SYNTH_TEST, dir, images, labels); /* before the first is written */

    if (st == VB_OK)
        st = part_paths(VB_SYNTH_TRAIN, dir, images, labels);
    if (st == VB_OK)
        st = vb_dir_make(dir);
    if (st == VB_OK)
        st = write_part(a, spec, VB_SYNTH_TRAIN, dir);
    if (st == VB_OK)
        st = write_part(a, spec, VB_SYNTH_TEST, dir);
    return st;
}

/* Digits become the four files of MNIST in a folder, rows become a .csr file. */
static int synth(const struct data_args *a, const char *kind, const char *out)
{
    struct vb_data_spec spec;
    char text[128], why[VB_OPTS_WHY];

    snprintf(text, sizeof(text), "synth:kind=%.32s%s%.0lld", kind, a->n > 0 ? ",n=" : "",
             (long long)a->n);
    if (vb_data_spec_parse(text, &spec, why) != VB_OK)
        return refuse(why);
    if (spec.synth == VB_SYNTH_CRITEO) {
        spec.n_test = a->n > 0 ? (int)a->n : spec.n_test;
        spec.features = a->features > 0 ? (int)a->features : spec.features;
        return convert(a, &spec, out);
    }
    if (spec.synth != VB_SYNTH_DIGITS)
        return refuse("only digits and criteo have a file format; the others are made when used");
    if (a->json)
        return refuse("--json: digits are several files, which are told as text");
    return cli_finish(cli_exit_code(write_digits(a, &spec, out)));
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run_verb(const struct data_args *a, const struct vb_opts *parsed)
{
    static const char *const verbs[] = {"info", "convert", "synth"};
    const char *const *given = parsed->operands;
    struct vb_data_spec spec;
    char why[VB_OPTS_WHY];

    if (parsed->n_operands == 0)
        return refuse("what? info SPEC, convert SPEC OUT.csr or synth KIND OUT");
    if (strcmp(given[0], verbs[0]) != 0 && strcmp(given[0], verbs[1]) != 0 &&
        strcmp(given[0], verbs[2]) != 0) {
        snprintf(why, sizeof(why), "unknown word %.64s; there are info, convert and synth",
                 given[0]);
        return refuse(why);
    }
    if (parsed->n_operands != (given[0][0] == 'i' ? 2 : 3))
        return refuse(given[0][0] == 'i'   ? "info takes a SPEC"
                      : given[0][0] == 'c' ? "convert takes a SPEC and the file to write"
                                           : "synth takes a KIND and where to write");
    if (given[0][0] == 's')
        return synth(a, given[1], given[2]);
    if (a->n > 0)
        return refuse("--n is for synth KIND OUT; in a SPEC it is synth:N or synth:n=N,...");
    if (vb_data_spec_parse(given[1], &spec, why) != VB_OK)
        return refuse(why);
    spec.features = a->features > 0 ? (int)a->features : spec.features;
    return given[0][0] == 'i' ? info(a, given[1], &spec) : convert(a, &spec, given[2]);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct data_args args;
    struct vb_opt_group groups[] = {{"Data", data_opts, VB_COUNT(data_opts), &args}};
    struct vb_opts parsed;
    int rc;

    rc = cli_parse(command, groups, VB_COUNT(groups), 3, argc, argv, &parsed);
    return rc >= 0 ? rc : run_verb(&args, &parsed);
}

const struct cli_command cli_data = {
    .name = "data",
    .summary = "what is in a data set; conversion; made-up data as files",
    .usage = "info SPEC | convert SPEC OUT.csr | synth KIND OUT [--json] ...",
    .about = "info looks at every sample: sizes, balance of labels, nonzeros, range of values.\n"
             "convert writes sparse rows as a .csr file, which is mapped instead of read.\n"
             "synth writes made-up data: digits as the files of MNIST into the folder OUT, made\n"
             "if need be, criteo as the .csr file OUT.\n"
             "\n"
             "SPEC is one of\n"
             "\n"
             "  mnist:DIR        the IDX files of MNIST, plain or gzip\n"
             "  cifar10:DIR      the binary files of CIFAR-10; a single file does as well\n"
             "  tfrecord:GLOB    tf.Examples with label, index and value\n"
             "  libsvm:FILE      text, LABEL INDEX:VALUE ...\n"
             "  criteo:FILE      Criteo's click logs, hashed into --features buckets\n"
             "  csr:FILE         what convert writes\n"
             "  synth[:N]        made up; also synth:KEY=VALUE,... with the keys kind (digits,\n"
             "                   cifar, imagenet, criteo), n, test and features\n"
             "\n"
             "  verbena data info mnist:data/mnist --part test\n"
             "  verbena data convert criteo:day_0.gz day_0.csr --features 33762578",
    .run = run,
};
