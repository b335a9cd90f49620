# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What Open MPI takes along to the nodes. Sourced, on the host, by lab/mpirun and bench/compare.
mpi_with=() mpi_lacks=''

# mpi_files: sets mpi_with, options for lab/run: the programs and what they load by themselves, UCX's
# transports among that, where it is; or mpi_lacks, and is false
mpi_files() {
    local folder name=mpirun
    ! command -v mpirun.openmpi >/dev/null || name=mpirun.openmpi # mpirun may be another library's
    if ! command -v $name >/dev/null || ! command -v orted >/dev/null; then
        mpi_lacks="Open MPI 4 is not there: sudo apt install openmpi-bin"
        return 1
    fi
    mpi_with=(--with "$name" --with orted --with "$(dirname "${BASH_SOURCE[0]}")/mpi_node")
    for folder in /usr/lib/*-linux-gnu/{openmpi,pmix2,ucx} /usr/share/openmpi /usr/share/pmix* /etc/openmpi; do
        [ ! -d "$folder" ] || mpi_with+=(--with "$folder")
    done
}

# mpi_has_ucx: whether this Open MPI can use it; or mpi_lacks says why not, and is false
mpi_has_ucx() {
    compgen -G '/usr/lib/*-linux-gnu/openmpi/lib/openmpi*/mca_pml_ucx.so' >/dev/null &&
        compgen -G '/usr/lib/*-linux-gnu/ucx/libuct_ib.so*' >/dev/null && return 0
    # shellcheck disable=SC2034 # for who sources it
    mpi_lacks="Open MPI has no UCX with RDMA: sudo apt install libucx0"
    return 1
}
