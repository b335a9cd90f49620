# SPDX-License-Identifier: MIT
#
# Finds every library that the engine needs. No library is optional: if one is missing, the
# configuration stops and names the missing package. So no feature is ever left out silently.

set(VB_MISSING "")

find_package(PkgConfig QUIET)
if(NOT PKG_CONFIG_FOUND)
  message(FATAL_ERROR "pkg-config is missing: run ./scripts/setup.sh, "
                      "or install the package pkg-config (Debian, Ubuntu)")
endif()

# vb_need_module(PREFIX MODULE PACKAGE WHAT): makes the target PkgConfig::PREFIX from the module's
# .pc file. If the module is missing, adds PACKAGE to VB_MISSING.
function(vb_need_module prefix module package what)
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET GLOBAL "${module}")
  if(NOT ${prefix}_FOUND)
    set(VB_MISSING "${VB_MISSING}\n  ${package}: ${what}" PARENT_SCOPE)
  endif()
endfunction()

vb_need_module(VERBS libibverbs libibverbs-dev "RDMA verbs")
vb_need_module(RDMACM librdmacm librdmacm-dev "RDMA connections")
vb_need_module(SODIUM libsodium libsodium-dev "authentication between ranks")
vb_need_module(PMIX pmix libpmix-dev "ranks started by mpirun and srun --mpi=pmix")
vb_need_module(HWLOC "hwloc>=2.1" libhwloc-dev "topology and pinning (hwloc 2.1 or later)")
vb_need_module(OPENBLAS openblas libopenblas-dev "matrix products where oneDNN has no kernel")
vb_need_module(JANSSON jansson libjansson-dev "JSON")
vb_need_module(ZLIB zlib zlib1g-dev "compressed input")

# oneDNN has no .pc file in Debian 12, so we look for its header and its library.
find_path(DNNL_INCLUDE_DIR dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
  add_library(dnnl UNKNOWN IMPORTED GLOBAL)
  set_target_properties(dnnl PROPERTIES IMPORTED_LOCATION "${DNNL_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${DNNL_INCLUDE_DIR}")
else()
  string(APPEND VB_MISSING "\n  libdnnl-dev: oneDNN, the dense kernels")
endif()

find_package(Threads REQUIRED)
find_package(OpenMP QUIET COMPONENTS C)
if(NOT OpenMP_C_FOUND)
  string(APPEND VB_MISSING "\n  libomp-dev: OpenMP for clang (gcc brings its own)")
endif()

if(VB_TESTS)
  vb_need_module(CMOCKA cmocka libcmocka-dev "the tests (-DVB_TESTS=OFF builds without)")
endif()

if(VB_MISSING)
  message(FATAL_ERROR "Libraries are missing. Run ./scripts/setup.sh, or install these packages "
                      "(names of Debian and Ubuntu):${VB_MISSING}\n")
endif()
