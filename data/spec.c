/* SPDX-License-Identifier: MIT
 *
 * Parses the specification of the data from the command line, and opens the data.
 */
#include "data/data_priv.h"

#include <stdlib.h>
#include <string.h>

static const char *const formats[] = {
    [VB_DATA_SYNTH] = "synth",       [VB_DATA_MNIST] = "mnist",   [VB_DATA_CIFAR10] = "cifar10",
    [VB_DATA_TFRECORD] = "tfrecord", [VB_DATA_LIBSVM] = "libsvm", [VB_DATA_CRITEO] = "criteo",
    [VB_DATA_CSR] = "csr",
};

static const char *const kinds[] = {
    [VB_SYNTH_DIGITS] = "digits",
    [VB_SYNTH_CIFAR] = "cifar",
    [VB_SYNTH_IMAGENET] = "imagenet",
    [VB_SYNTH_CRITEO] = "criteo",
};

static const int default_n[] = {
    [VB_SYNTH_DIGITS] = VB_DATA_SYNTH_DEFAULT,
    [VB_SYNTH_CIFAR] = 20000,
    [VB_SYNTH_IMAGENET] = 10000,
    [VB_SYNTH_CRITEO] = 500000,
};

const char *vb_data_format_str(enum vb_data_format format)
{
    return formats[format];
}

static int most_samples(enum vb_synth_kind kind)
{
    return kind == VB_SYNTH_CRITEO ? VB_DATA_ROWS_MAX : VB_DATA_SYNTH_MAX;
}

static void fill_sizes(struct vb_data_spec *spec)
{
    if (!spec->n_given)
        spec->n_train = default_n[spec->synth];
    if (!spec->test_given)
        spec->n_test = spec->n_train >= 5 ? spec->n_train / 5 : 1;
}

void vb_data_spec_prefer(struct vb_data_spec *spec, enum vb_synth_kind kind)
{
    if (spec->format != VB_DATA_SYNTH || spec->kind_given)
        return;
    spec->synth = kind;
    fill_sizes(spec);
}

static bool is_key(const char *text, size_t len, const char *key)
{
    return strlen(key) == len && strncmp(text, key, len) == 0;
}

static vb_status set_kind(struct vb_data_spec *spec, const char *value, char *why)
{
    size_t i;

    for (i = 0; i < VB_COUNT(kinds); i++) {
        if (strcmp(value, kinds[i]) == 0) {
            spec->synth = (enum vb_synth_kind)i;
            spec->kind_given = true;
            return VB_OK;
        }
    }
    return vb_usage(why, "kind=%.64s: must be digits, cifar, imagenet or criteo", value);
}

static vb_status set_number(const char *key, const char *value, int64_t least, int64_t most,
                            int *into, char *why)
{
    int64_t n;

    if (!vb_parse_int(value, &n) || n < least || n > most)
        return vb_usage(why, "%s=%.64s: must be a whole number from %lld to %lld", key, value,
                        (long long)least, (long long)most);
    *into = (int)n;
    return VB_OK;
}

/* Parses a pair such as "n=1000". */
static vb_status set_key(struct vb_data_spec *spec, const char *text, char *why)
{
    size_t len = strcspn(text, "=");
    const char *value = text + len + 1;

    if (text[len] != '=')
        return vb_usage(why, "synth:...%.64s: must be KEY=VALUE", text);
    if (is_key(text, len, "kind"))
        return set_kind(spec, value, why);
    if (is_key(text, len, "n")) {
        spec->n_given = true;
        return set_number("n", value, 1, VB_DATA_ROWS_MAX, &spec->n_train, why);
    }
    if (is_key(text, len, "test")) {
        spec->test_given = true;
        return set_number("test", value, 1, VB_DATA_ROWS_MAX, &spec->n_test, why);
    }
    if (is_key(text, len, "features"))
        return set_number("features", value, VB_SYNTH_ROW_FEATURES_MIN, FEATURES_MAX,
                          &spec->features, why);
    return vb_usage(why, "synth:...%.64s: the keys are kind, n, test and features", text);
}

static bool too_many(const struct vb_data_spec *spec)
{
    return spec->n_train > most_samples(spec->synth) || spec->n_test > most_samples(spec->synth);
}

static vb_status parse_keys(struct vb_data_spec *spec, const char *text, char *why)
{
    vb_status st = VB_OK;
    char key[128];
    size_t len;

    while (st == VB_OK) {
        len = strcspn(text, ",");
        snprintf(key, sizeof(key), "%.*s", len < sizeof(key) ? (int)len : (int)sizeof(key) - 1,
                 text);
        st = set_key(spec, key, why);
        if (text[len] == '\0')
            break;
        text += len + 1;
    }
    if (st != VB_OK)
        return st;
    fill_sizes(spec);
    /* if the model chooses the kind, vb_data_open() checks this */
    if (spec->kind_given && too_many(spec))
        return vb_usage(why, "synth: more than %d samples of kind %s are not possible",
                        most_samples(spec->synth), kinds[spec->synth]);
    return VB_OK;
}

static vb_status parse_synth(struct vb_data_spec *spec, const char *text, const char *rest,
                             char *why)
{
    int64_t n = 0;

    if (rest == NULL) {
        fill_sizes(spec);
        return VB_OK;
    }
    if (strchr(rest, '=') != NULL)
        return parse_keys(spec, rest, why);
    if (!vb_parse_int(rest, &n) || n < 1 || n > VB_DATA_ROWS_MAX)
        return vb_usage(why, "%.64s: N must be a whole number from 1 to %d", text,
                        VB_DATA_ROWS_MAX);
    spec->n_train = (int)n;
    spec->n_given = true;
    fill_sizes(spec);
    return VB_OK;
}

vb_status vb_data_spec_parse(const char *text, struct vb_data_spec *spec_p, char why[VB_OPTS_WHY])
{
    struct vb_data_spec spec = {.format = VB_DATA_SYNTH};
    size_t len = strcspn(text, ":"), i;
    const char *rest = text[len] == ':' ? text + len + 1 : NULL;
    vb_status st = VB_OK;

    for (i = 0; i < VB_COUNT(formats) && !is_key(text, len, formats[i]); i++)
        ;
    if (i == VB_COUNT(formats))
        return vb_usage(why,
                        "%.64s: unknown data format; use synth[:N], mnist:DIR, cifar10:DIR, "
                        "tfrecord:GLOB, libsvm:FILE, criteo:FILE or csr:FILE",
                        text);
    spec.format = (enum vb_data_format)i;
    if (spec.format == VB_DATA_SYNTH)
        st = parse_synth(&spec, text, rest, why);
    else if (rest == NULL || rest[0] == '\0')
        st = vb_usage(why, "%.64s: the path is missing; write %s:PATH", text, formats[i]);
    spec.path = rest;
    if (st == VB_OK)
        *spec_p = spec;
    return st;
}

static vb_status open_synth(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                            struct vb_dataset *set_p)
{
    int n = part == VB_SYNTH_TRAIN ? spec->n_train : spec->n_test;

    if (too_many(spec))
        return vb_err(VB_ERR_USAGE, "synth: more than %d samples of kind %s are not possible",
                      most_samples(spec->synth), kinds[spec->synth]);
    switch (spec->synth) {
    case VB_SYNTH_DIGITS:
        return vb_synth_create(seed, part, n, set_p);
    case VB_SYNTH_CIFAR:
        return vb_synth_images(seed, part, n, 32, 10, set_p);
    case VB_SYNTH_IMAGENET:
        return vb_synth_images(seed, part, n, 224, 1000, set_p);
    case VB_SYNTH_CRITEO:
        break;
    }
    return vb_synth_rows(seed, part, n, spec->features > 0 ? spec->features : VB_SYNTH_ROW_FEATURES,
                         set_p);
}

static vb_status read_rows(const struct vb_data_spec *spec, struct row_sink *sink)
{
    switch (spec->format) {
    case VB_DATA_LIBSVM:
        return vb_libsvm_read(spec->path, spec->features, sink);
    case VB_DATA_CRITEO:
        return vb_criteo_read(spec->path,
                              spec->features > 0 ? spec->features : VB_SYNTH_ROW_FEATURES, sink);
    default:
        return vb_tfrecord_glob(spec->path, spec->features, sink);
    }
}

vb_status vb_spec_read_rows(const struct vb_data_spec *spec, struct row_sink *sink)
{
    return vb_data_fix(read_rows(spec, sink), spec->format, spec->path);
}

static vb_status open_rows(const struct vb_data_spec *spec, struct vb_dataset *set_p)
{
    struct rows_mem *mem;
    vb_status st = vb_rows_mem_create(spec->features, &mem);

    if (st != VB_OK)
        return st;
    st = vb_spec_read_rows(spec, vb_rows_mem_sink(mem));
    if (st == VB_OK)
        st = vb_rows_mem_finish(mem, spec->path, set_p);
    vb_rows_mem_destroy(mem);
    return st;
}

static vb_status open_csr(const struct vb_data_spec *spec, struct vb_dataset *set_p)
{
    struct vb_dataset set;
    vb_status st = vb_csr_open(spec->path, &set);

    if (st != VB_OK)
        return st;
    if (spec->features > 0 && set.features > spec->features)
        st = vb_err(VB_ERR_USAGE, "%s has %d features, expected %d features", spec->path,
                    set.features, spec->features);
    else if (spec->features == 0 && set.features > FEATURES_UNASKED)
        st = vb_err(VB_ERR_USAGE,
                    "%s: offset 40: the file has %d features and needs as many weights on every "
                    "rank; if this is right, allow it with --features %d",
                    spec->path, set.features, set.features);
    if (st != VB_OK) {
        vb_dataset_destroy(&set);
        return st;
    }
    set.features = spec->features > 0 ? spec->features : set.features;
    *set_p = set;
    return VB_OK;
}

vb_status vb_data_open(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                       struct vb_dataset *set_p)
{
    switch (spec->format) {
    case VB_DATA_SYNTH:
        return open_synth(spec, seed, part, set_p);
    case VB_DATA_MNIST:
        return vb_data_fix(vb_mnist_open(spec->path, part, set_p), spec->format, spec->path);
    case VB_DATA_CIFAR10:
        return vb_data_fix(vb_cifar_open(spec->path, part, set_p), spec->format, spec->path);
    case VB_DATA_CSR:
        return vb_data_fix(open_csr(spec, set_p), spec->format, spec->path);
    default:
        return open_rows(spec, set_p);
    }
}

bool vb_data_has_test(const struct vb_data_spec *spec)
{
    return spec->format == VB_DATA_SYNTH || spec->format == VB_DATA_MNIST ||
           (spec->format == VB_DATA_CIFAR10 && vb_cifar_has_parts(spec->path));
}

static vb_status open_test(const struct vb_data_ask *ask, struct vb_dataset *train,
                           struct vb_dataset *test)
{
    struct vb_dataset all = *train;
    vb_status st;

    if (ask->test != NULL)
        return vb_data_open(ask->test, ask->seed, VB_SYNTH_TEST, test);
    if (ask->test_share > 0) {
        st = vb_dataset_split(&all, ask->test_share, ask->seed, train, test);
        if (st == VB_OK)
            vb_dataset_destroy(&all);
        return st;
    }
    if (!vb_data_has_test(&ask->data)) {
        vb_dataset_part(train, NULL, ask->no_test ? 1 : train->n, test);
        return VB_OK;
    }
    return vb_data_open(&ask->data, ask->seed, VB_SYNTH_TEST, test);
}

/* Gives both sets the same number of features and classes, because a file of rows may lack the
 * last features of the other file. Fails if the samples have different kinds or sizes. */
static vb_status match(struct vb_dataset *train, struct vb_dataset *test)
{
    int features = train->features > test->features ? train->features : test->features;

    if (train->kind != test->kind)
        return vb_err(
            VB_ERR_USAGE,
            "the training data and the test data must be of the same kind: either images or rows");
    if (train->kind == VB_DATA_IMAGES) {
        if (train->c != test->c || train->h != test->h || train->w != test->w)
            return vb_err(
                VB_ERR_USAGE,
                "the training images are %d x %d x %d, but the test images are %d x %d x %d",
                train->c, train->h, train->w, test->c, test->h, test->w);
        if (test->classes > train->classes)
            train->classes = test->classes;
        test->classes = train->classes;
        return VB_OK;
    }
    train->features = test->features = features;
    return VB_OK;
}

vb_status vb_data_open_both(const struct vb_data_ask *ask, struct vb_dataset *train_p,
                            struct vb_dataset *test_p)
{
    struct vb_dataset train = {.n = 0}, test = {.n = 0};
    vb_status st = vb_data_open(&ask->data, ask->seed, VB_SYNTH_TRAIN, &train);

    if (st != VB_OK)
        return st;
    st = open_test(ask, &train, &test);
    if (st == VB_OK)
        st = match(&train, &test);
    if (st != VB_OK) {
        vb_dataset_destroy(&train);
        vb_dataset_destroy(&test);
        return st;
    }
    *train_p = train;
    *test_p = test;
    return VB_OK;
}
