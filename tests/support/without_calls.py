#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Runs a command on a kernel that lacks some system calls, as an old one does: without_calls.py CALL[,CALL] COMMAND...
# A filter of seccomp answers them with ENOSYS. Exits with 77 if this machine cannot do that.
import ctypes
import os
import platform
import struct
import sys

CALLS = {"aarch64": {"pidfd_open": 434, "memfd_create": 279},
         "x86_64": {"pidfd_open": 434, "memfd_create": 319}}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # the instructions of BPF
ALLOW, ENOSYS = 0x7FFF0000, 0x00050000 | 38


def main():
    table = CALLS.get(platform.machine())
    if table is None:
        print("skipped: the numbers of system calls are not known here")
        sys.exit(77)
    numbers = [table[name] for name in sys.argv[1].split(",")]
    code = struct.pack("HBBI", LOAD, 0, 0, 0)  # the number of the call
    for i, number in enumerate(numbers):
        code += struct.pack("HBBI", EQUAL, len(numbers) - i, 0, number)
    code += struct.pack("HBBI", RETURN, 0, 0, ALLOW) + struct.pack("HBBI", RETURN, 0, 0, ENOSYS)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or \
            libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(program)) != 0:
        print("skipped: no filter of system calls:", os.strerror(ctypes.get_errno()))
        sys.exit(77)
    os.execvp(sys.argv[2], sys.argv[2:])


main()
