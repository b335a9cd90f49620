# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Finds the files of Open MPI that the nodes need. lab/mpirun and bench/compare source this file on the host.
mpi_with=() mpi_lacks=''

# mpi_files: sets mpi_with to the options of lab/run that copy Open MPI's programs and the files that these load,
# including UCX's transports if there are any. If Open MPI is missing, sets mpi_lacks to a message and returns 1.
mpi_files() {
    local folder name=mpirun
    ! command -v mpirun.openmpi >/dev/null || name=mpirun.openmpi # mpirun may belong to another MPI library
    if ! command -v $name >/dev/null || ! command -v orted >/dev/null; then
        mpi_lacks="Open MPI 4 is not installed: sudo apt install openmpi-bin"
        return 1
    fi
    mpi_with=(--with "$name" --with orted --with "$(dirname "${BASH_SOURCE[0]}")/mpi_node")
    for folder in /usr/lib/*-linux-gnu/{openmpi,pmix2,ucx} /usr/share/openmpi /usr/share/pmix* /etc/openmpi; do
        [ ! -d "$folder" ] || mpi_with+=(--with "$folder")
    done
}

# mpi_has_ucx: returns true if this Open MPI can use UCX. Otherwise sets mpi_lacks to the reason.
mpi_has_ucx() {
    compgen -G '/usr/lib/*-linux-gnu/openmpi/lib/openmpi*/mca_pml_ucx.so' >/dev/null &&
        compgen -G '/usr/lib/*-linux-gnu/ucx/libuct_ib.so*' >/dev/null && return 0
    # shellcheck disable=SC2034 # used by the scripts that source this file
    mpi_lacks="Open MPI has no UCX with RDMA: sudo apt install libucx0"
    return 1
}
