/* SPDX-License-Identifier: MIT
 *
 * A sink that appends to files below one folder.
 */
#ifndef VB_RECORD_FOLDER_FILES_H
#define VB_RECORD_FOLDER_FILES_H

#include "record/folder/recorder.h"

/* append: files that exist are continued; otherwise they begin anew. */
vb_status vb_record_files(const char *dir, bool append, struct vb_record_sink *sink_p);

#endif
