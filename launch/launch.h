/* SPDX-License-Identifier: MIT
 *
 * launch/: how ranks are started, watched and ended, and how a process learns which rank it is.
 * This is the one header that other folders include.
 */
#ifndef VB_LAUNCH_LAUNCH_H
#define VB_LAUNCH_LAUNCH_H

#include "launch/rank.h"
#include "launch/supervise.h"

#endif
