/* SPDX-License-Identifier: MIT
 *
 * Series: files of rows with a fixed size. A head of text names the columns, so that readers in any
 * language need no list of their own. docs/run.md describes the format.
 */
#ifndef VB_RECORD_FOLDER_SERIES_H
#define VB_RECORD_FOLDER_SERIES_H

#include "base/base.h"

enum vb_col_type { VB_COL_U64, VB_COL_I64, VB_COL_F64, VB_COL_U32, VB_COL_I32, VB_COL_F32 };

/* A column, which is a field of the struct that is a row. Fields lie one after the other, without
 * padding, and are little-endian in files. */
struct vb_col {
    const char *name, *unit; /* words without blanks; unit "-": none */
    enum vb_col_type type;
};

struct vb_series_kind {
    const char *name; /* what a row is: "steps" ... */
    int version;      /* changes with the meaning of a column; new columns keep it */
    const struct vb_col *cols;
    int n_cols;
    size_t row_bytes;
};

#define VB_SERIES_HEAD_MAX 4096
#define VB_SERIES_MAGIC "verbena-series 1" /* the first line of a file */
#define VB_SERIES_MAGIC_BYTES (sizeof(VB_SERIES_MAGIC) - 1)

/* Writes the head of a file, and returns its length. */
size_t vb_series_head(const struct vb_series_kind *kind, char head[VB_SERIES_HEAD_MAX]);

/* ---- reading --------------------------------------------------------------------------------- */

struct vb_series; /* a file that may still grow; one thread at a time may use it */

/* Returns whether a file begins like a series. */
bool vb_series_is(const char *path);

vb_status vb_series_open(const char *path, struct vb_series **series_p);
void vb_series_close(struct vb_series *series);

const char *vb_series_name(const struct vb_series *series);

/* Returns the number of a column, or -1 if there is none of this name. */
int vb_series_col(const struct vb_series *series, const char *name);

/* Return the number of whole rows in the file now, and the byte after the last whole row. */
int64_t vb_series_rows(struct vb_series *series);
int64_t vb_series_end(struct vb_series *series);

/* Returns a value as a double, NAN if row or column do not exist. Exact up to 2^53. */
double vb_series_value(struct vb_series *series, int64_t row, int col);

#endif
