/* SPDX-License-Identifier: MIT
 *
 * verbena data: describes a data set, converts rows to a .csr file, writes generated data to files.
 */
#include "cli/cli.h"
#include "cli/data_published.h"
#include "data/data.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define ERASE_LINE "\r\033[K"
#define BAR 40             /* width of the progress bar, in characters */
#define PLANTED_MAX 200000 /* maximum number of rows to evaluate the model that made the labels */

struct data_args {
    int64_t features, seed, n;
    int part;
    bool json;
};

#define FIELD(name) offsetof(struct data_args, name)

/* names in the order of enum vb_synth_part */
static const char *const part_choices[] = {"train", "test", NULL};

static const struct vb_opt data_opts[] = {
    {"features", VB_OPT_INT, FIELD(features), .min = 1, .max = INT32_MAX, .arg = "F",
     .help =
         "number of features of rows. criteo and synth data are hashed to indices below F "
         "(by default 33762578); in other data all indices must be below F (by default no limit)"},
    {"part", VB_OPT_CHOICE, FIELD(part), "train", .choices = part_choices, .arg = "PART",
     .help = "which part to use, if the data has two"},
    {"n", VB_OPT_INT, FIELD(n), .min = 1, .max = VB_DATA_ROWS_MAX, .arg = "N",
     .help = "with synth: number of samples to generate"},
    {"seed", VB_OPT_INT, FIELD(seed), "1", .max = INT64_MAX, .arg = "S",
     .help = "seed of generated data"},
    {"json", VB_OPT_FLAG, FIELD(json), .help = "print one JSON object instead of text"},
};

/* ---- info ------------------------------------------------------------------------------------ */

/* The facts that are printed about a data set. */
struct info {
    const char *spec;
    const struct vb_dataset *set;
    struct vb_data_facts facts;
    double planted; /* accuracy of the model that made the labels; below 0: unknown */
    double open_s;
    struct comparison published;
};

static vb_status print_json(const struct info *in)
{
    struct vb_json *json = cli_json_object();
    const struct vb_dataset *set = in->set;
    bool rows = set->kind == VB_DATA_ROWS;
    int c;

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
    cli_data_compared_json(&in->published, json);
    return cli_print_json(json);
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
    printf("nonzeros   %lld, %.1f per sample", (long long)in->facts.nonzeros, per_row);
    if (set->kind == VB_DATA_ROWS)
        printf(", from %d to %d", in->facts.row_min, in->facts.row_max);
    if (in->facts.nonzeros > 0)
        printf("\nvalues     from %g to %g\n", in->facts.least, in->facts.most);
    else
        printf("\n");
    if (in->planted >= 0)
        printf("planted    the model that generated the labels predicts %.2f %% of the labels "
               "correctly\n",
               100 * in->planted);
    cli_data_compared_print(&in->published);
}

static int info(const struct data_args *a, const char *text, const struct vb_data_spec *spec)
{
    struct info in = {.spec = text, .planted = -1};
    uint64_t begin_ns = vb_clock_ns();
    struct vb_dataset set;
    vb_status st = vb_data_open(spec, (uint64_t)a->seed, (enum vb_synth_part)a->part, &set);

    if (st != VB_OK)
        return cli_exit_code(st);
    in.open_s = (double)(vb_clock_ns() - begin_ns) / 1e9;
    in.set = &set;
    st = cli_data_compare(spec, (enum vb_synth_part)a->part, &in.published);
    if (st == VB_OK)
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

    if (!a->json) {
        printf("%s: %lld rows of %d features, %lld nonzeros, %.1f %% positive\n", path,
               (long long)w->rows, w->features, (long long)w->nonzeros,
               100.0 * (double)w->positive / (double)w->rows);
        return VB_OK;
    }
    json = cli_json_object();
    vb_json_text(json, "file", path);
    vb_json_int(json, "samples", w->rows);
    vb_json_int(json, "features", w->features);
    vb_json_int(json, "nonzeros", w->nonzeros);
    vb_json_int(json, "positive", w->positive);
    return cli_print_json(json);
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

/* Makes the names of the two files of a part, and checks that the files may be written. */
static vb_status part_paths(enum vb_synth_part part, const char *dir, char images[PATH_MAX],
                            char labels[PATH_MAX])
{
    const char *name = part == VB_SYNTH_TRAIN ? "train" : "t10k";
    vb_status st;

    if ((size_t)snprintf(images, PATH_MAX, "%s/%s-images-idx3-ubyte", dir, name) >= PATH_MAX ||
        (size_t)snprintf(labels, PATH_MAX, "%s/%s-labels-idx1-ubyte", dir, name) >= PATH_MAX)
        return vb_err(VB_ERR_USAGE, "cannot write %.64s...: the path is too long", dir);
    st = vb_file_may_replace(images);
    return st == VB_OK ? vb_file_may_replace(labels) : st;
}

static vb_status write_part(const struct data_args *a, const struct vb_data_spec *spec,
                            enum vb_synth_part part, const char *dir)
{
    char images[PATH_MAX], labels[PATH_MAX];
    struct vb_dataset set;
    vb_status st = part_paths(part, dir, images, labels);

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
    vb_status st = part_paths(VB_SYNTH_TEST, dir, images, labels); /* check all, then write */

    if (st == VB_OK)
        st = part_paths(VB_SYNTH_TRAIN, dir, images, labels);
    if (st == VB_OK)
        st = vb_dir_make(dir);
    if (st == VB_OK)
        st = write_part(a, spec, VB_SYNTH_TRAIN, dir);
    return st == VB_OK ? write_part(a, spec, VB_SYNTH_TEST, dir) : st;
}

/* Writes generated data. Digits become the four files of MNIST in a folder, rows become a .csr
 * file. */
static int synth(const struct data_args *a, const char *kind, const char *out)
{
    struct vb_data_spec spec;
    char text[128], why[VB_OPTS_WHY];

    snprintf(text, sizeof(text), "synth:kind=%.32s%s%.0lld", kind, a->n > 0 ? ",n=" : "",
             (long long)a->n);
    if (vb_data_spec_parse(text, &spec, why) != VB_OK)
        return cli_refuse(&cli_data, "%s", why);
    if (spec.synth == VB_SYNTH_CRITEO) {
        spec.n_test = a->n > 0 ? (int)a->n : spec.n_test;
        spec.features = a->features > 0 ? (int)a->features : spec.features;
        return convert(a, &spec, out);
    }
    if (spec.synth != VB_SYNTH_DIGITS)
        return cli_refuse(&cli_data, "only digits and criteo can be written; data of the other "
                                     "kinds is generated when a job uses it");
    if (a->json)
        return cli_refuse(
            &cli_data,
            "--json cannot be used with digits, because digits are written as several files");
    return cli_finish(cli_exit_code(write_digits(a, &spec, out)));
}

enum { INFO, CONVERT, SYNTH };

static const char *const verbs[] = {[INFO] = "info", [CONVERT] = "convert", [SYNTH] = "synth"};

static int run_verb(const struct data_args *a, const struct vb_opts *parsed)
{
    static const char *const needs[] = {[INFO] = "a SPEC",
                                        [CONVERT] = "a SPEC and the file to write",
                                        [SYNTH] = "a KIND and where to write"};
    const char *const *given = parsed->operands;
    struct vb_data_spec spec;
    char why[VB_OPTS_WHY];
    int verb;

    if (parsed->n_operands == 0)
        return cli_refuse(
            &cli_data,
            "the action is missing: use info SPEC, convert SPEC OUT.csr or synth KIND OUT");
    verb = cli_find_name(&cli_data, "action", given[0], verbs, VB_COUNT(verbs));
    if (verb < 0)
        return CLI_USAGE;
    if (parsed->n_operands != (verb == INFO ? 2 : 3))
        return cli_refuse(&cli_data, "%s needs %s", verbs[verb], needs[verb]);
    if (verb == SYNTH)
        return synth(a, given[1], given[2]);
    if (a->n > 0)
        return cli_refuse(
            &cli_data, "--n is only for synth KIND OUT; in a SPEC, write synth:N or synth:n=N,...");
    if (vb_data_spec_parse(given[1], &spec, why) != VB_OK)
        return cli_refuse(&cli_data, "%s", why);
    spec.features = a->features > 0 ? (int)a->features : spec.features;
    return verb == INFO ? info(a, given[1], &spec) : convert(a, &spec, given[2]);
}

static struct cli_names verb_names(void)
{
    struct cli_names names = {.n = VB_COUNT(verbs)};

    memcpy(names.list, verbs, sizeof(verbs));
    return names;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct data_args args;
    struct vb_opt_group groups[] = {{"Data", data_opts, VB_COUNT(data_opts), &args}};
    struct vb_opts parsed;
    int rc = cli_parse(command, groups, VB_COUNT(groups), 3, argc, argv, &parsed);

    return rc >= 0 ? rc : run_verb(&args, &parsed);
}

const struct cli_command cli_data = {
    .name = "data",
    .summary = "describe a data set, convert it, or write generated data to files",
    .usage = "info SPEC | convert SPEC OUT.csr | synth KIND OUT",
    .about =
        "info reads every sample and prints sizes, label counts, nonzeros and the value range.\n"
        "Files with the names of published ones are compared with these by size and SHA-256.\n"
        "convert writes sparse rows as a .csr file. Such a file is mapped and needs no parsing.\n"
        "synth writes generated data: KIND digits as the files of MNIST to the folder OUT, which\n"
        "is created if it does not exist; KIND criteo as the .csr file OUT.\n"
        "\n"
        "SPEC is one of\n"
        "\n"
        "  mnist:DIR        the IDX files of MNIST, plain or compressed with gzip\n"
        "  cifar10:DIR      the binary files of CIFAR-10; a single file is possible, too\n"
        "  tfrecord:GLOB    tf.Examples with label, index and value\n"
        "  libsvm:FILE      text: LABEL INDEX:VALUE ...\n"
        "  criteo:FILE      Criteo click logs, hashed to --features indices\n"
        "  csr:FILE         a file that convert wrote\n"
        "  synth[:N]        N generated samples; also synth:KEY=VALUE,... with the keys kind\n"
        "                   (digits, cifar, imagenet, criteo), n, test and features\n"
        "\n"
        "  verbena data info mnist:data/mnist --part test\n"
        "  verbena data convert criteo:day_0.gz day_0.csr --features 33762578\n"
        "  verbena data synth digits data/digits --n 10000",
    .words = verb_names,
    .run = run,
};
