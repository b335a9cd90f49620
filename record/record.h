/* SPDX-License-Identifier: MIT
 *
 * record/ writes and reads what a run leaves behind. Training never waits for it.
 */
#ifndef VB_RECORD_RECORD_H
#define VB_RECORD_RECORD_H

#include "record/board/board.h"
#include "record/clock.h"
#include "record/folder/files.h"
#include "record/folder/kinds.h"
#include "record/folder/recorder.h"
#include "record/folder/series.h"
#include "record/metrics/metrics.h"
#include "record/report/report.h"
#include "record/sample/sampler.h"
#include "record/trace/trace_files.h"
#include "record/trace/trace_merge.h"
#include "record/trace/trace_out.h"

#endif
