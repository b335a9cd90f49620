#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Stands for ssh when tests/docs/commands.py runs the commands of the documentation: runs the command on this machine.
# tests/launch/hosts.sh tests the real ssh.
while [ "${1#-}" != "$1" ]; do
    case $1 in
    -[opliF]) shift 2 ;;
    *) shift ;;
    esac
done
shift # the host
exec sh -c "$*"
