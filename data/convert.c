/* SPDX-License-Identifier: MIT
 *
 * Converts rows of any format to a .csr file, one row at a time.
 */
#include "data/data_priv.h"

#define TELL_EVERY 4096 /* number of rows between two reports of progress */

/* A sink that passes rows on to another sink and reports progress. */
struct told_sink {
    struct row_sink sink;
    struct row_sink *to;
    vb_data_progress_fn progress;
    void *arg;
};

static vb_status told_put(struct row_sink *sink, const struct row *row)
{
    struct told_sink *t = (struct told_sink *)sink;
    struct row_buf buf = {
        .index = (uint32_t *)row->index, .value = (float *)row->value, .n = row->n};

    if (t->progress != NULL && sink->rows % TELL_EVERY == 0)
        t->progress(t->arg, sink->done, sink->rows);
    t->to->features = sink->features > t->to->features ? sink->features : t->to->features;
    return vb_sink_put(t->to, &buf, row->y);
}

static vb_status copy_rows(const struct vb_dataset *set, struct row_sink *sink)
{
    struct row_buf buf = {.n = 0};
    struct row_room room;
    struct row row;
    vb_status st = VB_OK;
    int i, e;

    sink->features = set->features;
    for (i = 0; st == VB_OK && i < set->n; i++) {
        st = vb_dataset_row(set, i, &row, &room);
        buf.n = 0;
        for (e = 0; st == VB_OK && e < row.n; e++)
            st = vb_row_buf_add(&buf, row.index[e], row_value(&row, e));
        if (st == VB_OK)
            st = vb_dataset_check_row(set, i, buf.index, buf.n);
        sink->done = (double)i / set->n;
        if (st == VB_OK)
            st = vb_sink_put(sink, &buf, row.y);
    }
    vb_row_buf_fini(&buf);
    return st;
}

static vb_status copy_set(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                          struct row_sink *sink)
{
    struct vb_dataset set;
    vb_status st = vb_data_open(spec, seed, part, &set);

    if (st != VB_OK)
        return st;
    st = set.kind == VB_DATA_ROWS
             ? copy_rows(&set, sink)
             : vb_err(VB_ERR_USAGE, "%s has images, not rows", vb_data_format_str(spec->format));
    vb_dataset_destroy(&set);
    return st;
}

/* Returns true if the format is read row by row. Other data is opened as a data set. */
static bool is_read_by_row(const struct vb_data_spec *spec)
{
    return spec->format == VB_DATA_LIBSVM || spec->format == VB_DATA_CRITEO ||
           spec->format == VB_DATA_TFRECORD;
}

vb_status vb_data_convert(const struct vb_data_spec *spec, uint64_t seed, enum vb_synth_part part,
                          const char *path, vb_data_progress_fn progress, void *arg,
                          struct vb_data_written *written_p)
{
    struct told_sink told = {
        .sink = {.put = told_put, .features = spec->features}, .progress = progress, .arg = arg};
    struct csr_writer *w;
    vb_status st = vb_csr_writer_create(path, spec->features, &w);

    if (st != VB_OK)
        return st;
    told.to = vb_csr_writer_sink(w);
    st = is_read_by_row(spec) ? vb_spec_read_rows(spec, &told.sink)
                              : copy_set(spec, seed, part, &told.sink);
    if (st == VB_OK)
        st = vb_csr_writer_finish(w);
    if (st == VB_OK)
        *written_p = (struct vb_data_written){.rows = told.to->rows,
                                              .nonzeros = told.to->nonzeros,
                                              .positive = told.to->positive,
                                              .features = told.to->features};
    vb_csr_writer_destroy(w);
    return st;
}
