# SPDX-License-Identifier: MIT
#
# Sets VB_PREFETCH_FOR_WRITING to the compiler option with which __builtin_prefetch(at, 1) becomes a prefetch for
# writing.
#
# vb_levels(TARGET NAME SOURCES...): compiles the sources of a library once more for each instruction level above the
# baseline (base/base.h). VB_AT_LEVEL() appends a suffix for the level to names.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
  # CPUs without the prefetch instruction ignore it. Without this option the compiler does not use the instruction.
  set(VB_PREFETCH_FOR_WRITING -mprfchw)
endif()

function(vb_levels target name)
  if(ARGC LESS_EQUAL 2 OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    return()
  endif()
  # These are exactly the instructions that vb_cpu_level() checks for.
  set(v3 -mavx2 -mfma -mbmi -mbmi2)
  set(v4 ${v3} -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mprefer-vector-width=512)
  foreach(level v3 v4)
    add_library(${target}_${name}_${level} OBJECT ${ARGN})
    target_compile_definitions(${target}_${name}_${level} PRIVATE VB_LEVEL=_${level})
    target_compile_options(${target}_${name}_${level} PRIVATE ${${level}})
    target_link_libraries(${target}_${name}_${level} PRIVATE vb_base vb_topo OpenMP::OpenMP_C)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${name}_${level}>)
  endforeach()
endfunction()
