/* SPDX-License-Identifier: MIT
 *
 * The folder launch/ starts, watches and ends ranks, and tells a process which rank it is.
 */
#ifndef VB_LAUNCH_LAUNCH_H
#define VB_LAUNCH_LAUNCH_H

#include "launch/link.h"
#include "launch/rank.h"
#include "launch/spawn.h"
#include "launch/supervise/supervise.h"

#endif
